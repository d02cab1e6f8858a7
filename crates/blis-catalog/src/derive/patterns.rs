//! The patterns with which a checkpoint names modules: plain names, globs, and the part of regular expressions that exporters write.

/// A pattern over dotted module names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// `*` stands for any text, `?` for any one character.
    glob: String,
    /// Whether a match of the name's first dotted parts is enough.
    covers_children: bool,
    /// Whether it is one part of a dotted name, and so covers modules of that name wherever they stand.
    names_a_part: bool,
}

impl Pattern {
    /// Reads a pattern, one for each side of a choice; nothing where it uses more of the regular-expression language than is understood.
    pub(crate) fn parse(text: &str) -> Option<Vec<Self>> {
        let choice = text.starts_with("re:").then(|| text.split_once('(')).flatten();
        let Some((before, rest)) = choice else { return Some(vec![Self::parse_plain(text)?]) };
        let (sides, after) = rest.split_once(')')?;
        sides.split('|').map(|side| Self::parse_plain(&format!("{before}{side}{after}"))).collect()
    }

    fn parse_plain(text: &str) -> Option<Self> {
        let Some(expression) = text.strip_prefix("re:") else {
            let names_a_part = !text.contains(['.', '*', '?']);
            return Some(Self { glob: text.to_owned(), covers_children: true, names_a_part });
        };
        let (expression, anchored) = match expression.strip_suffix('$') {
            Some(rest) => (rest, true),
            None => (expression, false),
        };
        let mut glob = String::new();
        let mut rest = expression.strip_prefix('^').unwrap_or(expression).chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '.' if rest.peek() == Some(&'*') => {
                    rest.next();
                    glob.push('*');
                }
                '.' => glob.push('?'),
                '\\' if rest.peek() == Some(&'.') => {
                    rest.next();
                    glob.push('.');
                }
                c if c.is_ascii_alphanumeric() || c == '_' || c == '-' => glob.push(c),
                _ => return None,
            }
        }
        if !anchored {
            glob.push('*');
        }
        Some(Self { glob, covers_children: false, names_a_part: false })
    }

    /// Whether the pattern covers a module.
    pub(crate) fn covers(&self, module: &str) -> bool {
        let glob = self.glob.as_bytes();
        if matches(glob, module.as_bytes()) {
            return true;
        }
        if self.names_a_part && module.split('.').any(|part| part == self.glob) {
            return true;
        }
        let parents = || module.match_indices('.').map(|(end, _)| &module[..end]);
        self.covers_children && parents().any(|parent| matches(glob, parent.as_bytes()))
    }

    /// Whether the pattern singles out one expert of a mixture by number.
    pub(crate) fn names_one_expert(&self) -> bool {
        self.glob.split_once("experts.").is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
    }
}

/// Glob matching in linear space: on a mismatch the last star takes one character more.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if g < glob.len() && glob[g] == b'*' {
            retry = Some((g + 1, t));
            g += 1;
        } else if g < glob.len() && (glob[g] == b'?' || glob[g] == text[t]) {
            g += 1;
            t += 1;
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            g = after_star;
            t = from + 1;
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, module: &str) -> bool {
        Pattern::parse(pattern).unwrap().iter().any(|pattern| pattern.covers(module))
    }

    #[test]
    fn a_name_covers_itself_and_what_is_inside() {
        assert!(covers("lm_head", "lm_head"));
        assert!(covers("model.layers.1.mlp", "model.layers.1.mlp.gate"));
        assert!(!covers("model.layers.1", "model.layers.10.mlp.gate"));
    }

    #[test]
    fn a_name_without_dots_covers_modules_of_that_name_anywhere() {
        assert!(covers("gate", "model.layers.3.block_sparse_moe.gate"));
        assert!(!covers("gate", "model.layers.3.mlp.gate_proj"));
    }

    #[test]
    fn a_star_covers_any_text() {
        assert!(covers("model.layers.*.self_attn", "model.layers.35.self_attn.q_proj"));
        assert!(covers("*.gate", "model.layers.3.mlp.gate"));
        assert!(!covers("model.layers.*.mlp.router", "model.layers.3.mlp.experts"));
    }

    #[test]
    fn the_simple_part_of_a_regular_expression_is_understood_and_the_rest_refused() {
        assert!(covers("re:.*lm_head", "lm_head"));
        assert!(covers("re:.*\\.mlp\\.gate$", "model.layers.3.mlp.gate"));
        assert!(!covers("re:.*\\.mlp\\.gate$", "model.layers.3.mlp.gate_proj"));
        assert!(covers("re:.*self_attn", "model.layers.3.self_attn.q_proj"));
        assert!(covers("re:.*mlp\\.(gate|up)_proj.*", "model.layers.3.mlp.up_proj"));
        assert!(!covers("re:.*mlp\\.(gate|up)_proj.*", "model.layers.3.mlp.experts.0.up_proj"));
        assert_eq!(Pattern::parse("re:(a|b)(c|d)"), None);
        assert_eq!(Pattern::parse("re:[ab]"), None);
    }
}
