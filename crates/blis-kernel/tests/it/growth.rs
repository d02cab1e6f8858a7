//! The law of growth, checked on every kernel of the shipped registry: at a fixed kernel and launch mode, more rows, more requests, longer
//! prompts and longer contexts never cost less; nor is anything moved faster than memory that no cache holds (SUB-5 of the design).

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use blis_contracts::format::FormatName;
use blis_contracts::plan::{Dealing, LoweredLayer, PoolPlan, Primitive, PrimitiveShape, RowSet};
use blis_contracts::step::{Launch, PrefillRow, RankStep};
use blis_kernel::CompiledPlan;
use blis_registry::entry::Entry;

use crate::fixture::{CHIPS, chip, mixture, model, step};
use crate::properties::{compiled, format_of, microseconds, mixtures, products, scoped_work};

/// Primitives whose tables themselves have less time for more requests, with the most that a price falls by: what gathers entries stops
/// cutting contexts into parts behind 32 requests.
const TABLES_FALL: &[(Primitive, f64)] = &[(Primitive::SparseDecode, 0.25)];

/// Sizes on which the law is checked: all of them at first, then each a twentieth more than the one before.
fn growing(most: u32) -> impl Iterator<Item = u32> + Clone {
    (1..=160).chain(std::iter::successors(Some(168), |&size| Some(size + size / 20))).take_while(move |&size| size <= most)
}

/// The largest fall along growing work, with what it is a fall at.
type Fall = Option<(f64, String)>;

/// Work that grows in one way, over rows of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    Rows,
    Requests,
    Contexts,
    Prompts,
}

/// In which ways a primitive's work grows; in none where nothing of a step makes it grow.
const fn growths(primitive: Primitive) -> &'static [Growth] {
    match primitive {
        Primitive::Gemm
        | Primitive::BatchedGemm
        | Primitive::MoeExperts
        | Primitive::AllReduce
        | Primitive::AllGather
        | Primitive::ReduceScatter
        | Primitive::AllToAll
        | Primitive::Send
        | Primitive::Norm
        | Primitive::Activation
        | Primitive::Rope
        | Primitive::Embedding
        | Primitive::Convolution
        | Primitive::RecurrentDecode
        | Primitive::Sampling => &[Growth::Rows],
        Primitive::AttentionDecode | Primitive::LatentDecode | Primitive::SparseDecode | Primitive::SelectionDecode => {
            &[Growth::Requests, Growth::Contexts]
        }
        Primitive::AttentionPrefill
        | Primitive::LatentPrefill
        | Primitive::SparsePrefill
        | Primitive::SelectionPrefill
        | Primitive::RecurrentPrefill
        | Primitive::RecurrentScan => &[Growth::Prompts],
        Primitive::Beside => &[],
    }
}

impl Growth {
    const fn rows(self) -> RowSet {
        match self {
            Self::Rows => RowSet::Tokens,
            Self::Requests | Self::Contexts | Self::Prompts => RowSet::Requests,
        }
    }

    /// The largest fall of a plan's price along it.
    fn fall(self, plan: &mut CompiledPlan) -> Fall {
        match self {
            Self::Rows => over_rows(plan),
            Self::Requests => over_requests(plan),
            Self::Contexts => over_contexts(plan),
            Self::Prompts => over_prompts(plan),
        }
    }

    /// The most that a price falls by where the tables do.
    fn admitted(self, primitive: Primitive) -> f64 {
        let listed = TABLES_FALL.iter().find(|(other, _)| *other == primitive && self == Self::Requests);
        listed.map_or(0.0, |(_, most)| *most)
    }
}

/// Shapes from small to large of what an entry prices.
fn shapes(primitive: Primitive, entry: &Entry) -> Vec<PrimitiveShape> {
    let format = format_of(entry);
    match primitive {
        Primitive::Gemm => products(entry),
        Primitive::BatchedGemm => [(16, 512, 128), (128, 128, 512)]
            .map(|(batch, columns, depth)| PrimitiveShape::BatchedGemm { batch, columns, depth, format })
            .to_vec(),
        Primitive::MoeExperts => mixtures(entry),
        Primitive::AllReduce | Primitive::AllGather | Primitive::ReduceScatter | Primitive::AllToAll | Primitive::Send => {
            let group = entry.group.unwrap_or(8);
            [8, 5_760, 16_384, 131_072].map(|bytes_per_row| PrimitiveShape::Collective { group, bytes_per_row }).to_vec()
        }
        Primitive::Norm
        | Primitive::Activation
        | Primitive::Rope
        | Primitive::Embedding
        | Primitive::Convolution
        | Primitive::RecurrentDecode => {
            [1_024, 11_520, 100_000, 12_000_000].map(|bytes_per_row| PrimitiveShape::Stream { bytes_per_row }).to_vec()
        }
        Primitive::Sampling => vec![PrimitiveShape::Sampling { vocabulary: 201_088, trial_bytes: 2 }],
        Primitive::AttentionDecode | Primitive::AttentionPrefill => attention(format.weights),
        Primitive::LatentDecode => [16, 128].map(|heads| latent(heads, 1, (576, 512), format.weights)).to_vec(),
        Primitive::LatentPrefill => [16, 128].map(|heads| latent(heads, heads, (192, 128), format.weights)).to_vec(),
        Primitive::SparseDecode | Primitive::SparsePrefill => gathered(),
        Primitive::SelectionDecode | Primitive::SelectionPrefill => scores(),
        Primitive::RecurrentPrefill => vec![PrimitiveShape::Recurrent { heads: 64, state_elements: 1 << 14 }],
        Primitive::RecurrentScan => vec![PrimitiveShape::Scan { bytes_per_token: 100_000, bytes_per_row: 12_000_000 }],
        Primitive::Beside => Vec::new(),
    }
}

