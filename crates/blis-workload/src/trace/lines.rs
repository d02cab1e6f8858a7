//! Text files line by line, in memory that does not grow with the file.
//!
//! Lines end in a line feed, or a carriage return and a line feed. A byte order mark, bytes that are no text, a carriage return elsewhere
//! and an empty line between others are refused with their line.

use std::io::{BufRead, Read};

use super::TraceError;

/// The longest line that is read, in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 4 << 20;

/// A file being read.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    pub(crate) file: String,
    input: R,
    number: u64,
    bytes: Vec<u8>,
    blank_since: Option<u64>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(file: &str, input: R) -> Self {
        Self { file: file.to_owned(), input, number: 0, bytes: Vec::new(), blank_since: None }
    }

    /// The next line with its number, without its end; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &str)>, TraceError> {
        loop {
            self.bytes.clear();
            let limit = MAX_LINE_BYTES as u64 + 1;
            let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.bytes);
            read.map_err(|error| TraceError::whole(&self.file, format!("cannot be read: {error}")))?;
            if self.bytes.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            self.trim()?;
            if self.bytes.is_empty() {
                self.blank_since.get_or_insert(self.number);
                continue;
            }
            if let Some(blank) = self.blank_since {
                return Err(self.wrong(blank, "is empty; delete it"));
            }
            break;
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some((self.number, text))),
            Err(_) => Err(self.wrong(self.number, "is not text in UTF-8")),
        }
    }

    fn trim(&mut self) -> Result<(), TraceError> {
        if self.number == 1 && self.bytes.starts_with(b"\xef\xbb\xbf") {
            return Err(self.wrong(1, "starts with a byte order mark; save the file without one"));
        }
        if self.bytes.last() == Some(&b'\n') {
            self.bytes.pop();
            if self.bytes.last() == Some(&b'\r') {
                self.bytes.pop();
            }
        } else if self.bytes.len() > MAX_LINE_BYTES {
            return Err(self.wrong(self.number, &format!("has more than {MAX_LINE_BYTES} bytes")));
        }
        if self.bytes.contains(&b'\r') {
            return Err(self.wrong(self.number, "has a carriage return that no line feed follows"));
        }
        Ok(())
    }

    fn wrong(&self, line: u64, message: &str) -> TraceError {
        TraceError::at(&self.file, line, "", message)
    }
}
