//! The cost model: one chip's figures and coefficients, the network between nodes, and the routing balance of the workload.
//!
//! It resolves nothing: kernels, padding, capture and buffers arrive in the plan. It answers with a compiled plan to price steps
//! by, with the memory a plan takes before any KV, and with what lies between client and engine.

use blis_contracts::chip::Chip;
use blis_contracts::environment::MemoryBreakdown;
use blis_contracts::network::Network;
use blis_contracts::part::Part;
use blis_contracts::plan::{LoweredLayer, PoolPlan, Primitive, PrimitiveShape, RowRange, RowSet};
use blis_registry::ChipCoefficients;

use crate::attention::Attention;
use crate::compiled::{CompiledPlan, Stage, Work};
use crate::error::CompileError;
use crate::figures::Figures;
use crate::host::{FrontEndPrice, HostTerms};
use crate::launch::Launches;
use crate::memory;
use crate::operation::{Operation, Surroundings};
use crate::routing::RoutingBalance;
use crate::sparse::SparseClass;
use crate::table::Table;

/// Prices plans on one chip.
#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    figures: Figures,
    coefficients: ChipCoefficients,
    balance: RoutingBalance,
    /// The network's catalog name; empty where there is none.
    fabric: String,
}

impl CostModel {
    /// A cost model from a chip's facts, its coefficients and the balance of the workload.
    pub fn new(chip: &Chip, coefficients: ChipCoefficients, balance: RoutingBalance) -> Self {
        Self { figures: Figures::of(chip), coefficients, balance, fabric: String::new() }
    }

    /// The same for nodes with a network between them.
    #[must_use]
    pub fn on_network(self, network: &Network) -> Self {
        Self { figures: self.figures.with_network(network), fabric: network.name.clone(), ..self }
    }

    /// The chip's figures.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The coefficients it prices by.
    pub fn coefficients(&self) -> &ChipCoefficients {
        &self.coefficients
    }

    /// Prepares a plan: identical layers are merged, every coefficient is looked up once.
    pub fn compile(&self, plan: &PoolPlan) -> Result<CompiledPlan, CompileError> {
        self.check_chip(plan)?;
        if !plan.fabric.is_empty() && plan.fabric != self.fabric {
            return Err(CompileError::OtherNetwork { plan: plan.fabric.clone(), model: self.fabric.clone() });
        }
        let stages = plan.layout.pipeline.max(1);
        if let Some(stray) = plan.layers.iter().find(|layer| layer.stage >= stages) {
            return Err(CompileError::Stage { primitive: stray.primitive.as_str(), stage: stray.stage, stages });
        }
        let stages = (0..stages).map(|stage| self.stage(plan, stage)).collect::<Result<_, _>>()?;
        let launches = Launches::new(&plan.graphs, &self.coefficients)?;
        Ok(CompiledPlan::new(stages, launches, HostTerms::new(&plan.host, &self.coefficients)?))
    }

    /// Memory of one rank before any KV is allocated.
    pub fn memory(&self, plan: &PoolPlan) -> Result<MemoryBreakdown, CompileError> {
        self.check_chip(plan)?;
        memory::breakdown(plan, &self.coefficients)
    }

    /// What lies between client and engine.
    pub fn front_end(&self, plan: &PoolPlan) -> Result<FrontEndPrice, CompileError> {
        self.check_chip(plan)?;
        FrontEndPrice::of(&plan.front_end, &self.coefficients)
    }

    fn check_chip(&self, plan: &PoolPlan) -> Result<(), CompileError> {
        let model = self.coefficients.chip();
        if plan.hardware == model {
            return Ok(());
        }
        Err(CompileError::OtherChip { plan: plan.hardware.clone(), model: model.to_owned() })
    }

    fn stage(&self, plan: &PoolPlan, stage: u32) -> Result<Stage, CompileError> {
        let mut by_part: Vec<(Part, Vec<(&LoweredLayer, u32)>)> = Vec::new();
        for (layer, count) in merged(plan.layers.iter().filter(|layer| layer.stage == stage)) {
            match by_part.iter_mut().find(|(part, _)| *part == layer.part) {
                Some((_, layers)) => layers.push((layer, count)),
                None => by_part.push((layer.part, vec![(layer, count)])),
            }
        }
        let works = by_part.into_iter().map(|(part, layers)| Ok((part, self.work(plan, layers)?))).collect::<Result<_, CompileError>>()?;
        Ok(Stage { works, dense_prompts: plan.dense_prompts, sharing: plan.layout.tensor.max(1) })
    }

    /// The work of one part of a step.
    fn work(&self, plan: &PoolPlan, layers: Vec<(&LoweredLayer, u32)>) -> Result<Work, CompileError> {
        let (mut rows, mut decode, mut prefill): (Vec<(RowSet, Vec<Operation>)>, _, _) = (vec![], vec![], vec![]);
        let mut sparse = Vec::new();
        let (coefficients, figures, balance, layout) = (&self.coefficients, &self.figures, self.balance, plan.layout);
        let around = Surroundings { coefficients, figures, balance, layout };
        for (layer, count) in layers {
            if let Some(prompts) = reads_lists(layer.primitive) {
                if !fits(layer) {
                    return Err(misfit(layer));
                }
                let operation = Operation::new(layer, count, &around)?;
                sparse.push(SparseClass::new(operation, prompts));
                continue;
            }
            let target = match (layer.primitive, layer.rows) {
                (Primitive::AttentionDecode | Primitive::LatentDecode, RowSet::Requests) => &mut decode,
                (
                    Primitive::AttentionPrefill | Primitive::LatentPrefill | Primitive::RecurrentPrefill | Primitive::RecurrentScan,
                    RowSet::Requests,
                ) => &mut prefill,
                (_, RowSet::Requests) => return Err(misfit(layer)),
                (_, set) => {
                    let known = rows.iter().position(|(other, _)| *other == set).unwrap_or(rows.len());
                    if known == rows.len() {
                        rows.push((set, Vec::new()));
                    }
                    &mut rows[known].1
                }
            };
            if !fits(layer) {
                return Err(misfit(layer));
            }
            if !stays_on_rank(layer) {
                target.push(Operation::new(layer, count, &around)?);
            }
        }
        let rows = rows.into_iter().map(|(set, operations)| (set, Table::new(operations))).collect();
        Ok(Work { rows, attention: Attention::new(decode, prefill, sparse, self.figures.processors) })
    }
}

