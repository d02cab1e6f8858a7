//! The layers of a model, one by one, from `config.json`.

use blis_contracts::format::MatmulFormat;
use blis_contracts::model::{
    Attention, BlockIndexer, DenseFeedForward, FeedForward, GroupedQueryAttention, LatentAttention, LayerBlock, MixtureOfExperts,
};

use super::DeriveError;
use super::chunked;
use super::compressed::{self, Widths};
use super::family::{AttentionBias, Family, FeedForwardKind, QkNorm, WindowRule};
use super::keys::Keys;
use super::latent::{self, LatentShape};
use super::quantisation::Quantisation;
use super::recurrent::{self, GatedDeltaLayers, Recurrence};
use super::selected::Selections;
use super::{gemma4, mamba, stated};
use crate::patterns::CONFIG;
use crate::tree::Tree;

/// Most layers a model may have: a bound on what a hostile configuration can make us build.
const MAX_LAYERS: u32 = 4096;

/// Widths that all layers share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) hidden: u64,
    pub(crate) vocab: u64,
    pub(crate) layers: u32,
    query_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    rotary_dim: Option<u32>,
    qk_norm: QkNorm,
    qkv_bias: bool,
    output_bias: bool,
    latent: Option<LatentShape>,
    output_gate: bool,
}

impl Shape {
    pub(crate) fn read(keys: &Keys<'_>, family: &Family) -> Result<Self, DeriveError> {
        let hidden = keys.required("hidden_size", keys.natural("hidden_size")?)?;
        let query_heads = keys.required("num_attention_heads", keys.small("num_attention_heads")?)?;
        let kv_heads = keys.small("num_key_value_heads")?.unwrap_or(query_heads);
        let layers = match mamba::layer_count(keys, family)? {
            Some(layers) => layers,
            None => keys.required("num_hidden_layers", keys.small("num_hidden_layers")?)?,
        };
        if layers > MAX_LAYERS {
            return Err(keys.wrong("num_hidden_layers", &Tree::Natural(layers.into()), &format!("at most {MAX_LAYERS}")));
        }
        if !query_heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of num_attention_heads ({query_heads})");
            return Err(keys.wrong("num_key_value_heads", &Tree::Natural(kv_heads.into()), &expected));
        }
        let head_dim = match mamba::head_dim(keys, family)?.map_or_else(|| keys.small("head_dim"), |found| Ok(Some(found)))? {
            Some(head_dim) => head_dim,
            None if family.latent => 0,
            None => whole_head(keys, hidden, query_heads)?,
        };
        let stated = if family.attention_bias == AttentionBias::Stated { keys.flag("attention_bias")?.unwrap_or(false) } else { false };
        Ok(Self {
            hidden,
            vocab: keys.required("vocab_size", keys.natural("vocab_size")?)?,
            layers,
            query_heads,
            kv_heads,
            head_dim,
            rotary_dim: rotary_dim(keys, family, head_dim)?,
            qk_norm: qk_norm(keys, family)?,
            qkv_bias: stated || family.attention_bias == AttentionBias::QueryKeyValue,
            output_bias: stated,
            latent: if family.latent { Some(LatentShape::read(keys, query_heads, kv_heads)?) } else { None },
            output_gate: recurrent::output_gate(keys, family)?,
        })
    }
}

/// The part of a head that positions rotate, where an architecture states one that is not the whole.
fn rotary_dim(keys: &Keys<'_>, family: &Family, head_dim: u32) -> Result<Option<u32>, DeriveError> {
    if family.recurrence == Some(Recurrence::GatedDelta) {
        return recurrent::rotary_dim(keys, head_dim);
    }
    if !family.states_routing {
        return Ok(None);
    }
    match keys.small("rotary_dim")? {
        Some(rotated) if rotated > head_dim => {
            Err(keys.wrong("rotary_dim", &Tree::Natural(rotated.into()), &format!("at most head_dim ({head_dim})")))
        }
        stated => Ok(stated.filter(|&rotated| rotated < head_dim)),
    }
}

