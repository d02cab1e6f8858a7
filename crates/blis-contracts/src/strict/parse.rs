//! Reads text into the span tree: checks of the raw text, then YAML events with everything ambiguous refused.
//!
//! The syntax itself is saphyr-parser's; this file decides what of YAML a BLIS document may use.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::node::join_key;
use super::scalar::{self, Refusal};
use super::{DocumentError, Entry, LineEndings, MAX_BYTES, MAX_DEPTH, MAX_VALUES, Map, Node, Position, SourceId, Span, Value};

/// What to do about syntax errors whose wording does not tell; the first row whose left side is part of the message.
const SYNTAX_HINTS: &[(&str, &str)] = &[
    ("simple key expect ':'", "a key is followed by a colon and a space"),
    ("tab", "indent with spaces"),
    ("unknown anchor", "aliases are refused; write the value out where it is used"),
    ("recursion limit", "no document needs more than 64 levels"),
];

/// Reads one document.
pub(super) fn parse(file: &str, source: SourceId, bytes: &[u8], endings: LineEndings) -> Result<Node, DocumentError> {
    let text = check_text(file, bytes, endings)?;
    let mut builder = Builder { file, source, text, open: Vec::new(), root: None, values: 0, ended: false };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = builder.span(*error.marker(), *error.marker());
            let hint = SYNTAX_HINTS.iter().find(|(part, _)| error.info().contains(part)).map(|(_, hint)| (*hint).to_owned());
            DocumentError { hint, ..builder.error(at, format!("not valid YAML: {}", error.info())) }
        })?;
        let span = builder.span(span.start, span.end);
        builder.event(event, span)?;
    }
    builder.root.ok_or_else(|| DocumentError::whole(file, "the document is empty"))
}

/// Whether a character may not stand in a document unescaped: controls other than tab and line ends, byte order marks, non-characters.
pub(super) fn is_forbidden(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r') || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn check_text<'a>(file: &str, bytes: &'a [u8], endings: LineEndings) -> Result<&'a str, DocumentError> {
    if bytes.len() > MAX_BYTES {
        let message = format!("the document has more than {MAX_BYTES} bytes (16 MiB), the most a document may have");
        return Err(DocumentError::whole(file, message));
    }
    if bytes.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() > MAX_VALUES {
        let message = format!("the document has more than {MAX_VALUES} commas and opening brackets, so too many values");
        return Err(DocumentError::whole(file, message));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let before = std::str::from_utf8(valid).expect("the part before the first invalid byte is valid");
        let byte = bytes[error.valid_up_to()];
        at_end_of(file, before, format!("byte 0x{byte:02x} is not valid UTF-8"))
    })?;
    if text.starts_with('\u{feff}') {
        let error = at_end_of(file, "", "the document starts with a byte order mark");
        return Err(error.with_hint("save it as UTF-8 without a byte order mark"));
    }
    if let Some(at) = text.find(is_forbidden) {
        let c = text[at..].chars().next().expect("a character was found here");
        let message = format!("the character U+{:04X} may not stand in a document", u32::from(c));
        return Err(at_end_of(file, &text[..at], message).with_hint("write it as an escape in a double-quoted text"));
    }
    let refused = |at: &usize| match endings {
        LineEndings::Lf => true,
        LineEndings::LfOrCrLf => !text[at + 1..].starts_with('\n'),
    };
    match text.match_indices('\r').map(|(at, _)| at).find(refused) {
        Some(at) => Err(at_end_of(file, &text[..at], "a carriage return may not stand here").with_hint("end lines with a line feed")),
        None => Ok(text),
    }
}

/// An error at the character after `before`, the text up to it.
fn at_end_of(file: &str, before: &str, message: impl Into<String>) -> DocumentError {
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let start = Position { line: small(line + 1), column: small(column + 1) };
    let end = Position { column: start.column + 1, ..start };
    DocumentError { range: Some((start, end)), ..DocumentError::whole(file, message) }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).expect("a document of at most 16 MiB has fewer lines and columns than u32 holds")
}

/// A container whose end has not been read yet.
enum Open {
    Seq { items: Vec<Node>, start: Span },
    Map { map: Box<Map>, start: Span, key: Option<(String, Span)> },
}