/// Classes of identical work with their counts, in the order of their first occurrence.
fn merged<'a>(layers: impl Iterator<Item = &'a LoweredLayer>) -> Vec<(&'a LoweredLayer, u32)> {
    let mut classes: Vec<(&LoweredLayer, u32)> = Vec::new();
    for layer in layers {
        let same = |other: &LoweredLayer| {
            other.primitive == layer.primitive
                && other.shape == layer.shape
                && other.part == layer.part
                && other.rows == layer.rows
                && other.runs_for == layer.runs_for
                && other.start == layer.start
                && other.kernel == layer.kernel
        };
        match classes.iter_mut().find(|(other, _)| same(other)) {
            Some((_, count)) => *count += 1,
            None => classes.push((layer, 1)),
        }
    }
    classes
}

/// Whether the shape is one its primitive has, over rows it can read.
fn fits(layer: &LoweredLayer) -> bool {
    let over_requests = layer.rows == RowSet::Requests;
    match layer.primitive {
        Primitive::Gemm => matches!(layer.shape, PrimitiveShape::Gemm { .. }) && !over_requests,
        Primitive::BatchedGemm => matches!(layer.shape, PrimitiveShape::BatchedGemm { .. }) && !over_requests,
        Primitive::LatentPrefill | Primitive::LatentDecode => {
            matches!(layer.shape, PrimitiveShape::Latent { .. }) && over_requests && layer.runs_for == RowRange::ALL
        }
        Primitive::AttentionPrefill | Primitive::AttentionDecode => {
            matches!(layer.shape, PrimitiveShape::Attention { .. }) && over_requests
        }
        Primitive::Beside => matches!(layer.shape, PrimitiveShape::Traffic { .. }) && !over_requests,
        Primitive::SparsePrefill | Primitive::SparseDecode => {
            matches!(layer.shape, PrimitiveShape::Gathered { .. }) && over_requests && layer.runs_for == RowRange::ALL
        }
        Primitive::SelectionPrefill | Primitive::SelectionDecode => {
            matches!(layer.shape, PrimitiveShape::Scores { ratio, .. } if ratio > 0) && over_requests && layer.runs_for == RowRange::ALL
        }
        Primitive::RecurrentPrefill => matches!(layer.shape, PrimitiveShape::Recurrent { .. }) && over_requests,
        Primitive::RecurrentScan => matches!(layer.shape, PrimitiveShape::Scan { .. }) && over_requests,
        Primitive::MoeExperts => matches!(layer.shape, PrimitiveShape::Moe { .. }) && !over_requests,
        Primitive::AllReduce | Primitive::AllGather | Primitive::ReduceScatter | Primitive::AllToAll | Primitive::Send => {
            matches!(layer.shape, PrimitiveShape::Collective { .. }) && !over_requests
        }
        Primitive::Convolution
        | Primitive::RecurrentDecode
        | Primitive::Norm
        | Primitive::Activation
        | Primitive::Rope
        | Primitive::Embedding => matches!(layer.shape, PrimitiveShape::Stream { .. }) && !over_requests,
        Primitive::Sampling => matches!(layer.shape, PrimitiveShape::Sampling { .. }) && !over_requests,
    }
}

/// Whether a primitive works on listed entries, and if so, for requests with several new tokens.
const fn reads_lists(primitive: Primitive) -> Option<bool> {
    match primitive {
        Primitive::SparsePrefill | Primitive::SelectionPrefill => Some(true),
        Primitive::SparseDecode | Primitive::SelectionDecode => Some(false),
        Primitive::Gemm
        | Primitive::BatchedGemm
        | Primitive::AttentionPrefill
        | Primitive::AttentionDecode
        | Primitive::LatentPrefill
        | Primitive::LatentDecode
        | Primitive::Convolution
        | Primitive::RecurrentPrefill
        | Primitive::RecurrentDecode
        | Primitive::RecurrentScan
        | Primitive::MoeExperts
        | Primitive::Beside
        | Primitive::AllReduce
        | Primitive::AllGather
        | Primitive::ReduceScatter
        | Primitive::AllToAll
        | Primitive::Send
        | Primitive::Norm
        | Primitive::Activation
        | Primitive::Rope
        | Primitive::Embedding
        | Primitive::Sampling => None,
    }
}

fn misfit(layer: &LoweredLayer) -> CompileError {
    CompileError::Shape { primitive: layer.primitive.as_str(), shape: format!("{:?}", layer.shape), rows: layer.rows }
}

/// Whether a collective has nobody to talk to.
fn stays_on_rank(layer: &LoweredLayer) -> bool {
    matches!(layer.shape, PrimitiveShape::Collective { group, .. } if group < 2)
}
