//! From a model graph, a resolved configuration and a chip to the plan the cost model prices.
//!
//! Upstream decides on kernels while it builds the model, layer by layer; here each decision is a table of rows tried in order, one
//! file per primitive: [`linear`], [`experts`], [`attention`], [`latent`], [`recurrent`], [`mamba2`], [`llama4`], [`gemma4`],
//! [`collective`], [`exchange`], [`elementwise`]. Their answers become the layers of one forward pass ([`pass`], [`feed_forward`]), over
//! parts of the tokens where ranks divide them ([`parts`]), the weights after fusing, sharding and padding ([`weights`]) and the buffers
//! the engine keeps ([`buffers`]). The names of kernels stand in [`names`].
//!
//! What comes out is partial: it has no KV budget yet, because that is sized from the memory this plan takes.
//!
//! Left out: context parallelism, speculation and adapters, which the configuration refuses; models whose layers do not have one norm before
//! each of their parts, Gemma 4 apart.

mod attention;
mod block_sparse;
mod buffers;
mod collective;
mod compressed;
mod compressed_kv;
mod dependents;
mod elementwise;
mod exchange;
mod experts;
mod feed_forward;
mod former;
mod gemma4;
mod kv;
mod latent;
mod linear;
mod llama4;
mod mamba2;
mod names;
mod narrowed;
mod parts;
mod pass;
mod pool;
mod recurrent;
mod selected;
mod site;
mod stages;
mod weights;

#[cfg(test)]
mod tests;

use std::ops::Range;

use blis_contracts::chip::Chip;
use blis_contracts::model::ModelGraph;
use blis_contracts::plan::PoolPlan;

use crate::config::Resolved;
use crate::kv_sizing::KvSizingError;

pub use kv::layers as kv_layers;
pub use names::{KERNELS, KernelName};

/// A configuration that cannot be lowered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoweringError {
    /// Upstream finds no kernel.
    #[error(
        "{what} stored as {format}: upstream finds no kernel on compute capability {}.{}; serve a checkpoint stored otherwise, or on \
         another chip",
        capability.0, capability.1
    )]
    NoKernel {
        /// The layer.
        what: &'static str,
        /// Weights and activations.
        format: String,
        /// Of the chip.
        capability: (u32, u32),
    },
    /// The backend the line names cannot serve the layer.
    #[error(
        "{asked}: the backend does not support experts stored as {format} on compute capability {}.{}; leave it out",
        capability.0, capability.1
    )]
    ExpertsBackend {
        /// As the line asks for it.
        asked: String,
        /// Weights and activations.
        format: String,
        /// Of the chip.
        capability: (u32, u32),
    },
    /// A width that the ranks cannot share.
    #[error("{what} of {size} cannot be shared by {} ranks; {}", ranks * cores, divisor(*cores))]
    Indivisible {
        /// The width.
        what: &'static str,
        /// Its size.
        size: u64,
        /// Tensor-parallel ranks.
        ranks: u32,
        /// Engine cores whose ranks share it as well; 1 for none.
        cores: u32,
    },
    /// What the exchange of tokens that the line asks for meets here.
    #[error("--all2all-backend {backend}: {reason}, which is not modelled; leave it out")]
    Exchange {
        /// As the line names it.
        backend: &'static str,
        /// What it meets.
        reason: String,
    },
    /// Something about the model that is not modelled.
    #[error("the model `{model}` {reason}, which is not modelled{}{instead}", if instead.is_empty() { "" } else { "; " })]
    NotModelled {
        /// The catalog name.
        model: String,
        /// What it has.
        reason: String,
        /// What to change of the launch line; empty where nothing would help.
        instead: &'static str,
    },
    /// The layers' KV caches cannot be grouped.
    #[error(transparent)]
    Kv(#[from] KvSizingError),
}

/// Which sizes of a launch line would share a width.
fn divisor(cores: u32) -> &'static str {
    if cores == 1 {
        "state a --tensor-parallel-size that divides it"
    } else {
        "state a --tensor-parallel-size and a --data-parallel-size whose product divides it, or --enable-expert-parallel"
    }
}

/// Lowers a model: everything of the plan but its KV budget and blocks.
pub fn lower(model: &ModelGraph, resolved: &Resolved, chip: &Chip) -> Result<PoolPlan, LoweringError> {
    let site = site::Site::new(model, resolved, chip)?;
    stages::check(&site)?;
    pool::plan(&site)
}

/// A plan of a pipeline as each stage alone holds it: its own layers and weights. One plan where there is one stage.
pub fn stages(
    plan: &PoolPlan,
    model: &ModelGraph,
    resolved: &Resolved,
    chip: &Chip,
) -> Result<Vec<(PoolPlan, Range<usize>)>, LoweringError> {
    let site = site::Site::new(model, resolved, chip)?;
    let stage = |(stage, layers): (u32, Range<usize>)| {
        let mut own = plan.clone();
        own.layers.retain(|layer| layer.stage == stage);
        // The plan has the weights of the first stage.
        if stage > 0 {
            own.weights = weights::resident(&site, stage)?;
        }
        Ok((own, layers))
    };
    (0..).zip(stages::layers(&site)).map(stage).collect()
}
