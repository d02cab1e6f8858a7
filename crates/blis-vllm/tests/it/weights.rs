//! Resident weights of every catalog model against the tensors that upstream's own model classes allocate (`oracle/weights.py`).
//!
//! The recording holds what a model class creates. What upstream's `process_weights_after_loading` makes of it runs kernels and could
//! not be recorded; [`Later`] lists by rule what changes then, and each rule must apply somewhere. Tensors of one value (a scale for a
//! whole matrix or expert) are left out on both sides.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use blis_contracts::plan::PoolPlan;
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::catalog::lowered;
use crate::oracle;

/// Everything recorded.
#[derive(Debug, Deserialize)]
struct Recording {
    unreadable: BTreeMap<String, String>,
    rows: Vec<Row>,
}

/// One model on one GPU.
#[derive(Debug, Deserialize)]
struct Row {
    model: String,
    gpu: String,
    ranks: u32,
    cores: u32,
    expert_parallel: bool,
    /// What upstream says where it does not build the model.
    refused: Option<String>,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    backends: Vec<String>,
    #[serde(default)]
    tensors: Vec<(String, Vec<u64>, String, u64)>,
}

fn recording() -> Recording {
    let mut text = String::new();
    let file = File::open(oracle().join("weights.json.gz")).expect("the recording is committed");
    GzDecoder::new(file).read_to_string(&mut text).expect("the recording is compressed text");
    serde_json::from_str(&text).expect("the recording has the shape of the script that writes it")
}

impl Row {
    fn name(&self) -> String {
        let whole = if self.expert_parallel { ", whole experts" } else { "" };
        format!("{} on {}, {} ranks of {} cores{whole}", self.model, self.gpu, self.ranks, self.cores)
    }

    fn plan(&self) -> Result<PoolPlan, String> {
        let whole = if self.expert_parallel { "--enable-expert-parallel" } else { "" };
        let line = format!("--tensor-parallel-size {} --data-parallel-size {} {whole}", self.ranks, self.cores);
        lowered(&self.model, &self.gpu, &line)
    }

    fn backend(&self, of: &str) -> Option<&str> {
        self.backends.iter().find_map(|line| line.split_once(of).and_then(|(_, rest)| rest.strip_prefix(" = ")))
    }
}

/// The part of a model that a tensor of upstream belongs to.
fn part_of(tensor: &str) -> &'static str {
    const PARTS: &[(&str, &str)] = &[
        ("compressor.", "attention"),
        ("visual.", "encoder"),
        ("vision_tower", "encoder"),
        ("embed_vision", "encoder"),
        ("vision_model", "encoder"),
        ("multi_modal_projector", "encoder"),
        ("mm_projector", "encoder"),
        ("hc_", "lanes"),
        ("routed_experts", "experts"),
        ("latent_proj", "experts"),
        ("shared_expert", "shared experts"),
        ("gate.", "router"),
        ("router", "router"),
        ("e_score_correction", "router"),
        ("embed", "embedding"),
        ("lm_head", "embedding"),
        ("mixer.up_proj", "dense"),
        ("mixer.down_proj", "dense"),
        ("mixer.", "attention"),
        ("attn.", "attention"),
        ("norm", "norms"),
        ("mlp.", "dense"),
        ("feed_forward.", "dense"),
    ];
    PARTS.iter().find(|(word, _)| tensor.contains(word)).unwrap_or_else(|| panic!("{tensor} belongs to no part")).1
}

/// The part of a model that a tensor of the port belongs to.
fn part_of_ours(tensor: &str) -> &'static str {
    match tensor {
        "embedding" | "output embedding" => "embedding",
        "final norm" | "norms" => "norms",
        "mixing of lanes" | "last mixing of lanes" => "lanes",
        "router" | "selection bias" | "experts by token" => "router",
        "experts" | "projections around experts" => "experts",
        "gate and up projections" | "down projection" => "dense",
        "encoder" | "encoder projector" => "encoder",
        _ if tensor.starts_with("shared ") || tensor == "gate of shared experts" => "shared experts",
        _ => "attention",
    }
}

fn element_bytes(kind: &str) -> u64 {
    match kind {
        "float32" | "int32" => 4,
        "bfloat16" | "float16" => 2,
        "float8_e4m3fn" | "float8_e8m0fnu" | "uint8" | "int8" => 1,
        other => panic!("{other} is not an element type this test knows"),
    }
}

