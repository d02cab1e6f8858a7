//! Flat tables as Parquet files: one page for each column of a row group, plain values, no compression.
//!
//! What is written is the part of the format that every reader has: optional and required columns of booleans, 64-bit integers,
//! doubles and UTF-8 text, with definition levels as bit-packed runs. Left out: nesting, dictionaries, statistics, compression.
//!
//! Sources: the format's published specification (Apache Parquet format 2, `parquet.thrift`) and the compact protocol of Apache Thrift.

use std::io::{self, Write};

const MAGIC: &[u8; 4] = b"PAR1";

/// Rows of a row group; what is buffered at most.
const GROUP_ROWS: u64 = 65_536;

/// The type of a column's values, as the format numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// A truth value.
    Boolean = 0,
    /// A 64-bit integer.
    Int64 = 2,
    /// A double.
    Double = 5,
    /// UTF-8 text.
    Text = 6,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) of: Type,
    /// Whether a row may lack it.
    pub(crate) optional: bool,
}

/// A value of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    Absent,
    Boolean(bool),
    Int64(i64),
    Double(f64),
    Text(&'a str),
}

/// Writes a table row by row.
#[derive(Debug)]
pub(crate) struct Table<W> {
    out: W,
    /// Bytes written.
    offset: u64,
    columns: Vec<Column>,
    pages: Vec<Page>,
    rows: u64,
    groups: Vec<Group>,
}

/// The values of a column that no row group holds yet.
#[derive(Debug, Default, Clone)]
struct Page {
    values: Vec<u8>,
    /// Whether each row has a value, or what each value is where the column is of booleans.
    present: Bits,
    booleans: Bits,
}

#[derive(Debug, Default, Clone)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

/// A row group that is written.
#[derive(Debug)]
struct Group {
    rows: u64,
    chunks: Vec<Chunk>,
}

/// A column's part of a row group.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    offset: u64,
    bytes: u64,
}

impl<W: Write> Table<W> {
    /// Starts a file.
    pub(crate) fn new(mut out: W, columns: Vec<Column>) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let pages = vec![Page::default(); columns.len()];
        Ok(Self { out, offset: MAGIC.len() as u64, columns, pages, rows: 0, groups: Vec::new() })
    }

    /// Adds a row, a value for each column in order.
    ///
    /// Panics where a value is not of its column's type, or absent from a required one: a defect of the caller.
    pub(crate) fn row<'a>(&mut self, values: impl IntoIterator<Item = Value<'a>>) -> io::Result<()> {
        for ((column, page), value) in self.columns.iter().zip(&mut self.pages).zip(values) {
            page.push(column, value);
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.end_group() } else { Ok(()) }
    }

    /// Hands back what was written to, with the rest of the file.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.end_group()?;
        }
        let footer = self.footer();
        self.out.write_all(&footer)?;
        self.out.write_all(&length(footer.len()))?;
        self.out.write_all(MAGIC)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_group(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let mut chunks = Vec::with_capacity(self.columns.len());
        for (column, page) in self.columns.iter().zip(&mut self.pages) {
            let body = std::mem::take(page).body(column);
            let header = page_header(rows, body.len());
            self.out.write_all(&header)?;
            self.out.write_all(&body)?;
            let bytes = (header.len() + body.len()) as u64;
            chunks.push(Chunk { offset: self.offset, bytes });
            self.offset += bytes;
        }
        self.groups.push(Group { rows, chunks });
        Ok(())
    }

    /// The description of the whole file.
    fn footer(&self) -> Vec<u8> {
        let mut footer = Struct::new();
        footer.integer(1, Int::I32, 1);
        footer.list(2, Kind::Struct, self.columns.len() + 1);
        let mut root = Struct::new();
        root.text(4, "schema");
        root.integer(5, Int::I32, self.columns.len() as u64);
        footer.append(root);
        for column in &self.columns {
            let mut element = Struct::new();
            element.integer(1, Int::I32, column.of as u64);
            element.integer(3, Int::I32, u64::from(column.optional));
            element.text(4, column.name);
            if column.of == Type::Text {
                element.integer(6, Int::I32, 0);
            }
            footer.append(element);
        }
        footer.integer(3, Int::I64, self.groups.iter().map(|group| group.rows).sum());
        footer.list(4, Kind::Struct, self.groups.len());
        for group in &self.groups {
            footer.append(self.group(group));
        }
        footer.text(6, concat!("blis version ", env!("CARGO_PKG_VERSION")));
        footer.end()
    }

    fn group(&self, group: &Group) -> Struct {
        let mut whole = Struct::new();
        whole.list(1, Kind::Struct, group.chunks.len());
        for (column, chunk) in self.columns.iter().zip(&group.chunks) {
            let mut described = Struct::new();
            described.integer(1, Int::I32, column.of as u64);
            described.list(2, Kind::I32, 2);
            for encoding in [PLAIN, RUN_LENGTH] {
                described.item(encoding);
            }
            described.list(3, Kind::Binary, 1);
            described.bytes(column.name.as_bytes());
            described.integer(4, Int::I32, 0);
            described.integer(5, Int::I64, group.rows);
            described.integer(6, Int::I64, chunk.bytes);
            described.integer(7, Int::I64, chunk.bytes);
            described.integer(9, Int::I64, chunk.offset);
            let mut place = Struct::new();
            place.integer(2, Int::I64, chunk.offset);
            place.nested(3, described);
            whole.append(place);
        }
        whole.integer(2, Int::I64, group.chunks.iter().map(|chunk| chunk.bytes).sum());
        whole.integer(3, Int::I64, group.rows);
        whole
    }
}

