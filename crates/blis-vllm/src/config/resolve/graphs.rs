//! CUDA graphs: the token counts they are captured for, and which batches replay them.
//!
//! upstream: vllm `config/vllm.py::VllmConfig._set_cudagraph_sizes`,
//! `config/compilation.py::CompilationConfig.resolve_cudagraph_mode_and_sizes`.

use super::DraftWidths;
use crate::config::choices::{CudagraphMode, GraphSupport};
use crate::config::error::ConfigError;
use crate::sched::speculation::drafts_by_batch;

/// Most tokens of one graph: far beyond what any device captures, and near enough that a mistyped ceiling ends in an error.
const MAX_CAPTURE: u64 = 1 << 20;

/// What the capture sizes depend on.
#[derive(Debug, Clone)]
pub(super) struct Sizing<'a> {
    /// The stated ceiling, or the model family's own.
    pub(super) ceiling: Option<u64>,
    /// The stated sizes.
    pub(super) sizes: Option<&'a [u64]>,
    /// Requests of one step.
    pub(super) max_num_seqs: u64,
    /// Most drafts of one request.
    pub(super) drafts: u64,
    /// Tokens of one request in a decode that drafts, each with the most requests that have so many.
    pub(super) tiers: Vec<(u64, u64)>,
    /// Tokens of one step.
    pub(super) max_num_batched_tokens: u64,
    /// Whether the device captures further by default, as data-centre Blackwell does.
    pub(super) large: bool,
    /// Whether small batches are all captured.
    pub(super) interactivity: bool,
}

impl Sizing<'_> {
    /// The capture sizes, ascending.
    pub(super) fn capture_sizes(&self) -> Result<Vec<u64>, ConfigError> {
        let tokens = self.max_num_batched_tokens;
        let default_ceiling = if self.large { 1024 } else { 512 };
        let wanted = self.ceiling.unwrap_or_else(|| (self.max_num_seqs * (1 + self.drafts) * 2).min(default_ceiling));
        let ceiling = wanted.min(tokens);
        if ceiling < 1 {
            return Err(ConfigError::Inconsistent(format!(
                "max_cudagraph_capture_size should be at least 1 when CUDA graphs are used, got {ceiling}"
            )));
        }
        if ceiling > MAX_CAPTURE {
            return Err(ConfigError::Inconsistent(format!("max_cudagraph_capture_size {ceiling} should be at most {MAX_CAPTURE}")));
        }
        let mut sizes: Vec<u64> = match self.sizes {
            Some([]) => return Err(ConfigError::Inconsistent("cudagraph_capture_sizes should contain at least one size".to_owned())),
            Some(stated) => stated.iter().copied().filter(|size| *size <= tokens).collect(),
            None => self.grid(ceiling),
        };
        if self.sizes.is_none() && self.ceiling.is_none() {
            sizes.extend(self.decode_sizes(default_ceiling).into_iter().filter(|size| *size <= wanted && *size <= tokens));
        }
        sizes.sort_unstable();
        sizes.dedup();
        let largest = sizes.last().copied().unwrap_or(0);
        match (self.ceiling, self.sizes) {
            (Some(ceiling), Some(_)) if ceiling != largest => Err(ConfigError::Inconsistent(format!(
                "customized max_cudagraph_capture_size (={ceiling}) should be consistent with the max value of \
                 cudagraph_capture_sizes (={largest})"
            ))),
            _ => Ok(sizes),
        }
    }

    /// Tokens of decodes of so many requests as are captured.
    fn decode_sizes(&self, default_ceiling: u64) -> Vec<u64> {
        if self.drafts == 0 {
            return vec![self.max_num_seqs];
        }
        let requests = |most: u64| {
            let most = most.min(default_ceiling);
            let small = [1, 2, 4].into_iter().filter(move |count| *count <= most);
            small.chain((8..256.min(most + 1)).step_by(8)).chain((256..=most).step_by(16)).chain([most])
        };
        self.tiers.iter().flat_map(|(width, most)| requests(*most).map(move |count| count * width)).collect()
    }

    /// 1, 2, 4, then steps of 8 below 256 and of 16 from there; the step's own token count where it fits.
    fn grid(&self, ceiling: u64) -> Vec<u64> {
        let small: Vec<u64> = if self.interactivity { (1..=ceiling.min(32)).collect() } else { vec![1, 2, 4] };
        let mut sizes: Vec<u64> = small.into_iter().filter(|size| *size <= ceiling).collect();
        sizes.extend((8..256).step_by(8).filter(|size| *size <= ceiling));
        sizes.extend((256..=ceiling).step_by(16));
        if self.max_num_batched_tokens <= ceiling {
            sizes.push(self.max_num_batched_tokens);
        }
        sizes
    }
}

/// Tokens of one request in a decode that drafts, each with the most requests that have so many.
pub(super) fn decode_tiers(drafting: &DraftWidths, max_num_seqs: u64) -> Vec<(u64, u64)> {
    let widest = (u64::from(drafting.tokens) + 1, max_num_seqs);
    let ranges = drafting.by_batch.as_deref().zip(u32::try_from(max_num_seqs).ok());
    let Some(by_batch) = ranges.and_then(|(ranges, most)| drafts_by_batch(ranges, most, drafting.tokens)) else { return vec![widest] };
    let mut tiers: Vec<(u64, u64)> = Vec::new();
    for (requests, drafts) in (1..).zip(by_batch) {
        let width = u64::from(drafts) + 1;
        match tiers.iter_mut().find(|(known, _)| *known == width) {
            Some(tier) => tier.1 = requests,
            None => tiers.push((width, requests)),
        }
    }
    tiers
}

/// The mode after the attention backend's support is known; a mode it cannot serve at all is refused.
pub(super) fn with_support(mode: CudagraphMode, support: GraphSupport, splits_at_attention: bool) -> Result<CudagraphMode, ConfigError> {
    if mode == CudagraphMode::None {
        return Ok(mode);
    }
    let mut mode = mode;
    if mode.mixed() == CudagraphMode::Full && support != GraphSupport::Always {
        if support == GraphSupport::Never {
            return Err(ConfigError::Refused(format!(
                "cudagraph_mode {mode} is not supported by the attention backend (support: {support}); try cudagraph_mode=PIECEWISE"
            )));
        }
        mode = if splits_at_attention { CudagraphMode::FullAndPiecewise } else { CudagraphMode::FullDecodeOnly };
    }
    if mode.decode() == CudagraphMode::Full && support == GraphSupport::Never {
        mode = if splits_at_attention { CudagraphMode::Piecewise } else { CudagraphMode::None };
    }
    Ok(mode)
}