fn sums(parts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for (part, bytes) in parts {
        *sums.entry(part).or_default() += bytes;
    }
    sums
}

/// A parameter as it is when weights are loaded: the bytes upstream allocates and those that remain once it has been processed.
fn kept(row: &Row, (name, shape, kind, count): &(String, Vec<u64>, String, u64), used: &mut BTreeSet<Later>) -> u64 {
    let created = shape.iter().product::<u64>() * element_bytes(kind) * count;
    let blackwell = row.gpu == "b200";
    let mut later = |rule, bytes| {
        used.insert(rule);
        bytes
    };
    if is_of_one_value(name, shape) {
        return later(Later::ScalesOfOneValue, 0);
    }
    match name.rsplit('.').next() {
        Some("weight_scale_inv") if blackwell && row.backend("fp8_linear") == Some("DeepGemmFp8BlockScaledMMKernel") => {
            let [rows, blocks] = [shape[0] * 128, shape[1]];
            // The last block of rows may be a part of one.
            let rows = row.rows_of(name).unwrap_or(rows);
            later(Later::ScalesPackedForDeepGemm, rows.next_multiple_of(4) * 4 * blocks.div_ceil(4) * count)
        }
        Some("weight_scale_inv") if kind == "float8_e8m0fnu" => later(Later::ScalesWidened, created * 4),
        Some("w13_bias" | "w2_bias") => match row.backend("mxfp4_backend") {
            Some("TRITON" | "FLASHINFER_TRTLLM_MXFP4_BF16") => later(Later::BiasesOfExpertsWidened, created * 2),
            _ => created,
        },
        Some("w13_weight_scale" | "w2_weight_scale") if row.backend("mxfp4_backend") == Some("TRITON") => {
            let swizzled = shape[0] * shape[1].next_multiple_of(256) * shape[2].next_multiple_of(4);
            later(Later::ScalesSwizzledForTriton, swizzled * count)
        }
        Some("w13_weight" | "w2_weight" | "w13_weight_scale" | "w2_weight_scale") if row.backend("nvfp4_backend").is_some() => {
            let padded = row.padded(name, shape) * count;
            if padded == created { created } else { later(Later::ExpertsPadded, padded) }
        }
        _ => created,
    }
}

/// Scales and shapes that hold one value for a matrix, or for each expert's one or two.
fn is_of_one_value(name: &str, shape: &[u64]) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    // A router's scales are of one element each.
    let scale = !last.starts_with("hc_")
        && !name.contains("router.")
        && (last.ends_with("scale") || last.ends_with("scale_2") || last.ends_with("weight_shape"));
    scale && (shape.len() < 2 || name.contains("routed_experts") && shape.len() == 2)
}

/// What changes after the tensors were created, by rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    /// Not counted, whatever becomes of them.
    ScalesOfOneValue,
    /// `deepgemm_post_process_fp8_weight_block`.
    ScalesPackedForDeepGemm,
    /// `_upcast_e8m0_to_fp32`.
    ScalesWidened,
    /// `convert_gpt_oss_weight_to_mxfp4_moe_kernel_format`.
    BiasesOfExpertsWidened,
    /// `_swizzle_mxfp4`.
    ScalesSwizzledForTriton,
    /// `prepare_nvfp4_moe_layer_for_fi_or_cutlass`, `prepare_nvfp4_moe_layer_for_marlin`: widths that kernels want in multiples, and a
    /// group that shares a scale but is cut by the ranks.
    ExpertsPadded,
    /// `MLAAttention.process_weights_after_loading`: the halves of a quantised up-projection, multiplied out.
    LatentProjectionsMultipliedOut,
}

impl Row {
    /// Rows of the matrix that a scale belongs to.
    fn rows_of(&self, scale: &str) -> Option<u64> {
        let matrix = scale.strip_suffix("_scale_inv")?;
        self.tensors.iter().find(|(name, ..)| name == matrix).map(|(_, shape, ..)| shape[0])
    }

