//! Comma-separated tables: a header of known columns, then records whose fields are read by name.
//!
//! A field that holds a comma, a quote or a line end stands in double quotes, in which a quote is doubled.

use std::io::BufRead;

use blis_contracts::strict::did_you_mean;

use super::TraceError;
use super::lines::{Lines, MAX_LINE_BYTES};

/// A table being read.
#[derive(Debug)]
pub(crate) struct Table<R> {
    lines: Lines<R>,
    /// For each known column, its place in a record.
    places: Vec<Option<usize>>,
    columns: &'static [&'static str],
    width: usize,
}

/// A record of a table.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    /// The line it starts in.
    pub(crate) line: u64,
    file: &'a str,
    columns: &'static [&'static str],
    places: &'a [Option<usize>],
    fields: Vec<String>,
}

impl<R: BufRead> Table<R> {
    /// Reads the header. `columns` are those the format has, of which the first `required` must be there.
    pub(crate) fn open(file: &str, input: R, columns: &'static [&'static str], required: usize) -> Result<Self, TraceError> {
        let mut lines = Lines::new(file, input);
        let Some((line, fields)) = record(&mut lines)? else {
            return Err(TraceError::whole(file, "is empty; its first line names the columns"));
        };
        let mut places = vec![None; columns.len()];
        for (place, name) in fields.iter().enumerate() {
            let Some(column) = columns.iter().position(|column| column == name) else {
                let hint = did_you_mean(name, columns).map(|hint| format!("; {hint}")).unwrap_or_default();
                return Err(TraceError::at(file, line, name, format!("is no column of this format{hint}")));
            };
            if places[column].replace(place).is_some() {
                return Err(TraceError::at(file, line, name, "names two columns"));
            }
        }
        match columns[..required].iter().zip(&places).find(|(_, place)| place.is_none()) {
            Some((missing, _)) => Err(TraceError::at(file, line, missing, "is missing; the header has no such column")),
            None => Ok(Self { lines, places, columns, width: fields.len() }),
        }
    }

    /// Whether the file has a column.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.iter().zip(&self.places).any(|(name, place)| *name == column && place.is_some())
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, TraceError> {
        let Some((line, fields)) = record(&mut self.lines)? else { return Ok(None) };
        if fields.len() != self.width {
            let message = format!("has {} fields; the header names {} columns", fields.len(), self.width);
            return Err(TraceError::at(&self.lines.file, line, "", message));
        }
        Ok(Some(Record { line, file: &self.lines.file, columns: self.columns, places: &self.places, fields }))
    }
}

impl Record<'_> {
    /// The text of a column; empty where the file does not have it.
    pub(crate) fn text(&self, column: &str) -> &str {
        let index = self.columns.iter().position(|name| *name == column).expect("a reader asks for columns of its own format");
        self.places[index].map_or("", |place| self.fields[place].as_str())
    }

    /// An error of a column.
    pub(crate) fn wrong(&self, column: &str, message: impl Into<String>) -> TraceError {
        TraceError::at(self.file, self.line, column, message)
    }

    /// A whole number of a column, if it is at most `most`.
    pub(crate) fn whole(&self, column: &str, most: u64) -> Result<u64, TraceError> {
        let text = self.text(column);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse::<u64>().ok().filter(|value| digits && *value <= most);
        value.ok_or_else(|| self.wrong(column, format!("must be a whole number up to {most}, found {text:?}")))
    }

    /// A whole number of a column that may be empty or absent.
    pub(crate) fn optional(&self, column: &str, most: u64) -> Result<Option<u64>, TraceError> {
        if self.text(column).is_empty() { Ok(None) } else { self.whole(column, most).map(Some) }
    }

    /// A count of a column: a whole number that fits a length.
    pub(crate) fn count(&self, column: &str, most: u32) -> Result<u32, TraceError> {
        Ok(u32::try_from(self.whole(column, most.into())?).expect("at most a 32-bit number"))
    }
}

