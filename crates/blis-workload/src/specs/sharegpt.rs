//! ShareGPT conversations: the lengths of first turns and their answers, from characters by a stated ratio.
//!
//! Counting tokens needs the tokenizer of a model, which this program does not have; a user who knows it states characters per token.
//! As in the benchmark of vLLM only the first two turns count, and pairs with under 4 tokens in either, over 1,024 in the prompt or over
//! 2,048 together are left out. Files say nothing of arrivals, so the client's are the user's.

use std::fmt;

use blis_contracts::scenario::{Arrival, PairOrder, PairedLengths, Rate};
use blis_contracts::strict::{DocumentError, DocumentErrors};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::{Converted, plain};

/// Tokens that a prompt or an answer has at least.
const LEAST: u32 = 4;

/// Tokens that a prompt has at most.
const MOST_PROMPT: u32 = 1024;

/// Tokens that both have at most.
const MOST: u32 = 2048;

/// What a file does not say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShareGpt {
    /// Characters of a token.
    pub characters_per_token: f64,
    /// Requests per second, of a Poisson process.
    pub rate: f64,
}

#[derive(Debug, Deserialize)]
struct Conversation {
    #[serde(alias = "conversation")]
    conversations: Vec<Turn>,
}

/// What one side says, or, in some files, what both say in turn.
#[derive(Debug, Deserialize)]
struct Turn {
    #[serde(alias = "content")]
    value: Option<String>,
    #[serde(alias = "human")]
    user: Option<String>,
    #[serde(alias = "gpt")]
    assistant: Option<String>,
}

impl Conversation {
    /// What is said, in order; refuses a turn in which nothing is.
    fn texts(&self) -> Result<Vec<&str>, String> {
        let mut texts = Vec::new();
        for (index, turn) in self.conversations.iter().enumerate() {
            let said = [&turn.value, &turn.user, &turn.assistant].into_iter().flatten().map(String::as_str);
            let before = texts.len();
            texts.extend(said);
            if texts.len() == before {
                return Err(format!("turn {index} has no `value`, `content`, `user` or `assistant` that says something"));
            }
        }
        Ok(texts)
    }
}

/// Reads a file, conversation by conversation; `file` names it in errors.
pub fn read_sharegpt(file: &str, input: impl std::io::Read, unsaid: ShareGpt) -> Result<Converted, DocumentErrors> {
    let mut pairs = Pairs { unsaid, kept: Vec::new(), read: 0 };
    let mut reader = serde_json::Deserializer::from_reader(input);
    let read = reader.deserialize_seq(&mut pairs).and_then(|()| reader.end());
    read.map_err(|error| DocumentErrors::from(DocumentError::whole(file, format!("is not a list of conversations: {error}"))))?;
    let Pairs { kept, read, .. } = pairs;
    if kept.is_empty() {
        let message = format!("holds {read} conversations and none whose first turns have from {LEAST} to {MOST} tokens");
        return Err(DocumentError::whole(file, message).into());
    }
    let notes = vec![
        format!("{} of {read} conversations are kept; lengths are characters divided by {}", kept.len(), unsaid.characters_per_token),
        "arrivals are not in the file: the rate is the one stated".to_owned(),
    ];
    let stop = Some(format!("{{requests: {}}}", kept.len()));
    let mut client = plain("sharegpt", Arrival::Poisson(Rate { rate: unsaid.rate }), None, None);
    client.lengths = Some(PairedLengths { pairs: kept, order: PairOrder::Listed });
    Converted::of(file, vec![client], stop, notes)
}

/// The pairs of a file, gathered while it is read.
struct Pairs {
    unsaid: ShareGpt,
    kept: Vec<[u32; 2]>,
    read: u64,
}

impl<'de> Visitor<'de> for &mut Pairs {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of conversations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(conversation) = items.next_element::<Conversation>()? {
            self.read += 1;
            let wrong = |message| serde::de::Error::custom(format!("conversation {}: {message}", self.read - 1));
            let texts = conversation.texts().map_err(wrong)?;
            let [prompt, answer, ..] = texts[..] else { continue };
            let tokens = |text: &str| tokens(text, self.unsaid.characters_per_token);
            let (prompt, answer) = (tokens(prompt), tokens(answer));
            if prompt >= LEAST && answer >= LEAST && prompt <= MOST_PROMPT && prompt.saturating_add(answer) <= MOST {
                self.kept.push([prompt, answer]);
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a number that is not negative saturates")]
fn tokens(text: &str, characters_per_token: f64) -> u32 {
    libm::ceil(text.chars().count() as f64 / characters_per_token) as u32
}