/// Whether queries and keys are normed, and how; an architecture whose configuration decides must norm all heads together.
fn qk_norm(keys: &Keys<'_>, family: &Family) -> Result<QkNorm, DeriveError> {
    if family.states_layers {
        return match (keys.flag("use_qk_norm")?, keys.text("qk_norm_type")?) {
            (Some(true), Some("per_head")) => Ok(QkNorm::PerHead),
            (_, found) => Err(keys.wrong("qk_norm_type", &Tree::Text(found.unwrap_or_default().to_owned()), "per_head, with use_qk_norm")),
        };
    }
    if family.qk_norm != QkNorm::PerLayer {
        return Ok(family.qk_norm);
    }
    match keys.text("qk_norm_type")? {
        None | Some("per_layer") => {}
        Some(other) => return Err(keys.wrong("qk_norm_type", &Tree::Text(other.to_owned()), "per_layer")),
    }
    let used = keys.required("use_qk_norm", keys.flag("use_qk_norm")?)?;
    Ok(if used { QkNorm::PerLayer } else { QkNorm::None })
}

/// The width of a head where none is stated: the residual stream divided evenly.
fn whole_head(keys: &Keys<'_>, hidden: u64, query_heads: u32) -> Result<u32, DeriveError> {
    let indivisible = || keys.wrong("hidden_size", &Tree::Natural(hidden), &format!("a multiple of num_attention_heads ({query_heads})"));
    if !hidden.is_multiple_of(query_heads.into()) {
        return Err(indivisible());
    }
    u32::try_from(hidden / u64::from(query_heads)).map_err(|_| indivisible())
}

/// Builds every layer, bottom to top.
pub(crate) fn build(keys: &Keys<'_>, family: &Family, shape: &Shape, quantisation: &Quantisation) -> Result<Vec<LayerBlock>, DeriveError> {
    if family.compressed {
        let Shape { layers, query_heads, kv_heads, head_dim, .. } = *shape;
        return compressed::build(keys, Widths { layers, query_heads, kv_heads, head_dim }, quantisation);
    }
    if family.recurrence == Some(Recurrence::Mamba2) {
        let Shape { query_heads, kv_heads, head_dim, .. } = *shape;
        return mamba::build(keys, mamba::AttentionWidths { query_heads, kv_heads, head_dim }, quantisation);
    }
    if family.chunked {
        let Shape { layers, query_heads, kv_heads, head_dim, .. } = *shape;
        return chunked::build(keys, chunked::Attending { layers, query_heads, kv_heads, head_dim }, quantisation);
    }
    if family.two_heads {
        let Shape { layers, query_heads, kv_heads, head_dim, .. } = *shape;
        return gemma4::build(keys, gemma4::Windowed { layers, query_heads, kv_heads, head_dim }, quantisation);
    }
    let recurrent = GatedDeltaLayers::read(keys, family, shape.layers)?;
    let windows = windows(keys, family, shape.layers)?;
    let indexers = indexers(keys, family, shape)?;
    let networks = Networks::read(keys, family, shape.layers)?;
    let selections = if family.selects_tokens { Some(Selections::read(keys, shape.layers, quantisation.plain())?) } else { None };
    let mut layers = Vec::with_capacity(shape.layers as usize);
    for (index, (window, indexer)) in (0..).zip(windows.into_iter().zip(indexers)) {
        let prefix = format!("model.layers.{index}");
        let same = |modules: &[&str]| same_format(quantisation, index, &prefix, modules);
        let attention = match &shape.latent {
            _ if recurrent.has(index) => recurrent.layer(&same)?,
            Some(latent) => {
                let selection = selections.as_ref().map(|selections| selections.layer(index, &same)).transpose()?;
                Attention::Latent(LatentAttention { selection, ..latent.layer(&same)? })
            }
            None => Attention::GroupedQuery(grouped_query(family, shape, (window, indexer), &same)?),
        };
        let feed_forward = networks.layer(index, same)?;
        layers.push(LayerBlock { attention, feed_forward, norms: family.norms });
    }
    Ok(layers)
}

