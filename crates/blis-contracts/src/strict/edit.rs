//! Edits on the tree before it is decoded: `--set path=value` and overlays.
//!
//! An edit may write any key of a map that exists and replace any item of a sequence; it never creates the way to a value. What it
//! writes is decoded and checked like the file itself, with the edit named as the place.

use super::node::join_key;
use super::{Document, DocumentError, Entry, LineEndings, Node, Position, Problem, SourceId, Span, Value, did_you_mean, parse};

/// One step of an edit's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<'a> {
    /// A key of a map.
    Key(&'a str),
    /// An item of a sequence, by index, or by its `name` or `id`.
    Item(&'a str),
}

impl Document {
    /// Applies an edit such as `pools[0].replicas=2`, `pools[serve].env.NAME="1"` or `workload.clients[chat].arrival={process: poisson, rate: 4}`.
    ///
    /// The value is one YAML value on one line. A missing key is created where its map exists; a sequence does not grow.
    pub fn set(&mut self, assignment: &str) -> Result<(), DocumentError> {
        let source = format!("--set {assignment}");
        let Some((path, text)) = assignment.split_once('=') else {
            return Err(DocumentError::whole(source, "an edit has the form `path=value`"));
        };
        let steps = steps(path.trim()).map_err(|message| DocumentError::whole(&source, message))?;
        if text.trim().is_empty() {
            return Err(DocumentError::whole(source, "there is no value after `=`").with_hint("write `null` or `\"\"` if nothing is meant"));
        }
        let before = u32::try_from("--set ".len() + path.chars().count() + 1).expect("a command line is short");
        let of_value = |error: DocumentError| DocumentError {
            range: error.range.map(|(start, end)| (moved(start, before), moved(end, before))),
            path: within(path.trim(), &error.path),
            ..error
        };
        let mut node = parse::parse(&source, SourceId::new(self.sources.len()), text.as_bytes(), LineEndings::Lf).map_err(of_value)?;
        if node.span.end.line != 1 || text.trim().chars().count() + leading(text) != node.span.end.column as usize - 1 {
            return Err(DocumentError::whole(source, "the value has something after it").with_hint("quote it if that is part of the text"));
        }
        shift(&mut node, before);
        write(&mut self.root, &steps, node).map_err(|problem| DocumentError {
            path: problem.path,
            hint: problem.hint,
            ..DocumentError::whole(&source, problem.message)
        })?;
        self.sources.push(source);
        Ok(())
    }

    /// Lays another document over this one: maps are merged key by key, any other value is replaced.
    pub fn overlay(&mut self, other: &Document) {
        let first = self.sources.len();
        self.sources.extend(other.sources.iter().cloned());
        merge(&mut self.root, rebase(&other.root, first));
    }
}

fn steps(path: &str) -> Result<Vec<Step<'_>>, String> {
    let malformed = || format!("the path `{path}` is malformed; write keys with dots and items in brackets, as in `pools[0].replicas`");
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (key, mut items) = part.split_at(part.find('[').unwrap_or(part.len()));
        if key.is_empty() || key.contains(']') {
            return Err(malformed());
        }
        steps.push(Step::Key(key));
        while !items.is_empty() {
            let (item, rest) = items.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or_else(malformed)?;
            if item.is_empty() {
                return Err(malformed());
            }
            steps.push(Step::Item(item));
            items = rest;
        }
    }
    Ok(steps)
}

