//! The environment an engine is built and run in: catalog facts on one side, the cost model on the other.

use blis_contracts::chip::Chip;
use blis_contracts::environment::{Environment, EnvironmentError, MemoryBreakdown, PlanId};
use blis_contracts::model::ModelGraph;
use blis_contracts::plan::PoolPlan;
use blis_contracts::step::{StepEstimate, StepShape};

use crate::compiled::CompiledPlan;
use crate::model::CostModel;

/// One chip, one model and the cost model that prices them: what one pool's engines may ask.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedEnvironment {
    graph: ModelGraph,
    chip: Chip,
    model: CostModel,
    plans: Vec<CompiledPlan>,
}

impl PricedEnvironment {
    /// An environment of resolved facts: the catalog has already found both entries by name.
    pub fn new(graph: ModelGraph, chip: Chip, model: CostModel) -> Self {
        Self { graph, chip, model, plans: Vec::new() }
    }

    /// The cost model.
    pub fn cost_model(&self) -> &CostModel {
        &self.model
    }

    /// A compiled plan, with what it has counted.
    ///
    /// Panics on an identifier another environment gave out.
    pub fn plan(&self, plan: PlanId) -> &CompiledPlan {
        &self.plans[plan.0 as usize]
    }
}

impl Environment for PricedEnvironment {
    fn graph(&self, model: &str) -> Result<&ModelGraph, EnvironmentError> {
        if self.graph.name == model || self.graph.aliases.iter().any(|alias| alias == model) {
            return Ok(&self.graph);
        }
        Err(EnvironmentError::UnknownModel { name: model.to_owned(), nearest: vec![self.graph.name.clone()] })
    }

    fn chip(&self, name: &str) -> Result<&Chip, EnvironmentError> {
        if self.chip.name == name {
            return Ok(&self.chip);
        }
        Err(EnvironmentError::UnknownChip { name: name.to_owned(), nearest: vec![self.chip.name.clone()] })
    }

    fn memory(&self, partial: &PoolPlan) -> Result<MemoryBreakdown, EnvironmentError> {
        Ok(self.model.memory(partial)?)
    }

    fn compile(&mut self, plan: &PoolPlan) -> Result<PlanId, EnvironmentError> {
        let id = PlanId(u32::try_from(self.plans.len()).expect("fewer than four billion plans are compiled"));
        self.plans.push(self.model.compile(plan)?);
        Ok(id)
    }

    fn price(&mut self, plan: PlanId, step: &StepShape) -> StepEstimate {
        self.plans[plan.0 as usize].price(step)
    }
}