fn grouped_query(
    family: &Family,
    shape: &Shape,
    (window, indexer): (Option<u32>, Option<BlockIndexer>),
    same: &impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>,
) -> Result<GroupedQueryAttention, DeriveError> {
    Ok(GroupedQueryAttention {
        query_heads: shape.query_heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        window,
        sinks: family.sinks,
        qk_norm: shape.qk_norm != QkNorm::None,
        qk_norm_spans_heads: shape.qk_norm == QkNorm::PerLayer,
        qk_norm_unweighted: false,
        chunk: None,
        rotary_dim: shape.rotary_dim,
        qkv_bias: shape.qkv_bias,
        output_bias: shape.output_bias,
        output_gate: shape.output_gate,
        values_are_keys: false,
        qkv_format: same(if indexer.is_some() { INDEXED } else { &INDEXED[..3] })?,
        indexer,
        output_format: same(&["self_attn.o_proj"])?,
    })
}

/// The projections in front of attention, an indexer's last.
const INDEXED: &[&str] = &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.index_q_proj", "self_attn.index_k_proj"];

/// The indexer of every layer.
fn indexers(keys: &Keys<'_>, family: &Family, shape: &Shape) -> Result<Vec<Option<BlockIndexer>>, DeriveError> {
    if !family.states_layers {
        return Ok(vec![None; shape.layers as usize]);
    }
    if keys.flag("attention_output_gate")? == Some(true) {
        let expected = "false, as a gate over attention's output is not understood";
        return Err(keys.wrong("attention_output_gate", &Tree::Flag(true), expected));
    }
    stated::indexers(keys, shape.layers, shape.kv_heads, shape.head_dim)
}

/// The one format of modules that engines read as one matrix.
pub(super) fn same_format(quantisation: &Quantisation, layer: u32, prefix: &str, modules: &[&str]) -> Result<MatmulFormat, DeriveError> {
    let format = quantisation.format_of(&format!("{prefix}.{}", modules[0]));
    let differs = |module: &&str| quantisation.format_of(&format!("{prefix}.{module}")) != format;
    if modules.iter().any(differs) {
        return Err(DeriveError::Uneven { layer, modules: modules.join(", ") });
    }
    Ok(format)
}

/// The feed-forward parts as the configuration states them.
struct Networks {
    dense_width: Option<u64>,
    dense_bias: bool,
    moe: Option<MoeShape>,
    /// Joint width of the experts that every token passes, where it is stated beside that of the others.
    shared_width: Option<u64>,
    /// Whether what those experts write is weighed.
    shared_gate: bool,
    dense_layers: Vec<u64>,
    sparse_step: u64,
}

struct MoeShape {
    experts: u32,
    top_k: u32,
    width: u64,
    stacked: bool,
    selection_bias: bool,
    latent: Option<latent::Routing>,
    router: String,
    up: [String; 2],
    down: String,
}

impl Networks {
    fn read(keys: &Keys<'_>, family: &Family, layers: u32) -> Result<Self, DeriveError> {
        let dense_width = keys.natural("intermediate_size")?;
        let mut networks = Self {
            dense_width,
            dense_bias: false,
            moe: None,
            shared_width: None,
            shared_gate: false,
            dense_layers: Vec::new(),
            sparse_step: 1,
        };
        match family.feed_forward {
            FeedForwardKind::Dense => networks.dense_bias = keys.flag("mlp_bias")?.unwrap_or(false),
            FeedForwardKind::StackedExperts => {
                let width = keys.required("intermediate_size", dense_width)?;
                let modules = ["mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"];
                networks.moe = Some(moe_shape(keys, family, "num_local_experts", width, modules.map(str::to_owned))?);
            }
            FeedForwardKind::Experts { count, width, module, projections, mixed } => {
                let width = keys.required(width, keys.natural(width)?)?;
                let modules = projections.map(|projection| format!("{module}.experts.0.{projection}"));
                networks.moe = Some(moe_shape(keys, family, count, width, modules)?);
                if mixed {
                    networks.dense_layers = dense_layers(keys)?;
                    networks.sparse_step = keys.natural("decoder_sparse_step")?.unwrap_or(1);
                }
                if family.latent {
                    networks.dense_layers = latent::dense_layers(keys, layers)?;
                }
                if family.recurrence == Some(Recurrence::GatedDelta) {
                    networks.shared_width = keys.natural("shared_expert_intermediate_size")?;
                    networks.shared_gate = networks.shared_width.is_some();
                }
                if family.states_layers {
                    networks.dense_layers = stated::dense_layers(keys, layers)?;
                    networks.dense_width = keys.natural("dense_intermediate_size")?;
                    networks.shared_width = stated::shared_width(keys, width)?;
                }
            }
        }
        Ok(networks)
    }