fn attention(kv_format: FormatName) -> Vec<PrimitiveShape> {
    let (kv_group, chunk, sinks, dealing) = (0, 0, false, Dealing::Evenly);
    let shape = |(query_heads, kv_heads, head_dim, window)| PrimitiveShape::Attention {
        query_heads,
        kv_heads,
        head_dim,
        kv_group,
        window,
        chunk,
        sinks,
        kv_format,
        dealing,
    };
    [(64, 8, 64, 0), (64, 8, 64, 128), (8, 1, 128, 0), (32, 8, 128, 0), (16, 2, 256, 0)].map(shape).to_vec()
}

fn latent(query_heads: u32, kv_heads: u32, (key_dim, value_dim): (u32, u32), format: FormatName) -> PrimitiveShape {
    PrimitiveShape::Latent { query_heads, kv_heads, key_dim, value_dim, kv_group: 0, format }
}

fn gathered() -> Vec<PrimitiveShape> {
    let (query_heads, multiplied) = (64, FormatName::Bf16);
    let shape = |(head_dim, entry_bytes, window, ratio, top_k)| PrimitiveShape::Gathered {
        query_heads,
        head_dim,
        entry_bytes,
        window,
        ratio,
        top_k,
        multiplied,
    };
    [(512, 584, 128, 4, 512), (512, 584, 128, 128, 0), (576, 656, 0, 1, 2_048)].map(shape).to_vec()
}

/// Rows of few entries are ranked by another kernel of the library, pair by pair; these are of many.
fn scores() -> Vec<PrimitiveShape> {
    let (heads, head_dim, entry_bytes, ranked, multiplied) = (64, 128, 132, 0, FormatName::Fp8);
    let shape = |(ratio, top_k)| PrimitiveShape::Scores { heads, head_dim, entry_bytes, ratio, top_k, ranked, multiplied };
    [(4, 512), (1, 2_048)].map(shape).to_vec()
}

/// The largest fall of a price along growing work, as a share of the most that less of it costs, and where it is.
fn largest_fall<Size>(prices: impl Iterator<Item = (Size, f64)>) -> Option<(f64, Size)> {
    let mut most: f64 = 0.0;
    let falls = prices.map(|(size, price)| {
        most = most.max(price);
        (1.0 - price / most, size)
    });
    falls.filter(|fall| fall.0 > 1e-9).max_by(|a, b| a.0.total_cmp(&b.0))
}

fn over_rows(plan: &mut CompiledPlan) -> Fall {
    let fall = largest_fall(growing(20_000).map(|rows| (rows, microseconds(plan, rows))));
    fall.map(|(fall, rows)| (fall, format!("{rows} rows")))
}

fn decodes(plan: &mut CompiledPlan, requests: u32, context: u32) -> f64 {
    let decode = vec![context; requests as usize];
    let rank = RankStep { decode, padded_tokens: requests, sampled: requests, launch: Launch::Full, ..RankStep::default() };
    plan.price(&step(rank)).device_ns
}

fn over_requests(plan: &mut CompiledPlan) -> Fall {
    let falls = [16, 512, 4_000, 60_000].map(|context| {
        let fall = largest_fall(growing(512).map(|requests| (requests, decodes(plan, requests, context))));
        fall.map(|(fall, requests)| (fall, format!("{requests} requests of {context} tokens")))
    });
    falls.into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0))
}

fn over_contexts(plan: &mut CompiledPlan) -> Fall {
    let falls = [1, 16, 128].map(|requests| {
        let fall = largest_fall(growing(200_000).map(|context| (context, decodes(plan, requests, context))));
        fall.map(|(fall, context)| (fall, format!("{requests} requests of {context} tokens")))
    });
    falls.into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0))
}

