//! A shell line as a list of words: leading environment assignments, the program, its arguments.
//!
//! Only what a scenario can mean is taken: quoting works as in a shell; expansions, pipes and several commands are refused.

use super::error::ConfigError;

/// A shell line, split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    /// Variables set in front of the program.
    pub(super) env: Vec<(String, String)>,
    /// The arguments after the program and its subcommand.
    pub(super) arguments: Vec<String>,
    /// Whether the model is a positional argument (`vllm serve MODEL`).
    pub(super) positional_model: bool,
}

const SERVER_MODULES: [&str; 2] = ["vllm.entrypoints.openai.api_server", "vllm.entrypoints.launchers.api_server.entry"];

/// Splits `line` and finds the server in it.
pub(super) fn split(line: &str) -> Result<Command, ConfigError> {
    let words = shlex::split(&one_line(line)?).ok_or(ConfigError::Unbalanced)?;
    let mut rest = words.as_slice();
    if rest.first().is_some_and(|word| word == "exec" || word == "env") {
        rest = &rest[1..];
    }
    let assignments = rest.iter().take_while(|word| assignment(word).is_some()).count();
    let env = rest[..assignments].iter().filter_map(|word| assignment(word)).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let rest = &rest[assignments..];
    let plain: Vec<&str> = rest.iter().map(String::as_str).collect();
    let (skip, positional_model) = match plain.as_slice() {
        [program, "serve", ..] if file_name(program) == "vllm" => (2, true),
        [python, "-m", "vllm.entrypoints.cli.main", "serve", ..] if is_python(python) => (4, true),
        [python, "-m", module, ..] if is_python(python) && SERVER_MODULES.contains(module) => (3, false),
        _ => return Err(ConfigError::NotAServer { found: plain.iter().take(3).copied().collect::<Vec<_>>().join(" ") }),
    };
    Ok(Command { env, arguments: rest[skip..].to_vec(), positional_model })
}

/// The line without its line continuations. What only a shell could expand or run is refused; text between single quotes is
/// literal.
fn one_line(line: &str) -> Result<String, ConfigError> {
    let (mut out, mut quote) = (String::with_capacity(line.len()), None);
    let mut characters = line.char_indices();
    while let Some((at, c)) = characters.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => match characters.next() {
                Some((_, '\n')) => continue,
                Some((_, escaped)) => {
                    out.extend([c, escaped]);
                    continue;
                }
                None => return Err(ConfigError::Unbalanced),
            },
            (None, '\'' | '"') => quote = Some(c),
            (_, '$' | '`') | (None, '|' | '&' | ';' | '<' | '>' | '(' | ')') => return Err(shell_syntax(line, at)),
            _ => {}
        }
        out.push(c);
    }
    Ok(out)
}

fn shell_syntax(line: &str, at: usize) -> ConfigError {
    let start = line[..at].rfind(char::is_whitespace).map_or(0, |space| space + 1);
    let end = line[at..].find(char::is_whitespace).map_or(line.len(), |space| at + space);
    ConfigError::ShellSyntax { found: line[start..end].to_owned() }
}

/// `NAME=value`, where the name is one a shell would assign.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let first = name.chars().next()?;
    let valid = (first.is_ascii_alphabetic() || first == '_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    valid.then_some((name, value))
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_python(program: &str) -> bool {
    let name = file_name(program);
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}