    fn layer(&self, index: u32, same: impl Fn(&[&str]) -> Result<MatmulFormat, DeriveError>) -> Result<FeedForward, DeriveError> {
        let sparse = !self.dense_layers.contains(&index.into()) && (u64::from(index) + 1).is_multiple_of(self.sparse_step);
        if let Some(moe) = self.moe.as_ref().filter(|_| sparse) {
            let expert_format = same(&[&moe.up[0], &moe.up[1], &moe.down])?;
            return Ok(FeedForward::MixtureOfExperts(MixtureOfExperts {
                experts: moe.experts,
                top_k: moe.top_k,
                intermediate_size: moe.width,
                gated: true,
                bias: moe.stacked,
                router_bias: moe.stacked,
                selection_bias: moe.selection_bias,
                picks_by_token: false,
                expert_format,
                router_format: same(&[&moe.router])?,
                groups: moe.latent.and_then(|routing| routing.groups),
                shared: match (moe.latent, self.shared_width) {
                    (Some(routing), _) => routing.shared(&same)?,
                    (None, Some(width)) if self.shared_gate => Some(recurrent::shared(width, &same)?),
                    (None, Some(width)) => Some(stated::shared(width, &same)?),
                    (None, None) => None,
                },
                shared_gate: self.shared_gate,
                router_scales: false,
                latent: None,
            }));
        }
        let missing = || DeriveError::Missing { file: CONFIG.to_owned(), path: "intermediate_size".to_owned() };
        Ok(FeedForward::Dense(DenseFeedForward {
            intermediate_size: self.dense_width.ok_or_else(missing)?,
            gated: true,
            bias: self.dense_bias,
            up_format: same(&["mlp.gate_proj", "mlp.up_proj"])?,
            down_format: same(&["mlp.down_proj"])?,
        }))
    }
}

fn moe_shape(
    keys: &Keys<'_>,
    family: &Family,
    count: &'static str,
    width: u64,
    [gate, up, down]: [String; 3],
) -> Result<MoeShape, DeriveError> {
    let experts = keys.required(count, keys.small(count)?)?;
    let top_k = keys.small("num_experts_per_tok")?;
    let alternative = if family.feed_forward == FeedForwardKind::StackedExperts { keys.small("experts_per_token")? } else { None };
    if let (Some(one), Some(other)) = (top_k, alternative)
        && one != other
    {
        return Err(keys.wrong("experts_per_token", &Tree::Natural(other.into()), &format!("{one}, as num_experts_per_tok says")));
    }
    let top_k = keys.required("num_experts_per_tok", top_k.or(alternative))?;
    if top_k > experts {
        return Err(keys.wrong("num_experts_per_tok", &Tree::Natural(top_k.into()), &format!("at most {count} ({experts})")));
    }
    let router = format!("{}.{}", family.feed_forward_module(), family.router_module());
    let stacked = family.feed_forward == FeedForwardKind::StackedExperts;
    let latent = if family.latent { Some(latent::Routing::read(keys, experts, width)?) } else { None };
    let selection_bias = latent.map_or_else(|| selection_bias(keys, family), |routing| Ok(routing.selection_bias))?;
    Ok(MoeShape { experts, top_k, width, stacked, selection_bias, latent, router, up: [gate, up], down })
}

