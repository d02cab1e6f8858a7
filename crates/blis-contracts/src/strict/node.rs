//! The span tree: values as written, each with the place it was written at, and paths into it.

use indexmap::IndexMap;

/// A place in a text: line and column count from one, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: u32,
    /// The character within the line, from 1.
    pub column: u32,
}

impl Position {
    /// The first character of a text.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The byte offset of the position in the text it was taken from; the end of the line if the line is shorter.
    pub fn offset_in(self, text: &str) -> usize {
        let lines = self.line.saturating_sub(1) as usize;
        let start: usize = text.split_inclusive('\n').take(lines).map(str::len).sum();
        let line = text[start..].split('\n').next().unwrap_or_default();
        let within = line.char_indices().nth(self.column.saturating_sub(1) as usize);
        start + within.map_or(line.len(), |(offset, _)| offset)
    }
}

/// Which contributor of a document wrote a value: the file itself, a `--set` edit or an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(u32);

impl SourceId {
    /// The file the document was loaded from.
    pub const FILE: Self = Self(0);

    pub(super) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a document has fewer than four billion edits"))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value was written: from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Who wrote it.
    pub source: SourceId,
    /// The first character.
    pub start: Position,
    /// The character after the last.
    pub end: Position,
}

/// A value and its place. Two nodes are equal when their values are, wherever they were written.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its place.
    pub span: Span,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Node {
    /// The map, if the value is one.
    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) | Value::Seq(_) => None,
        }
    }

    /// The text, if the value is text.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Seq(_) | Value::Map(_) => None,
        }
    }

    /// The place an error about this value points at: the value, or for one that spans lines the key that holds it.
    pub(super) fn head(&self, key: Option<Span>) -> Span {
        let Span { start, end, .. } = self.span;
        if start.line == end.line {
            return self.span;
        }
        key.unwrap_or(Span { end: Position { column: start.column + 1, ..start }, ..self.span })
    }
}

/// A value. Numbers keep their literal, in JSON's spelling, so that nothing is rounded before its type is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null` or `~`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer of any size.
    Int(String),
    /// A finite decimal of at most 17 significant digits.
    Float(String),
    /// Text, quoted or plain.
    Str(String),
    /// A sequence.
    Seq(Vec<Node>),
    /// A map, in the order written.
    Map(Box<Map>),
}

impl Value {
    /// The value in the words of an error message.
    pub fn describe(&self) -> String {
        const SHOWN: usize = 60;
        match self {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => format!("the boolean {value}"),
            Value::Int(literal) => format!("the integer {}", shorten(literal, SHOWN)),
            Value::Float(literal) => format!("the number {}", shorten(literal, SHOWN)),
            Value::Str(text) => format!("the text {:?}", shorten(text, SHOWN)),
            Value::Seq(_) => "a sequence".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

/// A map from text keys to values, in the order written.
pub type Map = IndexMap<String, Entry>;

/// One entry of a map. Equality is that of the values.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where the key was written.
    pub key_span: Span,
    /// The value.
    pub node: Node,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

/// A path under construction, linked through the callers' frames; rendered only when an error needs it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trail<'a> {
    Root,
    Key(&'a Trail<'a>, &'a str),
    Index(&'a Trail<'a>, usize),
}

impl Trail<'_> {
    pub(super) fn render(&self) -> String {
        match self {
            Trail::Root => String::new(),
            Trail::Key(parent, key) => join_key(&parent.render(), key),
            Trail::Index(parent, index) => format!("{}[{index}]", parent.render()),
        }
    }
}

pub(super) fn join_key(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

/// What a path leads to: the value it names, or the nearest value that encloses it.
pub(super) struct Found<'a> {
    pub(super) node: &'a Node,
    pub(super) span: Span,
    pub(super) exact: bool,
}

/// Follows a path such as `pools[0].env.NAME` as far as it goes.
///
/// A key may itself hold dots or brackets (a model's name), so at each map the longest key that fits the rest is taken.
pub(super) fn locate<'a>(root: &'a Node, path: &str) -> Found<'a> {
    let mut found = Found { node: root, span: root.head(None), exact: false };
    let mut rest = path;
    while !rest.is_empty() {
        let Some((node, key, after)) = step(found.node, rest) else { return found };
        found = Found { node, span: node.head(key), exact: false };
        rest = after;
    }
    Found { exact: true, ..found }
}

fn step<'a, 'p>(node: &'a Node, rest: &'p str) -> Option<(&'a Node, Option<Span>, &'p str)> {
    match &node.value {
        Value::Seq(items) => {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            Some((items.get(index.parse::<usize>().ok()?)?, None, after))
        }
        Value::Map(map) => {
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            let fits = |key: &str| rest.strip_prefix(key).filter(|after| after.is_empty() || after.starts_with(['.', '[']));
            map.iter()
                .filter_map(|(key, entry)| Some((key.len(), entry, fits(key)?)))
                .max_by_key(|(length, _, _)| *length)
                .map(|(_, entry, after)| (&entry.node, Some(entry.key_span), after))
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => None,
    }
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}
