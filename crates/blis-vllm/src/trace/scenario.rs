//! The oracle's scenario files.

use blis_contracts::request::{Segment, TokenSource};
use blis_contracts::strict::{Document, DocumentError, LineEndings};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::kv::events::TokenIds;

/// Bytes the device offers for KV where a scenario does not say.
const DEFAULT_KV_BYTES: u64 = 1 << 30;

/// A scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name, which is its file's.
    pub name: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Arguments of the engine, under upstream's names.
    pub engine_args: serde_json::Map<String, serde_json::Value>,
    /// The accelerator: a short name, or its properties.
    pub gpu: serde_json::Value,
    /// The model: a preset's name, or the content of its configuration, with or without a preset below it.
    pub model: serde_json::Value,
    /// Bytes the device offers for KV.
    pub kv_bytes: u64,
    /// How long a step takes.
    pub step_time: StepTime,
    /// Requests, in file order.
    pub requests: Vec<ScenarioRequest>,
    /// Aborts, in file order.
    pub aborts: Vec<ScenarioAbort>,
    /// Which drafts are right, where the engine drafts.
    pub speculation: Option<ScenarioProfile>,
    /// The first token of each text, shared ones and those of one request.
    pub tokens: TokenIds,
}

/// Which drafts are right.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioProfile {
    /// How often the draft at each position is right, in thousandths.
    pub accepted_permille: Vec<u32>,
    /// How often a grammar forbids a wrong draft, in thousandths.
    #[serde(default)]
    pub forbidden_permille: u32,
}

/// What a request's grammar needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioGrammar {
    /// How long it takes to compile, from the request's arrival, in microseconds.
    pub compile_us: u64,
    /// Whether it fails then.
    #[serde(default)]
    pub fails: bool,
}

/// How long a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTime {
    /// A step without tokens, in microseconds.
    pub base_us: u64,
    /// Each token, in microseconds.
    pub per_token_us: u64,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioRequest {
    /// Its name; a name may return once its bearer is gone.
    pub id: String,
    /// When it arrives, in microseconds.
    pub arrival_us: u64,
    /// Its prompt.
    pub prompt: Vec<Segment>,
    /// The most tokens it may generate.
    pub max_tokens: u32,
    /// The output token at which it stops by itself; at `max_tokens` it does not.
    pub output_length: u32,
    /// Its priority.
    pub priority: i32,
    /// The adapter it runs with.
    pub adapter: Option<u32>,
    /// The grammar its output follows.
    pub grammar: Option<ScenarioGrammar>,
}

/// An abort.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioAbort {
    /// The request's name.
    pub id: String,
    /// When it is given up, in microseconds.
    pub at_us: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    seed: u64,
    #[serde(default)]
    engine_args: serde_json::Map<String, serde_json::Value>,
    gpu: serde_json::Value,
    model: serde_json::Value,
    kv_bytes: Option<u64>,
    step_time: StepTime,
    requests: Vec<RequestRow>,
    #[serde(default)]
    aborts: Vec<ScenarioAbort>,
    speculation: Option<ScenarioProfile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestRow {
    id: String,
    arrival_us: u64,
    prompt: Vec<Piece>,
    max_tokens: u32,
    output_length: Option<u32>,
    #[serde(default)]
    priority: i32,
    adapter: Option<u32>,
    grammar: Option<ScenarioGrammar>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece {
    shared: Option<String>,
    length: Option<u32>,
    unique: Option<u32>,
}

impl Scenario {
    /// Reads a scenario from the bytes of its file.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, DocumentError> {
        let document = Document::parse(file, bytes, LineEndings::Lf)?;
        let read: File = document.decode()?;
        let mut engine_args = read.engine_args;
        engine_args.insert("seed".to_owned(), read.seed.into());
        let mut segments = Segments::default();
        let mut requests = Vec::new();
        for (index, row) in read.requests.iter().enumerate() {
            let mut prompt = Vec::new();
            for (piece_index, piece) in row.prompt.iter().enumerate() {
                let place = format!("requests[{index}].prompt[{piece_index}]");
                prompt.push(segments.segment(piece, row.adapter).map_err(|message| document.error_at(&place, message))?);
            }
            let output_length = row.output_length.unwrap_or(row.max_tokens);
            if row.max_tokens == 0 || !(1..=row.max_tokens).contains(&output_length) {
                let place = format!("requests[{index}].max_tokens");
                return Err(
                    document.error_at(&place, format!("{output_length} output tokens of at most {}; expected at least 1", row.max_tokens))
                );
            }
            requests.push(ScenarioRequest {
                id: row.id.clone(),
                arrival_us: row.arrival_us,
                prompt,
                max_tokens: row.max_tokens,
                output_length,
                priority: row.priority,
                adapter: row.adapter,
                grammar: row.grammar,
            });
        }
        Ok(Self {
            name: read.name,
            sha256: hex(&Sha256::digest(bytes)),
            engine_args,
            gpu: read.gpu,
            model: read.model,
            kv_bytes: read.kv_bytes.unwrap_or(DEFAULT_KV_BYTES),
            step_time: read.step_time,
            requests,
            aborts: read.aborts,
            speculation: read.speculation,
            tokens: segments.ids,
        })
    }
}

/// Numbers segments: one for each shared name under each adapter, whose entries nobody else can use, and one for each unique piece.
#[derive(Debug, Default)]
struct Segments {
    shared: Vec<(String, Option<u32>)>,
    unique: u64,
    /// Texts that have a number.
    texts: u32,
    ids: TokenIds,
}

impl Segments {
    fn segment(&mut self, piece: &Piece, adapter: Option<u32>) -> Result<Segment, String> {
        let (source, length) = match (&piece.shared, piece.length, piece.unique) {
            (Some(name), Some(length), None) => (self.shared(name, adapter), length),
            (None, None, Some(length)) => {
                let first = self.next_id();
                self.ids.unique.push(first);
                self.unique += 1;
                (TokenSource::Unique(self.unique - 1), length)
            }
            (Some(_) | None, _, _) => return Err("expected `{shared: NAME, length: N}` or `{unique: N}`".to_owned()),
        };
        if length == 0 {
            return Err("a piece has at least one token".to_owned());
        }
        Ok(Segment { source, length })
    }

    /// The first token of a text that has no number yet; `oracle/FORMAT.md` defines the numbers.
    fn next_id(&mut self) -> u32 {
        self.texts += 1;
        16 + ((self.texts - 1) << 16)
    }

    fn shared(&mut self, name: &str, adapter: Option<u32>) -> TokenSource {
        let known = self.shared.iter().position(|shared| shared.0 == name && shared.1 == adapter).unwrap_or_else(|| {
            let same = self.shared.iter().position(|shared| shared.0 == name).map(|text| self.ids.shared[text]);
            let first = same.unwrap_or_else(|| self.next_id());
            self.ids.shared.push(first);
            self.shared.push((name.to_owned(), adapter));
            self.shared.len() - 1
        });
        TokenSource::Shared(u32::try_from(known).expect("a scenario shares fewer than 2^32 texts"))
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}