/// Whether scores get a bias before experts are picked; refuses a score or a shared expert that is not that of the architecture.
fn selection_bias(keys: &Keys<'_>, family: &Family) -> Result<bool, DeriveError> {
    if !family.states_routing {
        return Ok(false);
    }
    match keys.text("scoring_func")? {
        Some("sigmoid") => {}
        Some(other) => return Err(keys.wrong("scoring_func", &Tree::Text(other.to_owned()), "sigmoid")),
        None => keys.required("scoring_func", None)?,
    }
    match keys.any("shared_intermediate_size").filter(|_| !family.states_layers) {
        None | Some(Tree::Natural(0)) => {}
        Some(other) => return Err(keys.wrong("shared_intermediate_size", other, "0, as no shared expert is understood")),
    }
    Ok(keys.flag("use_routing_bias")?.unwrap_or(false))
}

fn dense_layers(keys: &Keys<'_>) -> Result<Vec<u64>, DeriveError> {
    let Some(value) = keys.any("mlp_only_layers") else { return Ok(Vec::new()) };
    let indices: Option<Vec<u64>> = value.as_sequence().and_then(|items| items.iter().map(Tree::as_natural).collect());
    indices.ok_or_else(|| keys.wrong("mlp_only_layers", value, "a list of layer indices"))
}

/// The window of every layer.
fn windows(keys: &Keys<'_>, family: &Family, layers: u32) -> Result<Vec<Option<u32>>, DeriveError> {
    if family.window == WindowRule::Full {
        return Ok(vec![None; layers as usize]);
    }
    let window = keys.small("sliding_window")?;
    let every = |choose: &dyn Fn(u32) -> bool| (0..layers).map(|index| window.filter(|_| choose(index))).collect();
    if family.window == WindowRule::Every {
        if let Some(kinds) = keys.any("attn_type_list") {
            let full = kinds
                .as_sequence()
                .is_some_and(|kinds| kinds.len() == layers as usize && kinds.iter().all(|kind| *kind == Tree::Natural(1)));
            if !full {
                return Err(keys.wrong("attn_type_list", kinds, &format!("1, softmax attention, for each of the {layers} layers")));
            }
        }
        return Ok(every(&|_| true));
    }
    let upper = if family.window == WindowRule::UpperLayers {
        let first = keys.small("max_window_layers")?.unwrap_or(layers);
        if !keys.flag("use_sliding_window")?.unwrap_or(false) {
            keys.any("layer_types");
            return Ok(every(&|_| false));
        }
        first
    } else {
        0
    };
    let pattern = if family.window == WindowRule::Pattern { keys.small("sliding_window_pattern")? } else { None };
    if keys.any("layer_types").is_some() {
        return layer_types(keys, &keys.texts("layer_types")?, window, layers);
    }
    match family.window {
        WindowRule::Full | WindowRule::Every => unreachable!("handled above"),
        WindowRule::UpperLayers => Ok(every(&|index| index >= upper)),
        WindowRule::Alternating => Ok(every(&|index| index % 2 == 0)),
        WindowRule::Pattern => {
            let pattern = keys.required("sliding_window_pattern", pattern)?;
            Ok(every(&|index| (index + 1) % pattern != 0))
        }
    }
}

/// The windows of layers whose kinds are listed.
fn layer_types(keys: &Keys<'_>, types: &[&str], window: Option<u32>, layers: u32) -> Result<Vec<Option<u32>>, DeriveError> {
    if types.len() != layers as usize {
        let found = Tree::Text(format!("a list of {}", types.len()));
        return Err(keys.wrong("layer_types", &found, &format!("one entry for each of the {layers} layers")));
    }
    types
        .iter()
        .map(|kind| match *kind {
            "full_attention" => Ok(None),
            "sliding_attention" => keys.required("sliding_window", window).map(Some),
            other => Err(keys.wrong("layer_types", &Tree::Text(other.to_owned()), "full_attention or sliding_attention")),
        })
        .collect()
}