fn over_prompts(plan: &mut CompiledPlan) -> Fall {
    let mut price = |prompts: u32, query: u32, context: u32| {
        let prefill = vec![PrefillRow { query, context }; prompts as usize];
        let rank = RankStep { prefill, padded_tokens: prompts * query, sampled: prompts, launch: Launch::Eager, ..RankStep::default() };
        ((prompts, query, context), plan.price(&step(rank)).device_ns)
    };
    let longer = [0, 4_096].map(|context| largest_fall(growing(16_000).skip(1).map(|query| price(1, query, context))));
    let further = [2, 64, 1_024].map(|query| largest_fall(growing(100_000).map(|context| price(1, query, context))));
    let more = [16, 500].map(|query| largest_fall((1..=40).map(|prompts| price(prompts, query, 0))));
    let worst = longer.into_iter().chain(further).chain(more).flatten().max_by(|a, b| a.0.total_cmp(&b.0));
    worst.map(|(fall, (prompts, query, context))| (fall, format!("{prompts} prompts of {query} tokens behind {context}")))
}

#[test]
fn more_work_never_costs_less_at_a_fixed_kernel() {
    let (mut faults, mut admitted) = (Vec::new(), BTreeSet::new());
    for name in CHIPS {
        for primitive in Primitive::ALL.into_iter().filter(|&primitive| !growths(primitive).is_empty()) {
            for work in scoped_work(name, primitive.into(), primitive, &|entry| shapes(primitive, entry)) {
                for growth in growths(primitive) {
                    let work = LoweredLayer { rows: growth.rows(), ..work.clone() };
                    match growth.fall(&mut compiled(name, &work)) {
                        None => {}
                        Some((fall, _)) if fall <= growth.admitted(primitive) => {
                            admitted.insert(primitive);
                        }
                        Some((fall, at)) => faults.push(format!("{name}: {work:?} falls by {fall} at {at}")),
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(admitted, TABLES_FALL.iter().map(|(primitive, _)| *primitive).collect(), "the list may only shrink");
}

#[test]
fn a_prompt_beside_decodes_never_costs_less_than_the_decodes_alone() {
    let mut checked = 0;
    for name in CHIPS {
        let prompts = scoped_work(name, Primitive::AttentionPrefill.into(), Primitive::AttentionPrefill, &|entry| {
            shapes(Primitive::AttentionPrefill, entry)
        });
        for dealing in [Dealing::Evenly, Dealing::InTurn { parts_in_graph: NonZeroU32::new(32).unwrap() }] {
            for prompt in &prompts {
                let PrimitiveShape::Attention { query_heads, kv_heads, head_dim, kv_group, window, chunk, sinks, kv_format, .. } =
                    prompt.shape
                else {
                    panic!("{prompt:?}")
                };
                let shape =
                    PrimitiveShape::Attention { query_heads, kv_heads, head_dim, kv_group, window, chunk, sinks, kv_format, dealing };
                let work = |primitive| LoweredLayer { primitive, shape, rows: RowSet::Requests, ..prompt.clone() };
                let layers = vec![work(Primitive::AttentionDecode), work(Primitive::AttentionPrefill)];
                let mut plan = model(name).compile(&PoolPlan { layers, ..mixture(name) }).unwrap();
                for contexts in [vec![30_000], vec![30_000; 4], vec![500; 64], (0..64).map(|request| 400 * request).collect()] {
                    let mut price = |prefill: Vec<PrefillRow>| {
                        let rank = RankStep { decode: contexts.clone(), prefill, sampled: 1, padded_tokens: 1, launch: Launch::Eager };
                        plan.price(&step(rank)).device_ns
                    };
                    let mut before = price(Vec::new());
                    for query in [1, 16, 500] {
                        let beside = price(vec![PrefillRow { query, context: 0 }]);
                        assert!(
                            beside >= before,
                            "{name}: {prompt:?} with {query} tokens beside {contexts:?}: {beside} ns, {before} with fewer"
                        );
                        before = beside;
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 0);
}

/// Primitives that only read and write.
const STREAMS: [Primitive; 6] =
    [Primitive::Norm, Primitive::Activation, Primitive::Rope, Primitive::Embedding, Primitive::Convolution, Primitive::RecurrentDecode];

/// Of the second-level cache's bytes: what moves more than this is not found in it.
const BEYOND_CACHE: f64 = 4.0;

#[test]
fn what_no_cache_holds_moves_no_faster_than_memory() {
    for name in CHIPS {
        let facts = chip(name);
        let (cache, bandwidth) = (facts.l2_cache.value.get() as f64, facts.memory_bandwidth.value.get() / 1e6);
        for primitive in STREAMS {
            for work in scoped_work(name, primitive.into(), primitive, &|entry| shapes(primitive, entry)) {
                let PrimitiveShape::Stream { bytes_per_row } = work.shape else { panic!("{work:?}") };
                let mut plan = compiled(name, &work);
                for rows in growing(40_000).filter(|&rows| f64::from(rows) * bytes_per_row as f64 > BEYOND_CACHE * cache) {
                    let rate = f64::from(rows) * bytes_per_row as f64 / microseconds(&mut plan, rows);
                    assert!(rate <= bandwidth, "{name} {work:?} at {rows} rows: {} of memory's rate", rate / bandwidth);
                }
            }
        }
    }
}
