//! Per-request files: one line for each request, written as its record arrives, in constant memory.
//!
//! CSV, JSON lines and Parquet share one table of columns, so they always tell the same. Times are microseconds of simulated time; a
//! value that a request does not have is empty in CSV and null elsewhere. Parquet alone is gathered, a row group at a time.

use std::io::{self, Write};

use blis_contracts::record::RequestRecord;
use blis_contracts::units::SimTime;

use crate::parquet::{self, Table, Type, Value};

/// The format of a per-request file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values under a header.
    Csv,
    /// One JSON object on each line.
    Jsonl,
    /// Columns.
    Parquet,
}

impl Format {
    /// Every format, with the extension its files have.
    pub const ALL: [(Self, &'static str); 3] = [(Self::Csv, "csv"), (Self::Jsonl, "jsonl"), (Self::Parquet, "parquet")];
}

/// A column of the file.
struct Column {
    name: &'static str,
    of: Type,
    optional: bool,
    value: fn(&RequestRecord) -> Cell<'_>,
}

/// What stands in a column. The client is an index here, and in the file its name or its service class.
enum Cell<'a> {
    Absent,
    Client(u32),
    Class(u32),
    Flag(bool),
    Count(u64),
    Real(f64),
    Text(&'a str),
}

const COLUMNS: &[Column] = &[
    Column { name: "client", of: Type::Text, optional: false, value: |record| Cell::Client(record.client) },
    Column { name: "slo_class", of: Type::Text, optional: false, value: |record| Cell::Class(record.client) },
    Column { name: "index", of: Type::Int64, optional: false, value: |record| Cell::Count(record.index) },
    Column { name: "warm_up", of: Type::Boolean, optional: false, value: |record| Cell::Flag(record.warm_up) },
    Column { name: "fate", of: Type::Text, optional: false, value: |record| Cell::Text(record.fate.as_str()) },
    Column { name: "refusal", of: Type::Text, optional: true, value: |record| record.refusal.as_deref().map_or(Cell::Absent, Cell::Text) },
    Column { name: "sent_us", of: Type::Int64, optional: false, value: |record| instant(Some(record.sent)) },
    Column { name: "received_us", of: Type::Int64, optional: true, value: |record| instant(record.received) },
    Column { name: "scheduled_us", of: Type::Int64, optional: true, value: |record| instant(record.scheduled) },
    Column { name: "first_token_us", of: Type::Int64, optional: true, value: |record| instant(record.first_token) },
    Column { name: "last_token_us", of: Type::Int64, optional: true, value: |record| instant(record.last_token) },
    Column { name: "prompt_tokens", of: Type::Int64, optional: false, value: |record| Cell::Count(record.prompt_tokens) },
    Column { name: "cached_tokens", of: Type::Int64, optional: false, value: |record| Cell::Count(record.cached_tokens) },
    Column { name: "output_tokens", of: Type::Int64, optional: false, value: |record| Cell::Count(record.output_tokens) },
    Column { name: "preemptions", of: Type::Int64, optional: false, value: |record| Cell::Count(record.preemptions.into()) },
    Column { name: "queue_delay_us", of: Type::Int64, optional: true, value: |record| optional(record.queue_delay_us()) },
    Column { name: "ttft_us", of: Type::Int64, optional: true, value: |record| optional(record.ttft_us()) },
    Column { name: "tpot_us", of: Type::Double, optional: true, value: |record| record.tpot_us().map_or(Cell::Absent, Cell::Real) },
    Column { name: "e2el_us", of: Type::Int64, optional: true, value: |record| optional(record.e2el_us()) },
];

fn instant(time: Option<SimTime>) -> Cell<'static> {
    optional(time.map(SimTime::as_micros))
}

fn optional(value: Option<u64>) -> Cell<'static> {
    value.map_or(Cell::Absent, Cell::Count)
}

