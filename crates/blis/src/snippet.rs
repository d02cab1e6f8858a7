//! An error of a document with the line it concerns, drawn.
//!
//! Contracts return places as data and this is the only file that draws them. An error of an edit points into the edit itself.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use blis_contracts::strict::{DocumentError, Position};

/// A line longer than this, in bytes, is named and not drawn.
const LONGEST_LINE: usize = 2_000;

/// The error as a terminal shows it; `text` is the file that was read.
pub(crate) fn render(error: &DocumentError, text: Option<&str>) -> String {
    let is_edit = error.file.starts_with("--set ");
    let text = if is_edit { Some(error.file.as_str()) } else { text };
    let excerpt = error.range.zip(text).and_then(|((start, end), text)| Excerpt::of(text, start, end, &error.message));
    let concerns = if error.path.is_empty() { error.message.clone() } else { format!("{}: {}", error.path, error.message) };
    let hint = error.hint.as_deref().map(|hint| Level::HELP.message(hint));
    let Some(excerpt) = excerpt else {
        let place = error.range.map(|(start, _)| format!(":{}:{}", start.line, start.column)).unwrap_or_default();
        let title = Level::ERROR.primary_title(format!("{}{place}: {concerns}", error.file));
        return Renderer::styled().render(&[title.elements(hint)]);
    };
    let snippet = Snippet::source(excerpt.line)
        .line_start(excerpt.number)
        .path(if is_edit { "command line" } else { error.file.as_str() })
        .annotation(AnnotationKind::Primary.span(excerpt.marked));
    Renderer::styled().render(&[Level::ERROR.primary_title(concerns).element(snippet).elements(hint)])
}

/// The line an error starts on, and what of it is marked.
struct Excerpt<'a> {
    line: &'a str,
    number: usize,
    marked: Range<usize>,
}

impl<'a> Excerpt<'a> {
    fn of(text: &'a str, start: Position, end: Position, message: &str) -> Option<Self> {
        let number = start.line as usize;
        let line = text.split('\n').nth(number - 1)?.trim_end_matches('\r');
        if line.len() > LONGEST_LINE {
            return None;
        }
        let offset = |position: Position| Position { line: 1, ..position }.offset_in(line);
        let from = offset(start);
        let to = if end.line == start.line { offset(end).max(from) } else { line.len() };
        Some(Self { line, number, marked: narrowed(line, from..to, message) })
    }
}

/// Within a launch line, the flag that the message names; otherwise all that was marked.
fn narrowed(line: &str, marked: Range<usize>, message: &str) -> Range<usize> {
    let part = &line[marked.clone()];
    let starts = part.match_indices(" --").map(|(at, _)| at + 1);
    let mut spans = starts.map(|at| at..at + part[at..].find([' ', '=', '"', '\'']).unwrap_or(part.len() - at));
    match spans.find(|span| is_named(&part[span.clone()], message)) {
        Some(span) => marked.start + span.start..marked.start + span.end,
        None => marked,
    }
}

/// Whether a message names a flag: as it is written or, where it has several words, as a setting or in a sentence.
fn is_named(flag: &str, message: &str) -> bool {
    let (words, text) = (words(flag), words(message));
    let several = words.trim().contains(' ');
    text.contains(&words) && (several || message.contains(flag))
}

/// The words of a text, each between single spaces.
fn words(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |line, word| line + word + " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_that_the_message_names_is_marked() {
        let line = "command: \"vllm serve m --max-model-len 8 --max-num-seq 4\"";
        let all = 9..line.len();
        let marked = |message: &str| &line[narrowed(line, all.clone(), message)];
        assert_eq!(marked("unrecognized arguments: --max-num-seq; did you mean --max-num-seqs?"), "--max-num-seq");
        assert_eq!(marked("argument --max-model-len: expected one"), "--max-model-len");
        assert_eq!(marked("try a smaller `max_model_len`"), "--max-model-len");
        assert_eq!(marked("the max model len (8) is odd"), "--max-model-len");
        assert_eq!(marked("the model does not fit"), &line[all.clone()]);
    }

    #[test]
    fn an_error_on_a_very_long_line_names_its_place_only() {
        let place = Position { line: 1, column: 3_000 };
        let error = DocumentError { range: Some((place, place)), ..DocumentError::whole("s.json", "bad") };
        assert!(render(&error, Some(&"x".repeat(4_000))).contains("s.json:1:3000: bad"));
    }
}