    /// Bytes of an NVFP4 tensor of one layer's experts as its kernel keeps it: outputs by packed inputs, or by their groups of 16.
    fn padded(&self, name: &str, shape: &[u64]) -> u64 {
        let experts = name.rsplit_once('.').expect("a tensor has a module").0;
        let extent = |tensor: &str, axis: usize| {
            self.tensors.iter().find(|(other, ..)| *other == format!("{experts}.{tensor}")).expect("experts have both matrices").1[axis]
        };
        let (outputs, width, hidden) = (extent("w13_weight", 1), 2 * extent("w2_weight", 2), extent("w2_weight", 1));
        let gated = outputs == 2 * width;
        let (width, hidden) = if self.backend("nvfp4_backend") == Some("FLASHINFER_TRTLLM") {
            (width.next_multiple_of(if gated { 64 } else { 128 }), hidden.next_multiple_of(256))
        } else {
            (width, hidden)
        };
        let (rows, depth) = if name.contains("w13") { (width * if gated { 2 } else { 1 }, hidden) } else { (hidden, width) };
        shape[0] * rows * if name.ends_with("scale") { depth.div_ceil(16) } else { depth / 2 }
    }

    /// Bytes of each part once weights are loaded.
    fn resident(&self, used: &mut BTreeSet<Later>) -> BTreeMap<&'static str, u64> {
        let mut parts = sums(self.tensors.iter().map(|tensor| (part_of(&tensor.0), kept(self, tensor, used))));
        for (name, shape, kind, count) in &self.tensors {
            if name.ends_with("kv_b_proj.weight") && kind == "float8_e4m3fn" {
                used.insert(Later::LatentProjectionsMultipliedOut);
                *parts.entry("attention").or_default() += shape.iter().product::<u64>() * 2 * count;
            }
        }
        parts
    }

    /// Compares a part; an encoder's norms, biases and tables of positions, which no rank shares, are shared by the port's rule.
    fn agrees(&self, part: &str, found: u64, expected: u64) -> bool {
        found == expected || (part == "encoder" && self.ranks > 1 && found < expected && expected - found < ENCODER_WHOLE_MOST)
    }
}

/// Most bytes of an encoder's tensors that every rank holds whole.
const ENCODER_WHOLE_MOST: u64 = 16 << 20;

#[test]
fn every_catalog_model_keeps_what_upstream_allocates_on_each_rank() {
    let recording = recording();
    let (mut differences, mut used) = (Vec::new(), BTreeSet::new());
    for row in &recording.rows {
        let plan = match (row.plan(), &row.refused) {
            (Ok(plan), None) => plan,
            (Err(_), Some(_)) => continue,
            (found, refused) => {
                differences.push(format!("{}: port {:?}, upstream {refused:?}", row.name(), found.err()));
                continue;
            }
        };
        let theirs = row.resident(&mut used);
        let ours = sums(plan.weights.iter().map(|tensor| (part_of_ours(&tensor.name), tensor.bytes.get() * u64::from(tensor.count))));
        for part in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
            let (found, expected) = (ours.get(part).copied().unwrap_or(0), theirs.get(part).copied().unwrap_or(0));
            if !row.agrees(part, found, expected) {
                differences.push(format!("{}: {part}: port {found}, upstream {expected}", row.name()));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    assert_eq!(used.len(), 7, "each rule of what changes later applies somewhere: {used:?}");
}

#[test]
fn the_recording_covers_the_catalog() {
    let recording = recording();
    let cases = |model: &str| recording.rows.iter().filter(|row| row.model == model && !row.expert_parallel).count();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog/models");
    for entry in fs::read_dir(folder).expect("the catalog can be listed") {
        let name = entry.expect("a folder can be listed").file_name().into_string().expect("models have plain names");
        assert_eq!(
            cases(&name),
            if recording.unreadable.contains_key(&name) { 0 } else { 2 * 4 },
            "{name} at four numbers of ranks on two GPUs"
        );
    }
    let layouts: BTreeSet<(u32, u32)> = recording.rows.iter().filter(|row| row.expert_parallel).map(|row| (row.ranks, row.cores)).collect();
    assert_eq!(layouts, BTreeSet::from([(8, 1), (4, 2), (1, 8)]), "ranks and engine cores that share experts whole");
    assert!(recording.rows.iter().all(|row| row.bytes > 0 || row.refused.is_some()), "whatever is built weighs something");
}