/// The next record: the number of its first line, and its fields.
fn record<R: BufRead>(lines: &mut Lines<R>) -> Result<Option<(u64, Vec<String>)>, TraceError> {
    let file = lines.file.clone();
    let Some((number, text)) = lines.next()? else { return Ok(None) };
    let mut text = text.to_owned();
    loop {
        match fields(&text) {
            Split::Fields(fields) => return Ok(Some((number, fields))),
            Split::Open => {
                let more = lines.next()?.map(|(_, more)| more.to_owned());
                let Some(more) = more.filter(|more| text.len() + more.len() < MAX_LINE_BYTES) else {
                    return Err(TraceError::at(&file, number, "", "opens a quote that nothing closes"));
                };
                text.push('\n');
                text.push_str(&more);
            }
            Split::Wrong(message) => return Err(TraceError::at(&file, number, "", message)),
        }
    }
}

/// What a line is.
enum Split {
    Fields(Vec<String>),
    /// It ends within a quoted field.
    Open,
    Wrong(&'static str),
}

fn fields(line: &str) -> Split {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let end = rest.find(',').unwrap_or(rest.len());
            if rest[..end].contains('"') {
                return Split::Wrong("has a quote within a field that does not start with one");
            }
            fields.push(rest[..end].to_owned());
            match rest.get(end + 1..) {
                Some(more) => rest = more,
                None => return Split::Fields(fields),
            }
            continue;
        };
        let mut field = String::new();
        let mut left = quoted;
        loop {
            let Some(end) = left.find('"') else { return Split::Open };
            field.push_str(&left[..end]);
            left = &left[end + 1..];
            match left.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    left = more;
                }
                None => break,
            }
        }
        fields.push(field);
        match left.strip_prefix(',') {
            Some(more) => rest = more,
            None if left.is_empty() => return Split::Fields(fields),
            None => return Split::Wrong("has text between a closing quote and the next comma"),
        }
    }
}

/// A field as the writers put it.
pub(crate) fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")).into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[&str] = &["a", "b", "c"];

    fn read(text: &str) -> Result<Vec<Vec<String>>, String> {
        let mut table = Table::open("t.csv", text.as_bytes(), COLUMNS, 2).map_err(|error| error.to_string())?;
        let mut rows = Vec::new();
        while let Some(record) = table.next().map_err(|error| error.to_string())? {
            rows.push(COLUMNS.iter().map(|column| record.text(column).to_owned()).collect());
        }
        Ok(rows)
    }

    fn refusal(text: &str) -> String {
        read(text).unwrap_err()
    }

    #[test]
    fn fields_are_found_by_name_in_any_order_and_line_ends() {
        assert_eq!(read("b,a\r\n1,\"x, \"\"y\"\"\nz\"\r\n").unwrap(), [["x, \"y\"\nz", "1", ""]]);
        assert_eq!(read("a,b\n1,2\n\n").unwrap(), [["1", "2", ""]]);
    }

    #[test]
    fn what_a_table_may_not_hold_is_refused_with_its_line() {
        assert_eq!(refusal(""), "t.csv: is empty; its first line names the columns");
        assert_eq!(refusal("\u{feff}a,b\n"), "t.csv:1: starts with a byte order mark; save the file without one");
        assert_eq!(refusal("a,c\n"), "t.csv:1: b: is missing; the header has no such column");
        assert_eq!(refusal("a,b,bb\n"), "t.csv:1: bb: is no column of this format; did you mean `b`?");
        assert_eq!(refusal("a,b,a\n"), "t.csv:1: a: names two columns");
        assert_eq!(refusal("a,b\n1\n"), "t.csv:2: has 1 fields; the header names 2 columns");
        assert_eq!(refusal("a,b\n\n1,2\n"), "t.csv:2: is empty; delete it");
        assert_eq!(refusal("a,b\n1,2\r3\n"), "t.csv:2: has a carriage return that no line feed follows");
        assert_eq!(refusal("a,b\n1,\"2\n"), "t.csv:2: opens a quote that nothing closes");
        assert_eq!(refusal("a,b\n1,\"2\"3\n"), "t.csv:2: has text between a closing quote and the next comma");
        assert_eq!(refusal("a,b\n1,2\"3\"\n"), "t.csv:2: has a quote within a field that does not start with one");
    }
}