fn write(root: &mut Node, steps: &[Step<'_>], value: Node) -> Result<(), Problem> {
    let (last, way) = steps.split_last().expect("a path has at least one step");
    let mut node = root;
    let mut path = String::new();
    for step in way {
        node = descend(node, *step, &mut path)?;
    }
    if let (Value::Map(map), Step::Key(key)) = (&mut node.value, last) {
        let key_span = value.span;
        match map.get_mut(*key) {
            Some(entry) => *entry = Entry { key_span, node: value },
            None => drop(map.insert((*key).to_owned(), Entry { key_span, node: value })),
        }
        return Ok(());
    }
    *descend(node, *last, &mut path)? = value;
    Ok(())
}

/// Follows one step, extending `path`, or says why it leads nowhere.
fn descend<'a>(node: &'a mut Node, step: Step<'_>, path: &mut String) -> Result<&'a mut Node, Problem> {
    let described = node.value.describe();
    let problem = |path: &str, wanted: &str| {
        let holder = if path.is_empty() { "the document".to_owned() } else { format!("`{path}`") };
        Problem::new(path, format!("{holder} is {described}, not {wanted}"))
    };
    match (&mut node.value, step) {
        (Value::Map(map), Step::Key(key)) => {
            let known: Vec<&str> = map.keys().map(String::as_str).collect();
            let unknown =
                Problem { hint: did_you_mean(key, &known), ..Problem::new(path.as_str(), format!("there is no key `{key}` here")) };
            *path = join_key(path, key);
            map.get_mut(key).map(|entry| &mut entry.node).ok_or(unknown)
        }
        (Value::Seq(items), Step::Item(item)) => {
            let index = find_item(items, item).map_err(|message| Problem::new(path.as_str(), message))?;
            *path = format!("{path}[{index}]");
            Ok(&mut items[index])
        }
        (_, Step::Key(_)) => Err(problem(path, "a map")),
        (_, Step::Item(_)) => Err(problem(path, "a sequence")),
    }
}

fn find_item(items: &[Node], wanted: &str) -> Result<usize, String> {
    if let Ok(index) = wanted.parse::<usize>() {
        return if index < items.len() { Ok(index) } else { Err(format!("there is no item {index} in a sequence of {}", items.len())) };
    }
    let named = |item: &Node| {
        let map = item.as_map();
        ["name", "id"].iter().any(|key| map.and_then(|map| map.get(*key)).and_then(|entry| entry.node.as_str()) == Some(wanted))
    };
    let matches: Vec<usize> = (0..items.len()).filter(|index| named(&items[*index])).collect();
    match matches[..] {
        [index] => Ok(index),
        [] => Err(format!("no item has the name or id `{wanted}`")),
        [..] => Err(format!("{} items have the name or id `{wanted}`", matches.len())),
    }
}

fn merge(under: &mut Node, over: Node) {
    let span = over.span;
    match (&mut under.value, over.value) {
        (Value::Map(below), Value::Map(above)) => {
            for (key, entry) in *above {
                match below.get_mut(&key) {
                    Some(existing) => merge(&mut existing.node, entry.node),
                    None => drop(below.insert(key, entry)),
                }
            }
        }
        (_, value) => *under = Node { value, span },
    }
}

/// A copy of a tree whose sources are numbered from `first`.
fn rebase(node: &Node, first: usize) -> Node {
    let mut copy = node.clone();
    each_span(&mut copy, &mut |span| span.source = SourceId::new(first + span.source.index()));
    copy
}

/// Moves the columns of a value to where it stands in its assignment.
fn shift(node: &mut Node, columns: u32) {
    each_span(node, &mut |span| *span = Span { start: moved(span.start, columns), end: moved(span.end, columns), ..*span });
}

/// Where a position of a value is behind so many columns of its first line.
const fn moved(position: Position, columns: u32) -> Position {
    if position.line == 1 { Position { column: position.column + columns, ..position } } else { position }
}

/// The path of a part of the value at `path`.
fn within(path: &str, part: &str) -> String {
    if part.is_empty() || part.starts_with('[') { format!("{path}{part}") } else { join_key(path, part) }
}

fn each_span(node: &mut Node, change: &mut impl FnMut(&mut Span)) {
    change(&mut node.span);
    match &mut node.value {
        Value::Seq(items) => items.iter_mut().for_each(|item| each_span(item, change)),
        Value::Map(map) => {
            for entry in map.values_mut() {
                change(&mut entry.key_span);
                each_span(&mut entry.node, change);
            }
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => {}
    }
}

fn leading(text: &str) -> usize {
    text.chars().take_while(|c| c.is_whitespace()).count()
}