impl Page {
    fn push(&mut self, column: &Column, value: Value<'_>) {
        self.present.push(value != Value::Absent);
        match (column.of, value) {
            (_, Value::Absent) => assert!(column.optional, "column {} is required", column.name),
            (Type::Boolean, Value::Boolean(value)) => self.booleans.push(value),
            (Type::Int64, Value::Int64(value)) => self.values.extend(value.to_le_bytes()),
            (Type::Double, Value::Double(value)) => self.values.extend(value.to_le_bytes()),
            (Type::Text, Value::Text(text)) => {
                self.values.extend(length(text.len()));
                self.values.extend(text.as_bytes());
            }
            (of, value) => panic!("{value:?} is not {of:?}, the type of column {}", column.name),
        }
    }

    /// Levels, where the column may lack values, then the values.
    fn body(self, column: &Column) -> Vec<u8> {
        let mut body = Vec::new();
        if column.optional {
            let mut levels = Vec::new();
            variable(&mut levels, (self.present.bytes.len() as u64) << 1 | 1);
            levels.extend(&self.present.bytes);
            body.extend(length(levels.len()));
            body.extend(levels);
        }
        body.extend(if column.of == Type::Boolean { self.booleans.bytes } else { self.values });
        body
    }
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.count % 8);
        }
        self.count += 1;
    }
}

/// Values one after the other.
const PLAIN: u64 = 0;

/// Levels in runs.
const RUN_LENGTH: u64 = 3;

fn page_header(rows: u64, bytes: usize) -> Vec<u8> {
    let mut data = Struct::new();
    data.integer(1, Int::I32, rows);
    data.integer(2, Int::I32, PLAIN);
    data.integer(3, Int::I32, RUN_LENGTH);
    data.integer(4, Int::I32, RUN_LENGTH);
    let mut header = Struct::new();
    header.integer(1, Int::I32, 0);
    header.integer(2, Int::I32, bytes as u64);
    header.integer(3, Int::I32, bytes as u64);
    header.nested(5, data);
    header.end()
}

/// A length as four bytes.
fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("a page holds fewer than 2^32 bytes").to_le_bytes()
}