/// Writes request records as they come.
#[derive(Debug)]
pub struct RequestWriter<W> {
    out: Out<W>,
    clients: Vec<String>,
    classes: Vec<String>,
    line: Vec<u8>,
}

/// What is written to, and how.
#[derive(Debug)]
enum Out<W> {
    Csv(W),
    Jsonl(W),
    Parquet(Table<W>),
}

impl<W: Write> RequestWriter<W> {
    /// Starts a file; `clients` are the names of the workload's clients in its order, `classes` their service classes.
    pub fn new(mut out: W, format: Format, clients: Vec<String>, classes: Vec<String>) -> io::Result<Self> {
        let out = match format {
            Format::Csv => {
                let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
                writeln!(out, "{}", names.join(","))?;
                Out::Csv(out)
            }
            Format::Jsonl => Out::Jsonl(out),
            Format::Parquet => {
                let columns = COLUMNS.iter().map(|column| parquet::Column { name: column.name, of: column.of, optional: column.optional });
                Out::Parquet(Table::new(out, columns.collect())?)
            }
        };
        Ok(Self { out, clients, classes, line: Vec::new() })
    }

    /// Writes one request.
    pub fn write(&mut self, record: &RequestRecord) -> io::Result<()> {
        let (clients, classes) = (&self.clients, &self.classes);
        let cells = COLUMNS.iter().map(|column| match (column.value)(record) {
            Cell::Client(client) => Cell::Text(&clients[client as usize]),
            Cell::Class(client) => Cell::Text(&classes[client as usize]),
            other @ (Cell::Absent | Cell::Flag(_) | Cell::Count(_) | Cell::Real(_) | Cell::Text(_)) => other,
        });
        self.line.clear();
        match &mut self.out {
            Out::Csv(out) => {
                for (index, cell) in cells.enumerate() {
                    csv(&mut self.line, index, &cell)?;
                }
                self.line.push(b'\n');
                out.write_all(&self.line)
            }
            Out::Jsonl(out) => {
                for (index, (column, cell)) in COLUMNS.iter().zip(cells).enumerate() {
                    json(&mut self.line, index, column.name, &cell)?;
                }
                self.line.extend_from_slice(b"}\n");
                out.write_all(&self.line)
            }
            Out::Parquet(table) => table.row(cells.map(|cell| match cell {
                Cell::Absent => Value::Absent,
                Cell::Flag(flag) => Value::Boolean(flag),
                Cell::Count(count) => Value::Int64(i64::try_from(count).expect("no count of a run has 64 bits")),
                Cell::Real(real) => Value::Double(real),
                Cell::Text(text) => Value::Text(text),
                Cell::Client(client) | Cell::Class(client) => Value::Int64(client.into()),
            })),
        }
    }

    /// Hands back what was written to, flushed.
    pub fn finish(self) -> io::Result<W> {
        match self.out {
            Out::Csv(mut out) | Out::Jsonl(mut out) => {
                out.flush()?;
                Ok(out)
            }
            Out::Parquet(table) => table.finish(),
        }
    }
}

fn csv(line: &mut Vec<u8>, index: usize, cell: &Cell<'_>) -> io::Result<()> {
    if index > 0 {
        line.push(b',');
    }
    match cell {
        Cell::Text(text) if text.contains([',', '"', '\n', '\r']) => write!(line, "\"{}\"", text.replace('"', "\"\"")),
        Cell::Text(text) => write!(line, "{text}"),
        Cell::Absent => Ok(()),
        plain @ (Cell::Client(_) | Cell::Class(_) | Cell::Flag(_) | Cell::Count(_) | Cell::Real(_)) => write_plain(line, plain),
    }
}

fn json(line: &mut Vec<u8>, index: usize, name: &str, cell: &Cell<'_>) -> io::Result<()> {
    write!(line, "{}\"{name}\":", if index == 0 { '{' } else { ',' })?;
    match cell {
        Cell::Text(text) => serde_json::to_writer(line, text).map_err(io::Error::from),
        Cell::Absent => write!(line, "null"),
        plain @ (Cell::Client(_) | Cell::Class(_) | Cell::Flag(_) | Cell::Count(_) | Cell::Real(_)) => write_plain(line, plain),
    }
}

