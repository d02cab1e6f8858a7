//! A Rust file as three texts of the same length: its code, its literals, its comments.
//!
//! What belongs to another view is blank, so a position means the same line in each. This is a scanner, not a parser: it
//! knows comments (nested ones too), strings (raw, byte and C strings too), characters and lifetimes, and nothing else.

/// The three views; a byte is blank in all but one of them.
#[derive(Debug, Default)]
pub(super) struct Views {
    pub(super) code: String,
    pub(super) literals: String,
    pub(super) comments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Literal,
    Comment,
}

impl Views {
    /// Splits a text.
    pub(super) fn of(text: &str) -> Self {
        let mut views = Self::default();
        let mut rest = text;
        let mut in_word = false;
        while !rest.is_empty() {
            let (kind, length) = next_span(rest, in_word);
            let (span, after) = rest.split_at(length);
            in_word = kind == Kind::Code && span.ends_with(is_word);
            views.push(kind, span);
            rest = after;
        }
        views
    }

    /// The code and the literals without items under `#[cfg(test)]`; everything else blank.
    pub(super) fn shipped(&self) -> (String, String) {
        let mut code = self.code.clone();
        let mut literals = self.literals.clone();
        while let Some(begin) = code.find("#[cfg(test)]") {
            let end = begin + item_length(&code[begin..]);
            for text in [&mut code, &mut literals] {
                let blank: String = text[begin..end].chars().map(blank).collect();
                // A blank is one byte for each character, so the texts may shorten; lines stay where they were.
                text.replace_range(begin..end, &blank_to(&blank, end - begin));
            }
        }
        (code, literals)
    }

    fn push(&mut self, kind: Kind, span: &str) {
        let blanked = blank_to(&span.chars().map(blank).collect::<String>(), span.len());
        for (view, own) in
            [(&mut self.code, kind == Kind::Code), (&mut self.literals, kind == Kind::Literal), (&mut self.comments, kind == Kind::Comment)]
        {
            view.push_str(if own { span } else { &blanked });
        }
    }
}

/// The line, counted from 1, of a position in a view.
pub(super) fn line_at(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

/// The positions of a word that is not part of a longer one.
pub(super) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(position, _)| position).filter(move |&position| {
        let before = text[..position].chars().next_back();
        let after = text[position + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether a character can stand in an identifier.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn blank(c: char) -> char {
    if c == '\n' { c } else { ' ' }
}

/// Pads a blank text with spaces, since a character may have been longer than its blank.
fn blank_to(blank: &str, length: usize) -> String {
    let mut text = blank.to_owned();
    text.push_str(&" ".repeat(length - blank.len()));
    text
}

/// What comes next in a text, and how many bytes of it; `in_word` when an identifier has just ended there.
fn next_span(rest: &str, in_word: bool) -> (Kind, usize) {
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if rest.starts_with('"') {
        return (Kind::Literal, quoted(rest, '"'));
    }
    if !in_word && let Some(length) = raw_string(rest) {
        return (Kind::Literal, length);
    }
    if let Some(length) = character(rest) {
        return (Kind::Literal, length);
    }
    let mut characters = rest.char_indices();
    let first = characters.next().map(|(_, c)| c);
    if !first.is_some_and(is_word) {
        return (Kind::Code, first.map_or(0, char::len_utf8));
    }
    (Kind::Code, characters.find(|&(_, c)| !is_word(c)).map_or(rest.len(), |(at, _)| at))
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let bytes = rest.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a literal that begins and ends with `quote` and escapes with a backslash.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// The length of a raw string, if one begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let body = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let before = rest.len() - inner.len();
    Some(inner.find(&close).map_or(rest.len(), |at| before + at + close.len()))
}

/// The length of a character literal, if one begins here; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    if inner.starts_with('\\') {
        return Some(quoted(rest, '\''));
    }
    let first = inner.chars().next()?;
    inner[first.len_utf8()..].starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

/// The length of the item that begins at an attribute: to its `;`, or to the brace that closes its first one.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_shown_in_one_view_and_lines_stay_where_they_are() {
        let text = "let a = \"s // t\"; // c \"q\"\n/* x /* y */ z */ b\n";
        let views = Views::of(text);
        assert_eq!(views.code, "let a =         ;         \n                  b\n");
        assert_eq!(views.literals.trim(), "\"s // t\"");
        assert_eq!(views.comments, "                  // c \"q\"\n/* x /* y */ z */  \n");
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes_only() {
        let views = Views::of("f(r#\"a \" b\"#); var\"c\"");
        assert_eq!(views.code.replace(' ', ""), "f();var");
        assert_eq!(views.literals.trim_start(), "r#\"a \" b\"#      \"c\"");
    }

    #[test]
    fn a_lifetime_is_code_and_a_character_is_not() {
        let views = Views::of(r"fn f<'a>(c: &'a str) { '\''; '{'; 'é' }");
        assert_eq!(views.code.replace(' ', ""), "fnf<'a>(c:&'astr){;;}");
    }

    #[test]
    fn text_beyond_ascii_keeps_every_position() {
        let text = "// é\nlet x = \"ü\";\n";
        let views = Views::of(text);
        assert_eq!(views.code.len(), text.len());
        assert_eq!(line_at(&views.code, views.code.find("let").unwrap()), 2);
    }

    #[test]
    fn items_for_tests_are_not_shipped_and_what_follows_them_is() {
        let views = Views::of("#[cfg(test)]\nmod tests;\nfn a() { \"x\" }\n#[cfg(test)]\nmod t { fn b() { \"y\" } }\nfn c() {}");
        let (code, literals) = views.shipped();
        assert_eq!(code.split_whitespace().collect::<String>(), "fna(){}fnc(){}");
        assert_eq!(literals.trim(), "\"x\"");
        assert_eq!(line_at(&code, code.find("fn c").unwrap()), 6);
    }

    #[test]
    fn a_word_inside_a_longer_one_is_not_found() {
        assert_eq!(words("abc ab cab ab", "ab").collect::<Vec<_>>(), [4, 11]);
    }
}
