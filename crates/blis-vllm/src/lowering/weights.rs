//! Weights resident on one rank, after upstream's fusing, sharding, padding and repacking.
//!
//! upstream: vllm `model_executor/layers/linear.py::QKVParallelLinear`, `MergedColumnParallelLinear`, `RowParallelLinear`
//! upstream: vllm `model_executor/layers/quantization/mxfp4.py::GptOssMxfp4MoEMethod.create_weights`
//! upstream: vllm `model_executor/layers/quantization/utils/mxfp4_utils.py::_swizzle_mxfp4`
//!
//! Biases of row-parallel projections are whole on every rank, and so are encoders whose layers another library wrote and what ranks multiply
//! parts of the tokens with. Scales of one value per tensor are not counted.

use blis_contracts::format::FormatName;
use blis_contracts::model::{
    Attention, CompressedAttention, DenseFeedForward, EncoderPart, ExpertLatent, FeedForward, GroupedQueryAttention, LatentAttention,
    MixtureOfExperts,
};
use blis_contracts::plan::ResidentTensor;
use blis_contracts::units::BytesPerRank;
use indexmap::IndexMap;

use super::experts::{self, ExpertsChoice, Storage};
use super::parts::TokenParts;
use super::pass::output_format;
use super::site::Site;
use super::{LoweringError, compressed, exchange, linear, mamba2, recurrent, selected, stages};

/// Every tensor resident on a rank of a stage, layers merged.
pub(super) fn resident(site: &Site<'_>, stage: u32) -> Result<Vec<ResidentTensor>, LoweringError> {
    let (first, last) = (stage == 0, stage + 1 == site.stages);
    let (own, parts) = (&stages::layers(site)[stage as usize], TokenParts::of(site));
    let mut tensors: IndexMap<(String, u64), u32> = IndexMap::new();
    let (model, plain) = (site.model, site.element_bytes());
    let vocabulary = site.share(site.padded_vocabulary());
    let mut add = |name: &str, bytes: u64| {
        if bytes > 0 {
            *tensors.entry((name.to_owned(), bytes)).or_default() += 1;
        }
    };
    // Embeddings that are the output's too lie at both ends.
    if first || (last && model.tied_embeddings) {
        add("embedding", vocabulary * model.hidden_size * plain);
    }
    if last && !model.tied_embeddings {
        add("output embedding", output_format(site).weights.stored_bytes(vocabulary, model.hidden_size));
    }
    add("final norm", if last { model.hidden_size * plain } else { 0 });
    if let Some(lanes) = model.residual_lanes {
        let (count, wide) = (u64::from(lanes.lanes), FormatName::Fp32);
        add("last mixing of lanes", wide.stored_bytes(1, count * (count * model.hidden_size + 1) + 1));
    }
    for block in model.layers().skip(own.start).take(own.len()) {
        add("norms", u64::from(block.norms) * model.hidden_size * plain);
        match &block.attention {
            Attention::GroupedQuery(attention) => grouped_query(site, attention, &mut add),
            Attention::Latent(attention) => latent(site, attention, &mut add),
            Attention::Compressed(attention) => compressed_attention(site, attention, &mut add)?,
            Attention::GatedDelta(rule) => recurrent::weights(site, rule, &mut add),
            Attention::Mamba2(space) => mamba2::weights(site, space, &mut add),
        }
        match &block.feed_forward {
            FeedForward::Absent => {}
            FeedForward::Dense(dense) => {
                network(site, dense, site.width_over(parts.rows(block), dense.intermediate_size), NETWORK, &mut add);
            }
            FeedForward::MixtureOfExperts(moe) => mixture(site, (moe, compressed::attention_of(block).is_some()), &mut add)?,
        }
    }
    for encoder in model.encoders.iter().filter(|_| first && !site.resolved.language_model_only) {
        let bytes = encoder.format.stored_bytes(1, encoder.parameters);
        match encoder.part {
            EncoderPart::Tower => add("encoder", if site.is_gemma4() { bytes } else { site.share(bytes) }),
            EncoderPart::Projector => add("encoder projector", if site.shares_projector() { site.share(bytes) } else { bytes }),
        }
    }
    Ok(tensors.into_iter().map(|((name, bytes), count)| ResidentTensor { name, count, bytes: BytesPerRank::new(bytes) }).collect())
}