fn write_plain(line: &mut Vec<u8>, cell: &Cell<'_>) -> io::Result<()> {
    match cell {
        Cell::Flag(value) => write!(line, "{value}"),
        Cell::Count(value) => write!(line, "{value}"),
        Cell::Client(value) | Cell::Class(value) => write!(line, "{value}"),
        Cell::Real(value) => write!(line, "{value}"),
        Cell::Absent | Cell::Text(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_contracts::fate::Fate;
    use blis_contracts::request::RequestId;

    fn completed() -> RequestRecord {
        let at = |micros| Some(SimTime::from_micros(micros));
        RequestRecord {
            id: RequestId(7),
            client: 1,
            index: 7,
            warm_up: false,
            fate: Fate::Completed,
            refusal: None,
            sent: SimTime::from_micros(100),
            received: at(110),
            scheduled: at(150),
            first_token: at(1_100),
            last_token: at(2_100),
            prompt_tokens: 512,
            cached_tokens: 16,
            output_tokens: 4,
            preemptions: 0,
        }
    }

    fn refused() -> RequestRecord {
        RequestRecord {
            fate: Fate::Refused,
            refusal: Some("prompt of 9,000 tokens, \"max_model_len\" is 8192".to_owned()),
            scheduled: None,
            first_token: None,
            last_token: None,
            output_tokens: 0,
            ..completed()
        }
    }

    fn writer(format: Format) -> RequestWriter<Vec<u8>> {
        let names = |one: &str, other: &str| vec![one.to_owned(), other.to_owned()];
        RequestWriter::new(Vec::new(), format, names("a", "chat, long"), names("default", "batch")).unwrap()
    }

    fn file(format: Format) -> String {
        let mut writer = writer(format);
        writer.write(&completed()).unwrap();
        writer.write(&refused()).unwrap();
        String::from_utf8(writer.finish().unwrap()).unwrap()
    }

    #[test]
    fn csv_has_a_header_and_quotes_what_needs_it() {
        let text = file(Format::Csv);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("client,slo_class,index,warm_up,fate,refusal,sent_us,"));
        assert_eq!(lines[1], "\"chat, long\",batch,7,false,completed,,100,110,150,1100,2100,512,16,4,0,40,1000,333.3333333333333,2000");
        assert_eq!(
            lines[2],
            "\"chat, long\",batch,7,false,refused,\"prompt of 9,000 tokens, \"\"max_model_len\"\" is 8192\",100,110,,,,512,16,0,0,,,,"
        );
    }

    #[test]
    fn a_parquet_file_names_the_same_columns() {
        let mut writer = writer(Format::Parquet);
        writer.write(&completed()).unwrap();
        writer.write(&refused()).unwrap();
        let bytes = writer.finish().unwrap();
        for column in COLUMNS {
            assert!(bytes.windows(column.name.len()).any(|window| window == column.name.as_bytes()), "{}", column.name);
        }
        assert_eq!(&bytes[bytes.len() - 4..], b"PAR1");
    }

    #[test]
    fn json_lines_hold_the_same_columns_with_nulls() {
        let text = file(Format::Jsonl);
        let header = file(Format::Csv);
        let names: Vec<&str> = header.lines().next().unwrap().split(',').collect();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        for line in &lines {
            assert!(names.iter().all(|name| line.get(name).is_some()), "{line}");
            assert_eq!(line.as_object().unwrap().len(), names.len());
        }
        assert_eq!((&lines[0]["ttft_us"], &lines[1]["ttft_us"]), (&serde_json::json!(1000), &serde_json::Value::Null));
        assert_eq!(lines[0]["client"], "chat, long");
    }
}
