//! A scenario's speculative configuration and adapters: what the tracer knows of them, and what follows.
//!
//! upstream: vllm `config/speculative.py::SpeculativeConfig`, `config/vllm.py::VllmConfig.num_lookahead_tokens`,
//! `v1/core/kv_cache_utils.py::_annotate_eagle_groups`
//!
//! The models that draft are the oracle's presets; their layers stand behind the target's. Left out, and refused: methods that run on
//! the first model runner (suffix, medusa, `mlp_speculator`, classes of one's own, drafting in parallel), extraction of hidden states.

use serde_json::{Map, Value};

use super::model;
use super::scenario::Scenario;
use super::setup::{HeaderSpeculation, SetupError};
use crate::config::{DraftWidths, Resolved};
use crate::kv::group::Attention;
use crate::kv_sizing::{LayerKv, SizedKv};
use crate::sched::speculation::{Profile, Speculation, drafts_by_batch};

/// The argument that only the tracer takes.
pub(super) const ARGUMENT: &str = "speculative_config";

/// How drafts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ngram,
    NgramGpu,
    Eagle,
    Eagle3,
    Mtp,
    DraftModel,
    Dflash,
    Dspark,
}

impl Kind {
    const ALL: [Self; 8] =
        [Self::Ngram, Self::NgramGpu, Self::Eagle, Self::Eagle3, Self::Mtp, Self::DraftModel, Self::Dflash, Self::Dspark];

    const fn name(self) -> &'static str {
        match self {
            Self::Ngram => "ngram",
            Self::NgramGpu => "ngram_gpu",
            Self::Eagle => "eagle",
            Self::Eagle3 => "eagle3",
            Self::Mtp => "mtp",
            Self::DraftModel => "draft_model",
            Self::Dflash => "dflash",
            Self::Dspark => "dspark",
        }
    }

    /// Whether it drafts from the target's hidden states.
    const fn reads_hidden_states(self) -> bool {
        matches!(self, Self::Eagle | Self::Eagle3 | Self::Mtp | Self::Dflash | Self::Dspark)
    }

    /// Windows of its layers; the model of an MTP scenario says how many there are.
    fn draft_layers(self, draft: Option<&str>, prediction_layers: u32) -> Result<Vec<Option<u32>>, SetupError> {
        let layers = match (self, draft) {
            (Self::Ngram | Self::NgramGpu, None) => Vec::new(),
            (Self::Mtp, None) if prediction_layers > 0 => vec![None; prediction_layers as usize],
            (Self::Mtp, None) => return Err(SetupError::speculation(".method: the model has no num_nextn_predict_layers")),
            (Self::Eagle | Self::Eagle3 | Self::DraftModel, Some("tiny-draft"))
            | (Self::Dspark, Some("tiny-dspark" | "tiny-dspark-fill")) => vec![None],
            (Self::Dflash, Some("tiny-dflash")) => vec![None; 2],
            (Self::Dflash, Some("tiny-dflash-window")) => vec![Some(40), None],
            (_, draft) => {
                let message = format!(".model: {} with {draft:?} is not known here; the oracle's presets are in scenario.py", self.name());
                return Err(SetupError::speculation(message));
            }
        };
        Ok(layers)
    }
}

/// A speculative configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Method {
    kind: Kind,
    tokens: u8,
    by_batch: Option<Vec<(u32, u32, u8)>>,
    drops_blocks: bool,
    padded_batch: bool,
    /// Drafts begin with a token that is known, in a slot of its own.
    fills_in: bool,
    /// The windows of the layers that draft.
    windows: Vec<Option<u32>>,
}

/// The speculative configuration of a scenario; what it holds that the tracer does not know is refused by name.
pub(super) fn read(stated: Option<Value>, scenario: &Scenario) -> Result<Option<Method>, SetupError> {
    let stated = match (stated, &scenario.speculation) {
        (Some(Value::Object(stated)), Some(_)) => stated,
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(SetupError::speculation(": expected a map")),
        (Some(_), None) | (None, Some(_)) => {
            return Err(SetupError::speculation(": stands beside `speculation`, and only there"));
        }
    };
    let known = [
        "method",
        "model",
        "num_speculative_tokens",
        "num_speculative_tokens_per_batch_size",
        "disable_eagle_block_drop",
        "disable_padded_drafter_batch",
        "prompt_lookup_min",
        "prompt_lookup_max",
    ];
    if let Some(key) = stated.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(SetupError::speculation(format!(".{key} is not modelled; known are {}", known.join(", "))));
    }
    let named = stated.get("method").and_then(Value::as_str).unwrap_or_default();
    // Upstream's names of single families all mean the one method.
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == named || (*kind == Kind::Mtp && named.ends_with("_mtp")));
    let kind = kind.ok_or_else(|| {
        let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        SetupError::speculation(format!(".method: {named:?} is not modelled; known are {}", known.join(", ")))
    })?;
    let draft = stated.get("model").and_then(Value::as_str);
    Ok(Some(Method {
        kind,
        tokens: tokens(&stated)?,
        by_batch: stated.get("num_speculative_tokens_per_batch_size").map(ranges).transpose()?,
        drops_blocks: kind.reads_hidden_states() && !flag(&stated, "disable_eagle_block_drop")?,
        padded_batch: !flag(&stated, "disable_padded_drafter_batch")?,
        fills_in: kind == Kind::Dflash || draft == Some("tiny-dspark-fill"),
        windows: kind.draft_layers(draft, model::prediction_layers(&scenario.model)?)?,
    }))
}