/// The matrices of a network that every token passes.
const NETWORK: [&str; 2] = ["gate and up projections", "down projection"];

/// A router, the experts it picks among and those that every token passes; `compressed` where attention beside them is to compressed tokens.
fn mixture(site: &Site<'_>, (moe, compressed): (&MixtureOfExperts, bool), add: &mut impl FnMut(&str, u64)) -> Result<(), LoweringError> {
    let (hidden, plain) = (site.model.hidden_size, site.element_bytes());
    let router = site.router_format(moe).weights.stored_bytes(moe.experts.into(), hidden);
    let scales = if moe.router_scales { hidden + u64::from(moe.experts) } else { 0 };
    add("router", router + (scales + if moe.router_bias { u64::from(moe.experts) } else { 0 }) * plain);
    add("selection bias", if moe.selection_bias { FormatName::Fp32.stored_bytes(1, moe.experts.into()) } else { 0 });
    add("experts by token", if moe.picks_by_token { site.model.vocab_size * u64::from(moe.top_k) * 4 } else { 0 });
    add("gate of shared experts", if moe.shared_gate { hidden * plain } else { 0 });
    let latent = |latent: ExpertLatent| {
        linear::resident_bytes(site, latent.format, latent.width, hidden)
            + linear::resident_bytes(site, latent.format, hidden, latent.width)
    };
    add("projections around experts", moe.latent.map_or(0, latent));
    add("experts", expert_bytes(site, moe, &experts::choose(site, moe)?));
    if let Some(shared) = &moe.shared {
        let rows = exchange::own_rows(site);
        let width = if compressed { compressed::shared_width(site, shared, rows) } else { site.width_over(rows, shared.intermediate_size) };
        let names = if site.is_gemma4() { NETWORK } else { ["shared gate and up projections", "shared down projection"] };
        network(site, shared, width, names, add);
    }
    Ok(())
}

fn network(site: &Site<'_>, dense: &DenseFeedForward, width: u64, [up_name, down_name]: [&str; 2], add: &mut impl FnMut(&str, u64)) {
    let (plain, hidden) = (site.element_bytes(), site.model.hidden_size);
    let up = width * if dense.gated { 2 } else { 1 };
    let (up_bias, down_bias) = if dense.bias { (up * plain, hidden * plain) } else { (0, 0) };
    add(up_name, linear::resident_bytes(site, dense.up_format, up, hidden) + up_bias);
    add(down_name, linear::resident_bytes(site, dense.down_format, hidden, width) + down_bias);
}

/// The halves of the up-projection that decodes use are views of it where it is stored as it is multiplied, else a copy in 16 bits.
fn latent(site: &Site<'_>, attention: &LatentAttention, add: &mut impl FnMut(&str, u64)) {
    let (plain, hidden) = (site.element_bytes(), site.model.hidden_size);
    let heads = site.share(attention.query_heads.into());
    let (query_rank, kv_rank) = (u64::from(attention.query_rank.unwrap_or(0)), u64::from(attention.kv_rank));
    add("down projections", linear::resident_bytes(site, attention.down_format, query_rank + u64::from(attention.cached()), hidden));
    add("latent norms", (query_rank + kv_rank) * plain);
    let query_depth = attention.query_rank.map_or(hidden, u64::from);
    add("query projection", linear::resident_bytes(site, attention.query_format, heads * u64::from(attention.query_dim()), query_depth));
    let up = heads * u64::from(attention.plain_dim + attention.value_dim);
    add("key and value projections", linear::resident_bytes(site, attention.kv_format, up, kv_rank));
    let copied = attention.kv_format.weights != site.dtype();
    add("key and value projections in 16 bits", if copied { up * kv_rank * plain } else { 0 });
    let depth = heads * u64::from(attention.value_dim);
    add("output projection", linear::resident_bytes(site, attention.output_format, hidden, depth));
    add("indexer", attention.indexer().map_or(0, |indexer| selected::indexer_weight_bytes(site, indexer, query_depth)));
}

