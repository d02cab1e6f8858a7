//! Weights resident on one rank, after upstream's fusing, sharding, padding and repacking.
//!
//! upstream: vllm `model_executor/layers/linear.py::QKVParallelLinear`, `MergedColumnParallelLinear`, `RowParallelLinear`
//! upstream: vllm `model_executor/layers/quantization/mxfp4.py::GptOssMxfp4MoEMethod.create_weights`
//! upstream: vllm `model_executor/layers/quantization/utils/mxfp4_utils.py::_swizzle_mxfp4`
//!
//! Biases of row-parallel projections are whole on every rank. Scales of one value per tensor are not counted.

use blis_contracts::format::FormatName;
use blis_contracts::model::{FeedForward, LayerBlock, MixtureOfExperts};
use blis_contracts::plan::ResidentTensor;
use blis_contracts::units::BytesPerRank;
use indexmap::IndexMap;

use super::LoweringError;
use super::experts::{self, ExpertsChoice, Storage};
use super::pass::output_format;
use super::site::{Site, attention_of};

/// Every resident tensor, layers merged.
pub(super) fn resident(site: &Site<'_>) -> Result<Vec<ResidentTensor>, LoweringError> {
    let mut tensors: IndexMap<(String, u64), u32> = IndexMap::new();
    let (model, plain) = (site.model, site.element_bytes());
    let vocabulary = site.share(site.padded_vocabulary());
    let mut add = |name: &str, bytes: u64| {
        if bytes > 0 {
            *tensors.entry((name.to_owned(), bytes)).or_default() += 1;
        }
    };
    add("embedding", vocabulary * model.hidden_size * plain);
    if !model.tied_embeddings {
        add("output embedding", output_format(site).weights.stored_bytes(vocabulary, model.hidden_size));
    }
    add("final norm", model.hidden_size * plain);
    for block in model.layers() {
        attention(site, block, &mut add);
        match &block.feed_forward {
            FeedForward::Dense(dense) => {
                let width = site.share(dense.intermediate_size);
                let up = width * if dense.gated { 2 } else { 1 };
                let (up_bias, down_bias) = if dense.bias { (up * plain, model.hidden_size * plain) } else { (0, 0) };
                add("gate and up projections", dense.up_format.weights.stored_bytes(up, model.hidden_size) + up_bias);
                add("down projection", dense.down_format.weights.stored_bytes(model.hidden_size, width) + down_bias);
            }
            FeedForward::MixtureOfExperts(moe) => {
                let router = site.router_format(moe).weights.stored_bytes(moe.experts.into(), model.hidden_size);
                add("router", router + if moe.router_bias { u64::from(moe.experts) * plain } else { 0 });
                add("selection bias", if moe.selection_bias { FormatName::Fp32.stored_bytes(1, moe.experts.into()) } else { 0 });
                add("experts", expert_bytes(site, moe, &experts::choose(site, moe)?));
            }
        }
    }
    Ok(tensors.into_iter().map(|((name, bytes), count)| ResidentTensor { name, count, bytes: BytesPerRank::new(bytes) }).collect())
}

fn attention(site: &Site<'_>, block: &LayerBlock, add: &mut impl FnMut(&str, u64)) {
    let (attention, plain, hidden) = (attention_of(block), site.element_bytes(), site.model.hidden_size);
    let (columns, depth) = (site.qkv_columns(attention), site.output_depth(attention));
    let (qkv_bias, output_bias) = (u64::from(attention.qkv_bias), u64::from(attention.output_bias));
    add("query, key and value projections", attention.qkv_format.weights.stored_bytes(columns, hidden) + qkv_bias * columns * plain);
    add("output projection", attention.output_format.weights.stored_bytes(hidden, depth) + output_bias * hidden * plain);
    add("norms", u64::from(block.norms) * hidden * plain);
    let (query_norm, key_norm) = attention.qk_norm_widths();
    let shared =
        |width: u64, heads: u32, of: u32| if attention.qk_norm_spans_heads { width * u64::from(heads) / u64::from(of) } else { width };
    let query_norm = shared(query_norm, site.query_heads(attention), attention.query_heads);
    let key_norm = shared(key_norm, site.kv_heads(attention), attention.kv_heads);
    add("query and key norms", (query_norm + key_norm) * plain);
    add("sinks", if attention.sinks { u64::from(site.query_heads(attention)) * plain } else { 0 });
}

/// The experts of one layer on one rank.
fn expert_bytes(site: &Site<'_>, moe: &MixtureOfExperts, choice: &ExpertsChoice) -> u64 {
    let up = choice.intermediate * if moe.gated { 2 } else { 1 };
    let matrices = matrix_bytes(site, choice, up, choice.hidden) + matrix_bytes(site, choice, choice.hidden, choice.intermediate);
    let bias = match choice.storage {
        Storage::Plain => site.element_bytes(),
        Storage::WideBiases | Storage::TritonSwizzle => FormatName::Fp32.stored_bytes(1, 1),
    };
    let biases = if moe.bias { (up + choice.hidden) * bias } else { 0 };
    u64::from(site.local_experts(moe)) * (matrices + biases)
}

/// One expert's matrix of `rows` outputs and `columns` inputs with its scales.
fn matrix_bytes(site: &Site<'_>, choice: &ExpertsChoice, rows: u64, columns: u64) -> u64 {
    let weights = choice.format.weights;
    match choice.storage {
        Storage::Plain | Storage::WideBiases => weights.stored_bytes(rows, columns),
        Storage::TritonSwizzle => {
            // Outputs are padded to 256 on Hopper (2 x 2 x 8 for each of 8 warps) and to 128 elsewhere, scales of a row to 4.
            let tile = if site.family(9) { 256 } else { 128 };
            let scales = columns.div_ceil(u64::from(weights.parts().block.1)).next_multiple_of(4);
            (rows * columns * u64::from(weights.parts().payload_bits)).div_ceil(8) + rows.next_multiple_of(tile) * scales
        }
    }
}