/// Kinds of values in the compact protocol.
#[derive(Debug, Clone, Copy)]
enum Kind {
    I32 = 5,
    Binary = 8,
    Struct = 12,
}

/// Kinds of integers in the compact protocol.
#[derive(Debug, Clone, Copy)]
enum Int {
    I32 = 5,
    I64 = 6,
}

/// A struct in the compact protocol, as it is written.
#[derive(Debug)]
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn new() -> Self {
        Self { bytes: Vec::new(), last: 0 }
    }

    fn field(&mut self, id: u8, kind: u8) {
        self.bytes.push((id - self.last) << 4 | kind);
        self.last = id;
    }

    fn integer(&mut self, id: u8, kind: Int, value: u64) {
        self.field(id, kind as u8);
        self.item(value);
    }

    /// An integer that is not negative, as the protocol folds signs into it.
    fn item(&mut self, value: u64) {
        variable(&mut self.bytes, value << 1);
    }

    fn text(&mut self, id: u8, text: &str) {
        self.field(id, Kind::Binary as u8);
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        variable(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    fn list(&mut self, id: u8, kind: Kind, count: usize) {
        const LIST: u8 = 9;
        self.field(id, LIST);
        match u8::try_from(count) {
            Ok(count) if count < 15 => self.bytes.push(count << 4 | kind as u8),
            Ok(_) | Err(_) => {
                self.bytes.push(0xf0 | kind as u8);
                variable(&mut self.bytes, count as u64);
            }
        }
    }

    fn nested(&mut self, id: u8, inner: Self) {
        self.field(id, Kind::Struct as u8);
        self.append(inner);
    }

    /// An item of a list, or the value of a field just begun.
    fn append(&mut self, inner: Self) {
        self.bytes.extend(inner.end());
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// An integer of seven bits a byte, the lowest first.
fn variable(bytes: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column { name: "flag", of: Type::Boolean, optional: false },
        Column { name: "count", of: Type::Int64, optional: true },
        Column { name: "share", of: Type::Double, optional: true },
        Column { name: "name", of: Type::Text, optional: false },
    ];

    fn file(rows: &[(bool, Option<i64>, Option<f64>, &str)]) -> Vec<u8> {
        let mut table = Table::new(Vec::new(), COLUMNS.to_vec()).unwrap();
        for (flag, count, share, name) in rows {
            let count = count.map_or(Value::Absent, Value::Int64);
            let share = share.map_or(Value::Absent, Value::Double);
            table.row([Value::Boolean(*flag), count, share, Value::Text(name)]).unwrap();
        }
        table.finish().unwrap()
    }

    /// The bytes of a file that pyarrow 26 reads as the rows written: [(True, 7, None, "a"), (False, None, 0.5, "é")].
    #[test]
    fn a_file_has_the_bytes_that_other_readers_take() {
        let bytes = file(&[(true, Some(7), None, "a"), (false, None, Some(0.5), "é")]);
        assert_eq!((&bytes[..4], &bytes[bytes.len() - 4..]), (MAGIC.as_slice(), MAGIC.as_slice()));
        let header = [0x15, 0x00, 0x15, 0x02, 0x15, 0x02, 0x2c, 0x15, 0x04, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, 0x00, 0x00];
        assert_eq!(bytes[4..21], header, "one byte of two booleans");
        assert_eq!(bytes[21], 0b01);
        let count = [2, 0, 0, 0, 0x03, 0b01, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes[22 + 17..22 + 17 + 14], count, "levels of one group of eight, then the one value");
    }

    #[test]
    fn an_empty_table_is_a_file_of_no_row_groups() {
        let bytes = file(&[]);
        let footer = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap());
        assert_eq!(footer as usize, bytes.len() - 12);
    }

    #[test]
    fn long_integers_take_seven_bits_a_byte() {
        let mut bytes = Vec::new();
        variable(&mut bytes, 300);
        assert_eq!(bytes, [0xac, 0x02]);
    }
}