fn grouped_query(site: &Site<'_>, attention: &GroupedQueryAttention, add: &mut impl FnMut(&str, u64)) {
    let (plain, hidden) = (site.element_bytes(), site.model.hidden_size);
    let (columns, depth) = (site.qkv_columns(attention), site.output_depth(attention));
    let (qkv_bias, output_bias) = (u64::from(attention.qkv_bias), u64::from(attention.output_bias));
    add(
        "query, key and value projections",
        linear::resident_bytes(site, attention.qkv_format, columns, hidden) + qkv_bias * columns * plain,
    );
    add("output projection", linear::resident_bytes(site, attention.output_format, hidden, depth) + output_bias * hidden * plain);
    let (query_norm, key_norm) = attention.qk_norm_widths();
    let shared =
        |width: u64, heads: u32, of: u32| if attention.qk_norm_spans_heads { width * u64::from(heads) / u64::from(of) } else { width };
    let query_norm = shared(query_norm, site.query_heads(attention), attention.query_heads);
    let key_norm = shared(key_norm, site.kv_heads(attention), attention.kv_heads);
    add("query and key norms", (query_norm + key_norm) * plain);
    add("indexer norms", attention.indexer.as_ref().map_or(0, |indexer| 2 * u64::from(indexer.head_dim) * plain));
    add("sinks", if attention.sinks { u64::from(site.query_heads(attention)) * plain } else { 0 });
}

/// Attention to compressed tokens, and the mixing of lanes around both sublayers. Projections to latents, compressors and scoring are
/// whole on every rank.
fn compressed_attention(site: &Site<'_>, attention: &CompressedAttention, add: &mut impl FnMut(&str, u64)) -> Result<(), LoweringError> {
    let (hidden, plain, wide) = (site.model.hidden_size, site.element_bytes(), FormatName::Fp32);
    let (rank, head_dim) = (u64::from(attention.query_rank), u64::from(attention.head_dim));
    add("query and key projections", linear::resident_bytes(site, attention.down_format, rank + head_dim, hidden));
    add("query projection", linear::resident_bytes(site, attention.query_format, site.share(attention.query_width()), rank));
    let (between, depth) = (site.share(attention.grouped_width()), attention.query_width() / u64::from(attention.output_groups));
    add("output projections of groups", linear::resident_bytes(site, attention.group_format, between, depth));
    add("output projection", linear::resident_bytes(site, attention.output_format, hidden, between));
    add("latent norms", (rank + head_dim) * plain);
    add("sinks", wide.stored_bytes(1, compressed::kernel_heads(site, attention.query_heads / site.ranks)?.into()));
    if let Some(compression) = &attention.compression {
        let compressor = |width: u32| {
            let columns = compression.columns(width);
            let offsets = wide.stored_bytes(compression.ratio.into(), columns);
            compression.format.weights.stored_bytes(2 * columns, hidden) + offsets + u64::from(width) * plain
        };
        add("compressor", compressor(attention.head_dim));
        if let Some(selection) = &compression.selection {
            let heads = u64::from(selection.heads);
            let query = linear::resident_bytes(site, selection.query_format, heads * u64::from(selection.head_dim), rank);
            add("scoring", query + selection.weights_format.weights.stored_bytes(heads, hidden) + compressor(selection.head_dim));
        }
    }
    if let Some(lanes) = site.model.residual_lanes {
        let weights = lanes.weights();
        add("mixing of lanes", 2 * wide.stored_bytes(1, weights * u64::from(lanes.lanes) * hidden + weights + 3));
    }
    Ok(())
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
        Storage::Plain | Storage::WideBiases if weights == FormatName::Fp8Block => {
            let block = experts::scale_block(choice.intermediate);
            rows * columns + rows.div_ceil(block) * columns.div_ceil(block) * FormatName::Fp32.stored_bytes(1, 1)
        }
        Storage::Plain | Storage::WideBiases => weights.stored_bytes(rows, columns),
        Storage::TritonSwizzle => {
            // Outputs are padded to 256 on Hopper (2 x 2 x 8 for each of 8 warps) and to 128 elsewhere, scales of a row to 4.
            let tile = if site.family(9) { 256 } else { 128 };
            let scales = columns.div_ceil(u64::from(weights.parts().block.1)).next_multiple_of(4);
            (rows * columns * u64::from(weights.parts().payload_bits)).div_ceil(8) + rows.next_multiple_of(tile) * scales
        }
    }
}