fn tokens(stated: &Map<String, Value>) -> Result<u8, SetupError> {
    let value = stated.get("num_speculative_tokens").cloned().unwrap_or_default();
    let tokens = value.as_u64().and_then(|tokens| u8::try_from(tokens).ok()).filter(|tokens| (1..=MOST_DRAFTS).contains(tokens));
    tokens.ok_or_else(|| SetupError::speculation(format!(".num_speculative_tokens: {value}; expected 1 to {MOST_DRAFTS}")))
}

/// Most drafts of one request: the draws of a profile have places for so many.
const MOST_DRAFTS: u8 = 64;

fn flag(stated: &Map<String, Value>, key: &str) -> Result<bool, SetupError> {
    match stated.get(key) {
        None => Ok(false),
        Some(Value::Bool(set)) => Ok(*set),
        Some(other) => Err(SetupError::speculation(format!(".{key}: {other}; expected true or false"))),
    }
}

fn ranges(stated: &Value) -> Result<Vec<(u32, u32, u8)>, SetupError> {
    let wrong = || SetupError::speculation(".num_speculative_tokens_per_batch_size: expected [[first, last, drafts], ...] from 1 on");
    let range = |range: &Value| {
        let number = |index: usize| range.get(index).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        Some((number(0)?, number(1)?, u8::try_from(number(2)?).ok()?))
    };
    stated.as_array().and_then(|rows| rows.iter().map(range).collect::<Option<Vec<_>>>()).ok_or_else(wrong)
}

/// Most adapters of one step, where the engine serves any.
pub(super) fn adapters(args: &mut Map<String, Value>, scenario: &Scenario) -> Result<Option<u32>, SetupError> {
    let enabled = args.remove("enable_lora").is_some_and(|value| value == Value::Bool(true));
    let most = args.remove("max_loras").unwrap_or(Value::from(1));
    if !enabled {
        let asked = scenario.requests.iter().find(|request| request.adapter.is_some());
        return asked.map_or(Ok(None), |request| Err(SetupError::Requests(format!("{} has an adapter without enable_lora", request.id))));
    }
    let count = most.as_u64().and_then(|most| u32::try_from(most).ok()).filter(|most| *most > 0);
    count.map(Some).ok_or_else(|| SetupError::Adapters(format!("max_loras: {most}; expected at least 1")))
}

/// Refuses what upstream refuses, and what the tracer does not follow.
pub(super) fn check(method: Option<&Method>, max_loras: Option<u32>, resolved: &Resolved, scenario: &Scenario) -> Result<(), SetupError> {
    let cores = resolved.data_parallel.size;
    let staged = resolved.scheduler.pipeline_stages > 1;
    if scenario.requests.iter().any(|request| request.grammar.is_some()) && (cores > 1 || staged) {
        return Err(SetupError::Requests("grammars are followed on a single core without a pipeline only".to_owned()));
    }
    let Some(method) = method else { return Ok(()) };
    let scheduler = &resolved.scheduler;
    let width = u64::from(method.tokens) + 1;
    let message = if resolved.cache.states.is_some() {
        ": drafting beside layers that keep states (MambaManager) is not modelled".to_owned()
    } else if staged {
        ": drafting in a pipeline is not modelled".to_owned()
    } else if method.by_batch.is_some() && cores > 1 {
        ".num_speculative_tokens_per_batch_size: upstream drops it with data parallelism".to_owned()
    } else if (1..width).contains(&scheduler.long_prefill_token_threshold) {
        ": upstream stops at an assertion where long_prefill_token_threshold is narrower than a decode with its drafts".to_owned()
    } else if scheduler.max_num_batched_tokens <= u64::from(method.draft_slots()) {
        ": there are not enough slots to schedule a token and its drafts; raise max_num_batched_tokens".to_owned()
    } else if max_loras.is_some() && scheduler.max_num_batched_tokens < scheduler.max_num_seqs * width {
        ": consider increasing max_num_batched_tokens or decreasing num_speculative_tokens".to_owned()
    } else {
        return Ok(());
    };
    Err(SetupError::Speculation(message))
}

impl Method {
    /// What start-up's rules read.
    pub(super) fn widths(&self) -> DraftWidths {
        let asynchronous = self.kind != Kind::Ngram && self.padded_batch;
        DraftWidths { tokens: self.tokens, asynchronous, by_batch: self.by_batch.clone() }
    }

