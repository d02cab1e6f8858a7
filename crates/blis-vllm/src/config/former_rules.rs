//! What start-up of earlier releases derived otherwise where no setting says so, for measured runs of them; what they launched otherwise is in
//! `lowering/former.rs`.
//!
//! Each rule was read in the sources of the releases it names, and holds up to the last of them that had it. Left out: rules of
//! scheduling, which are the modelled release's for every run.

use std::collections::BTreeSet;

use super::formerly::Release;

const FUSE_SPANNING_NORMS: &str = "compilation_config.pass_config.fuse_minimax_qk_norm";

/// The rules of one release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseRules {
    /// How many scheduled tokens a window adds to what it looks back over, where the blocks of one request are counted.
    pub windows: WindowReach,
    /// How the tokens are counted that the KV cache holds.
    pub capacity: CapacityCount,
    /// What TensorRT-LLM's mxfp4 experts pad their width to. upstream: vllm
    /// `model_executor/layers/fused_moe/oracle/mxfp4.py::mxfp4_round_up_hidden_size_and_intermediate_size`
    pub trtllm_mxfp4_width: u64,
    /// What chips of the largest kinds are given where a line says nothing.
    pub large_chips: LargeChips,
    /// Whether the line asked for what releases that did not do so by default called `fuse_minimax_qk_norm`.
    pub(crate) fuses_spanning_norms: bool,
    /// The release, for what each kernel's own table says of releases; none for the modelled one.
    pub(crate) ran: Option<Release>,
}

/// Scheduled tokens that a layer with a window may keep beside the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowReach {
    /// Those of every step in flight.
    StepsInFlight,
    /// Those of one step.
    OneStep,
}

/// What is called the size of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityCount {
    /// The longest request's tokens, as often as such requests fit.
    LongestRequests,
    /// The tokens of one group's share of the blocks.
    BlocksOverGroups,
}

/// Defaults of chips with at least 160 GiB (tokens of a step) and of data-centre Blackwell (the largest captured graph).
/// upstream: vllm `engine/arg_utils.py::EngineArgs.get_batch_defaults`, `config/vllm.py::VllmConfig._set_cudagraph_sizes`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeChips {
    /// Those of other server chips.
    AsOthers,
    /// Twice as much.
    Twice,
}

impl ReleaseRules {
    /// Those of the modelled release.
    pub const MODELLED: Self = Self {
        windows: WindowReach::StepsInFlight,
        capacity: CapacityCount::LongestRequests,
        trtllm_mxfp4_width: 128,
        large_chips: LargeChips::Twice,
        fuses_spanning_norms: false,
        ran: None,
    };

    /// Those of a release, which ran a line whose spellings `without_effect` say nothing to the modelled one.
    pub(super) fn of(release: Release, without_effect: &BTreeSet<&str>) -> Self {
        let up_to = |last: [u32; 3]| release <= Release::new(last);
        Self {
            windows: if up_to([0, 25, 0]) { WindowReach::OneStep } else { WindowReach::StepsInFlight },
            capacity: if up_to([0, 18, 0]) { CapacityCount::BlocksOverGroups } else { CapacityCount::LongestRequests },
            trtllm_mxfp4_width: if up_to([0, 26, 0]) { 256 } else { Self::MODELLED.trtllm_mxfp4_width },
            large_chips: if up_to([0, 27, 0]) { LargeChips::AsOthers } else { LargeChips::Twice },
            fuses_spanning_norms: without_effect.contains(FUSE_SPANNING_NORMS),
            ran: Release::parse(crate::RELEASE).is_ok_and(|modelled| release < modelled).then_some(release),
        }
    }
}

impl Default for ReleaseRules {
    fn default() -> Self {
        Self::MODELLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_holds_up_to_the_last_release_that_had_it() {
        let of = |text| ReleaseRules::of(Release::parse(text).unwrap(), &BTreeSet::new());
        assert_eq!(of("0.18.0").capacity, CapacityCount::BlocksOverGroups);
        assert_eq!((of("0.22.0").capacity, of("0.25.0").windows), (CapacityCount::LongestRequests, WindowReach::OneStep));
        assert_eq!((of("0.26.0").windows, of("0.26.0").trtllm_mxfp4_width), (WindowReach::StepsInFlight, 256));
        assert_eq!((of("0.27.0").large_chips, of("0.28.0").large_chips), (LargeChips::AsOthers, LargeChips::Twice));
        assert_eq!(of(crate::RELEASE), ReleaseRules::MODELLED);
    }
}