struct Builder<'a> {
    file: &'a str,
    source: SourceId,
    text: &'a str,
    open: Vec<Open>,
    root: Option<Node>,
    values: usize,
    ended: bool,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), DocumentError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd => Ok(()),
            Event::DocumentStart(explicit) => self.document_start(explicit, span),
            Event::DocumentEnd => {
                self.ended = true;
                Ok(())
            }
            Event::Alias(_) => Err(self.error(span, "aliases are refused").with_hint("write the value out where it is used")),
            Event::Scalar(text, style, anchor, tag) => {
                self.check_properties(anchor, tag.is_some(), span)?;
                if self.expects_key() { self.key(&text, style, span) } else { self.scalar(&text, style, span) }
            }
            Event::SequenceStart(anchor, tag) => {
                self.check_properties(anchor, tag.is_some(), span)?;
                self.check_container(span)?;
                self.open.push(Open::Seq { items: Vec::new(), start: span });
                Ok(())
            }
            Event::MappingStart(anchor, tag) => {
                self.check_properties(anchor, tag.is_some(), span)?;
                self.check_container(span)?;
                self.open.push(Open::Map { map: Box::default(), start: span, key: None });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
        }
    }

    fn document_start(&mut self, explicit: bool, span: Span) -> Result<(), DocumentError> {
        if self.ended {
            return Err(self.error(span, "a second document starts here; a file holds one"));
        }
        let before = self.text.lines().take(span.start.line as usize - 1).enumerate();
        match before.into_iter().find(|(_, line)| explicit && line.starts_with('%')) {
            Some((index, line)) => {
                let start = Position { line: small(index + 1), column: 1 };
                let end = Position { column: small(line.chars().count() + 1), ..start };
                Err(self.error(Span { start, end, ..span }, format!("directives such as `{line}` are refused")))
            }
            None => Ok(()),
        }
    }

    fn check_properties(&self, anchor: usize, tagged: bool, span: Span) -> Result<(), DocumentError> {
        if anchor > 0 {
            return Err(self.error(span, "anchors are refused").with_hint("write the value out where it is used"));
        }
        if tagged {
            return Err(self.error(span, "tags are refused").with_hint("quote the value if text is meant"));
        }
        Ok(())
    }

    fn check_container(&self, span: Span) -> Result<(), DocumentError> {
        if self.expects_key() {
            return Err(self.error(span, "a key must be text, not a sequence or a map"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(self.error(span, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map { key: None, .. }))
    }

    fn key(&mut self, text: &str, style: ScalarStyle, span: Span) -> Result<(), DocumentError> {
        if style == ScalarStyle::Plain {
            self.check_plain_key(text, span)?;
        }
        let Some(Open::Map { map, key, .. }) = self.open.last_mut() else { unreachable!("a key is expected only inside a map") };
        let Some(first) = map.get(text) else {
            *key = Some((text.to_owned(), span));
            return Ok(());
        };
        let message = format!("duplicate key `{text}`, first written on line {}", first.key_span.start.line);
        Err(DocumentError { path: join_key(&self.path(), text), ..self.error(span, message) })
    }

    fn check_plain_key(&self, text: &str, span: Span) -> Result<(), DocumentError> {
        if text == "<<" {
            return Err(self.error(span, "merge keys are refused").with_hint("write the merged keys out"));
        }
        if matches!(scalar::resolve(text), Ok(Value::Str(_))) {
            return Ok(());
        }
        let message = if text.is_empty() { "there is no key here".to_owned() } else { format!("the key `{text}` is not text") };
        Err(self.error(span, message).with_hint("quote it if text is meant"))
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, span: Span) -> Result<(), DocumentError> {
        let value = if style == ScalarStyle::Plain {
            scalar::resolve(text).map_err(|Refusal { message, hint }| self.error(span, message).with_hint(hint))?
        } else {
            Value::Str(text.to_owned())
        };
        self.add(Node { value, span })
    }

    fn close(&mut self, end: Span) -> Result<(), DocumentError> {
        let node = match self.open.pop().expect("the parser closes only what it opened") {
            Open::Seq { items, start } => Node { value: Value::Seq(items), span: Span { end: end.end, ..start } },
            Open::Map { map, start, .. } => Node { value: Value::Map(map), span: Span { end: end.end, ..start } },
        };
        self.add(node)
    }

    fn add(&mut self, node: Node) -> Result<(), DocumentError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error(node.span, format!("the document holds more than {MAX_VALUES} values")));
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::Seq { items, .. }) => items.push(node),
            Some(Open::Map { map, key, .. }) => {
                let (key, key_span) = key.take().expect("a value follows its key");
                map.insert(key, Entry { key_span, node });
            }
        }
        Ok(())
    }

    /// The path of the value being read.
    fn path(&self) -> String {
        self.open.iter().fold(String::new(), |path, open| match open {
            Open::Seq { items, .. } => format!("{path}[{}]", items.len()),
            Open::Map { key: Some((key, _)), .. } => join_key(&path, key),
            Open::Map { key: None, .. } => path,
        })
    }

    fn span(&self, start: Marker, end: Marker) -> Span {
        let position = |marker: Marker| Position { line: small(marker.line()), column: small(marker.col() + 1) };
        Span { source: self.source, start: position(start), end: position(end) }
    }

    fn error(&self, span: Span, message: impl Into<String>) -> DocumentError {
        DocumentError {
            file: self.file.to_owned(),
            range: Some((span.start, span.end)),
            path: self.path(),
            message: message.into(),
            hint: None,
        }
    }
}