    /// The caches of the layers that draft, behind those of the target.
    pub(super) fn layers(&self, target: &[LayerKv]) -> Vec<LayerKv> {
        let name = |index: usize| match self.kind {
            Kind::DraftModel => format!("draft_model.model.layers.{index}.self_attn.attn"),
            Kind::Ngram | Kind::NgramGpu | Kind::Eagle | Kind::Eagle3 | Kind::Mtp | Kind::Dflash | Kind::Dspark => {
                format!("model.layers.{}.self_attn.attn", target.len() + index)
            }
        };
        let layer = |(index, window): (usize, &Option<u32>)| LayerKv {
            name: name(index),
            attention: window.map_or(Attention::Full, |window| Attention::SlidingWindow { window }),
            // The drafter has the target's heads.
            ..target[0].clone()
        };
        self.windows.iter().enumerate().map(layer).collect()
    }

    const fn lookahead(&self) -> u32 {
        match self.kind {
            Kind::Ngram | Kind::NgramGpu => 0,
            Kind::Eagle | Kind::Eagle3 | Kind::Mtp | Kind::DraftModel | Kind::Dflash | Kind::Dspark => {
                self.tokens as u32 + self.fills_in as u32
            }
        }
    }

    fn prefill_lookahead(&self) -> u32 {
        let several = self.kind == Kind::Mtp && self.windows.len().min(usize::from(self.tokens)) > 1;
        if several { self.tokens.into() } else { u32::from(self.kind.reads_hidden_states()) }
    }

    const fn draft_slots(&self) -> u32 {
        match self.kind {
            Kind::Ngram | Kind::NgramGpu | Kind::Eagle | Kind::Eagle3 | Kind::Mtp => 0,
            Kind::DraftModel => 1,
            Kind::Dflash => self.tokens as u32,
            Kind::Dspark => self.tokens as u32 - 1,
        }
    }

    /// How the engine drafts, once its cache is sized.
    pub(super) fn speculation(&self, resolved: &Resolved, sized: &SizedKv, scenario: &Scenario) -> Result<Speculation, SetupError> {
        let profile = scenario.speculation.as_ref().ok_or_else(|| SetupError::speculation(": there is no profile"))?;
        let seed = scenario.engine_args.get("seed").and_then(Value::as_u64).unwrap_or(0);
        let prefill_lookahead = self.prefill_lookahead();
        let config = &sized.config;
        if prefill_lookahead > 1 && config.groups.iter().any(|group| group.attention != Attention::Full) {
            return Err(SetupError::speculation(": several drafting modules over a window are not modelled"));
        }
        if self.drops_blocks && config.enable_prefix_caching && config.block_size < prefill_lookahead {
            let message = format!(
                ": multi-module MTP with prefix caching requires scheduler_block_size (={}) >= num_speculative_tokens (={prefill_lookahead})",
                config.block_size
            );
            return Err(SetupError::Speculation(message));
        }
        let seqs = u32::try_from(resolved.scheduler.max_num_seqs).unwrap_or(u32::MAX);
        let invalid = || SetupError::speculation(".num_speculative_tokens_per_batch_size: ranges must be apart and begin at 1");
        let by_batch = self.by_batch.as_ref().map(|ranges| drafts_by_batch(ranges, seqs, self.tokens).ok_or_else(invalid)).transpose()?;
        Ok(Speculation {
            tokens: self.tokens,
            lookahead: self.lookahead(),
            prefill_lookahead,
            draft_slots: self.draft_slots(),
            drops: self.drops(sized),
            by_batch,
            profile: Profile { seed, accepted_permille: profile.accepted_permille.clone(), forbidden_permille: profile.forbidden_permille },
        })
    }

    /// The groups that leave out the last block of a hit: that of the last layer where drafting layers are known to come last, else all.
    fn drops(&self, sized: &SizedKv) -> Vec<bool> {
        let last = sized.groups.iter().flat_map(|group| group.layers.iter().copied()).max();
        let drops = |layers: &[usize]| self.drops_blocks && (self.kind != Kind::Mtp || last.is_some_and(|last| layers.contains(&last)));
        sized.groups.iter().map(|group| drops(&group.layers)).collect()
    }

    /// As a trace's header states it.
    pub(super) fn header(&self, speculation: &Speculation) -> HeaderSpeculation {
        HeaderSpeculation {
            method: self.kind.name(),
            tokens: speculation.tokens,
            lookahead: speculation.lookahead,
            prefill_lookahead: speculation.prefill_lookahead,
            draft_slots: speculation.draft_slots,
            drop_groups: (0..).zip(&speculation.drops).filter(|(_, drops)| **drops).map(|(index, _)| index).collect(),
            by_batch: speculation.by_batch.clone(),
        }
    }
}
