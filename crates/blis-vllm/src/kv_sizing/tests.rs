//! Grouping, block counts and refusals at start-up.

use super::*;

const FULL: Attention = Attention::Full;
const WINDOW: Attention = Attention::SlidingWindow { window: 128 };
const CHUNK: Attention = Attention::Chunked { chunk: 128 };

fn layers(kinds: &[Attention]) -> Vec<LayerKv> {
    let layer = |(index, attention): (usize, &Attention)| LayerKv {
        name: format!("layers.{index}"),
        attention: *attention,
        block_size: 16,
        page_bytes: 16 * 4096,
    };
    kinds.iter().enumerate().map(layer).collect()
}

fn input(kinds: &[Attention], available_bytes: u64) -> SizingInput {
    SizingInput {
        layers: layers(kinds),
        packs_pages: false,
        max_model_len: 1024,
        max_model_len_fits_memory: false,
        max_in_flight_tokens: 256,
        windows_count: 256,
        capacity: CapacityCount::LongestRequests,
        disable_hybrid_kv_cache_manager: false,
        available_bytes,
        bytes_stated: false,
        allocatable_bytes: 1 << 36,
        num_gpu_blocks_override: None,
        prefix_cache_retention_interval: Some(0),
        watermark: 0.0,
        enable_prefix_caching: true,
    }
}

fn grouped(kinds: &[Attention]) -> Vec<Vec<usize>> {
    group_layers(&layers(kinds), false, false).unwrap().into_iter().map(|group| group.layers).collect()
}

#[test]
fn the_greatest_length_is_among_those_that_may_fit() {
    assert_eq!([0, 7, 9, 10, 99].map(|most| longest_fitting(10, |length| length <= most)), [0, 7, 9, 10, 10]);
}

#[test]
fn equal_layers_form_one_group() {
    assert_eq!(grouped(&[FULL; 4]), [[0, 1, 2, 3]]);
    assert_eq!(grouped(&[WINDOW; 2]), [[0, 1]]);
}

#[test]
fn alternating_layers_form_two_groups_in_order_of_appearance() {
    assert_eq!(grouped(&[WINDOW, FULL, WINDOW, FULL]), [[0, 2], [1, 3]]);
}

#[test]
fn the_rarer_kind_sets_the_group_size_and_the_others_are_dealt_out() {
    assert_eq!(grouped(&[WINDOW, WINDOW, WINDOW, FULL, WINDOW, WINDOW, WINDOW, FULL]), [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]);
}

#[test]
fn nearly_equal_kinds_are_padded_instead_of_split() {
    let kinds: Vec<_> = (0..25).map(|index| if index % 2 == 0 { FULL } else { WINDOW }).collect();
    let sizes: Vec<_> = grouped(&kinds).iter().map(Vec::len).collect();
    assert_eq!(sizes, [13, 12]);
    assert_eq!(grouped(&[FULL, FULL, FULL, WINDOW, WINDOW]), [vec![0, 2], vec![1], vec![3, 4]]);
}

#[test]
fn a_disabled_hybrid_manager_keeps_every_block_of_one_window() {
    let groups = group_layers(&layers(&[WINDOW, FULL]), true, false).unwrap();
    let both = LayerGroup {
        layers: vec![0, 1],
        attention: FULL,
        block_size: 16,
        bytes_per_block: 2 * 65_536,
        page_bytes: 65_536,
        window: Some(128),
    };
    assert_eq!(groups, [both]);
    let other = Attention::SlidingWindow { window: 64 };
    assert_eq!(group_layers(&layers(&[WINDOW, FULL, other]), true, false), Err(KvSizingError::MixedWindows));
    assert_eq!(group_layers(&layers(&[WINDOW, other]), true, false), Err(KvSizingError::CannotPromote));
}

#[test]
fn chunks_share_blocks_among_themselves_or_give_up_their_own() {
    assert_eq!(grouped(&[CHUNK, CHUNK, CHUNK, FULL]), [vec![0], vec![1], vec![2], vec![3]]);
    let promoted = |kinds: &[Attention]| group_layers(&layers(kinds), true, false);
    let one = promoted(&[CHUNK, CHUNK, FULL]).unwrap();
    assert_eq!((one.len(), one[0].layers.len(), one[0].attention, one[0].window), (1, 3, FULL, None));
    assert_eq!(promoted(&[WINDOW, CHUNK, FULL]).unwrap()[0].window, Some(128), "the first layer speaks for all");
    let other = Attention::Chunked { chunk: 64 };
    assert_eq!(promoted(&[CHUNK, FULL, other]), Err(KvSizingError::MixedWindows));
    assert_eq!(promoted(&[CHUNK, WINDOW]), Err(KvSizingError::CannotPromote));
}

#[test]
fn a_request_takes_a_chunk_and_what_is_in_flight_of_layers_with_chunks() {
    let mut stated = input(&[CHUNK, FULL], 1 << 30);
    assert_eq!(size(&stated).unwrap().blocks_per_request, (128 + 256) / 16 + 1024 / 16);
    stated.prefix_cache_retention_interval = Some(64);
    assert_eq!(size(&stated), Err(KvSizingError::RetentionWithoutWindow));
}

#[test]
fn layers_of_one_kind_share_a_group_whatever_their_pages() {
    let mut unequal = layers(&[FULL, FULL]);
    unequal[1].page_bytes = 1024;
    let groups = group_layers(&unequal, false, false).unwrap();
    assert_eq!((groups.len(), groups[0].bytes_per_block), (1, 65_536 + 1024));
}

#[test]
fn layers_of_two_kinds_with_pages_of_different_sizes_have_blocks_of_different_lengths() {
    let mut unequal = layers(&[FULL, WINDOW]);
    unequal[1].page_bytes = 16 * 1024;
    let groups = group_layers(&unequal, false, false).unwrap();
    let shape = |group: &LayerGroup| (group.attention, group.block_size, group.page_bytes);
    assert_eq!(groups.iter().map(shape).collect::<Vec<_>>(), [(FULL, 16, 65_536), (WINDOW, 64, 65_536)]);
    let sized = size(&SizingInput { layers: unequal.clone(), ..input(&[FULL], 1 << 30) }).unwrap();
    assert_eq!((sized.config.block_size, sized.config.hash_block_size()), (64, 16));
    let uncached = SizingInput { layers: unequal.clone(), enable_prefix_caching: false, ..input(&[FULL], 1 << 30) };
    assert_eq!(size(&uncached).unwrap().config.hash_block_size(), 64, "nothing is named");
    let one = group_layers(&unequal, true, false).unwrap();
    assert_eq!((one.len(), one[0].attention, one[0].bytes_per_block, one[0].window), (1, FULL, 65_536 + 16 * 1024, Some(128)));
    let error = group_layers(&unequal, true, true).unwrap_err().to_string();
    assert!(error.starts_with("layers `layers.0` and `layers.1` have pages of 65536 and 16384 bytes"), "{error}");
}

#[test]
fn prefixes_are_looked_up_in_blocks_of_several_lengths_only_where_all_attend_or_have_windows() {
    let mut chunked = layers(&[FULL, CHUNK]);
    chunked[0].page_bytes = 16 * 1024;
    let stated = SizingInput { layers: chunked, ..input(&[FULL], 1 << 30) };
    assert_eq!(size(&stated), Err(KvSizingError::CachedMixedBlocks { sizes: vec![64, 16] }));
}

/// 64 blocks for the longest request and the placeholder; a block of both layers is 128 KiB.
const EXACT: u64 = 65 * 2 * 16 * 4096;

#[test]
fn one_request_of_the_greatest_length_beside_the_placeholder_is_enough() {
    let sized = size(&input(&[FULL; 2], EXACT)).unwrap();
    assert_eq!((sized.config.num_blocks, sized.bytes_per_block, sized.blocks_per_request), (65, 131_072, 64));
    assert_eq!(sized.capacity_tokens, 1040);
}

#[test]
fn one_byte_less_is_refused_with_upstream_arithmetic() {
    let error = size(&input(&[FULL; 2], EXACT - 1)).unwrap_err();
    let expected = KvSizingError::RequestDoesNotFit {
        max_model_len: 1024,
        needed: 8_388_608,
        available: 8_388_607,
        estimated_max_model_len: 1008,
        remedy: Remedy::Memory,
    };
    assert_eq!(error, expected);
    let text = error.to_string();
    assert!(text.starts_with("To serve at least one request with the model's max seq len (1024), (0.01 GiB KV cache is needed"), "{text}");
    assert!(text.contains("the estimated maximum model length is 1008. Try increasing"), "{text}");
}

#[test]
fn an_override_is_checked_against_the_same_need() {
    let mut stated = input(&[FULL; 2], 1);
    stated.num_gpu_blocks_override = Some(65);
    assert_eq!(size(&stated).unwrap().config.num_blocks, 65);
    stated.num_gpu_blocks_override = Some(64);
    let told = size(&stated).unwrap_err().to_string();
    assert!(told.ends_with("raise `num_gpu_blocks_override` (64) to at least 65, or leave it out."), "{told}");
    stated.num_gpu_blocks_override = Some(1);
    assert_eq!(size(&stated), Err(KvSizingError::NoMemory(Remedy::Blocks { stated: 1, needed: 65 })));
    stated.max_model_len_fits_memory = true;
    assert_eq!(size(&stated), Err(KvSizingError::NothingFits(Remedy::Blocks { stated: 1, needed: 2 })));
}

#[test]
fn a_pool_that_the_device_cannot_hold_is_refused_however_it_is_stated() {
    let mut exact = input(&[FULL; 2], EXACT);
    exact.allocatable_bytes = EXACT;
    assert_eq!(size(&exact).unwrap().config.num_blocks, 65);
    exact.num_gpu_blocks_override = Some(66);
    assert_eq!(size(&exact), Err(KvSizingError::PoolDoesNotFit { needed: EXACT / 65 * 66, allocatable: EXACT, most_blocks: Some(65) }));
    assert!(size(&exact).unwrap_err().to_string().ends_with("; lower `num_gpu_blocks_override` to at most 65, or leave it out"));
    let stated = SizingInput { allocatable_bytes: EXACT, ..input(&[FULL; 2], u64::MAX) };
    assert!(size(&stated).unwrap_err().to_string().ends_with("; lower `kv_cache_memory_bytes` to at most 8519680, or leave it out"));
    for full in [SizingInput { allocatable_bytes: 131_071, ..exact }, SizingInput { allocatable_bytes: 0, ..stated }] {
        let told = size(&full).unwrap_err().to_string();
        assert!(told.ends_with("of the device; raise `--tensor-parallel-size` or serve a smaller checkpoint"), "{told}");
    }
}

#[test]
fn a_window_needs_the_tokens_in_flight_and_one_block_more() {
    let sized = size(&input(&[FULL, WINDOW], 1 << 30)).unwrap();
    assert_eq!(sized.blocks_per_request, 64 + (127_u32 + 256).div_ceil(16) + 1);
    assert_eq!(sized.bytes_per_block, 65_536);
}

#[test]
fn a_length_that_may_be_fitted_is_lowered_to_what_fits() {
    let mut fitted = input(&[FULL; 2], EXACT - 1);
    fitted.max_model_len_fits_memory = true;
    assert_eq!(size(&fitted).unwrap().config.max_model_len, 1008);
    fitted.available_bytes = 100;
    assert_eq!(size(&fitted), Err(KvSizingError::NothingFits(Remedy::Memory)));
    fitted.bytes_stated = true;
    assert_eq!(size(&fitted), Err(KvSizingError::NothingFits(Remedy::Bytes { stated: 100, needed: 2 * 131_072 })));
}

#[test]
fn retention_falls_on_blocks_and_needs_a_window() {
    let mut stated = input(&[FULL, WINDOW], 1 << 30);
    stated.prefix_cache_retention_interval = Some(64);
    assert_eq!(size(&stated).unwrap().config.retention, Retention::Interval(64));
    stated.prefix_cache_retention_interval = Some(65);
    assert_eq!(size(&stated), Err(KvSizingError::RetentionOffBlocks { interval: 65, block_size: 16 }));
    let mut full = input(&[FULL], 1 << 30);
    full.prefix_cache_retention_interval = Some(64);
    assert_eq!(size(&full), Err(KvSizingError::RetentionWithoutWindow));
}

#[test]
fn gibibytes_print_as_upstream_prints_them() {
    assert_eq!([0, 1 << 30, 3 << 29, 1_234_567_890].map(gib), ["0.0", "1.0", "1.5", "1.15"]);
}

/// The caches of one layer that compresses, in upstream's order: what queries are scored with, the window, what it keeps of `ratio`
/// tokens, and the projections that the next compressed vectors still need.
fn compressing(index: usize, ratio: u32) -> Vec<LayerKv> {
    let cache =
        |name: &str, attention, block_size, page_bytes| LayerKv { name: format!("{index}.{name}"), attention, block_size, page_bytes };
    let window = |window| Attention::SlidingWindow { window };
    if ratio == 128 {
        return vec![
            cache("window", window(128), 64, 37_440),
            cache("compressed", FULL, 256, 1_728),
            cache("state", window(128), 8, 32_832),
        ];
    }
    vec![
        cache("scores", FULL, 256, 4_608),
        cache("scores.state", window(8), 4, 8_640),
        cache("window", window(128), 64, 37_440),
        cache("compressed", FULL, 256, 37_440),
        cache("state", window(8), 4, 32_832),
    ]
}

#[test]
fn packed_pages_make_groups_of_equal_repeats_and_the_widest_sets_the_block() {
    let layers: Vec<LayerKv> = (0..61).flat_map(|index| compressing(index, if index == 0 || index % 2 == 1 { 128 } else { 4 })).collect();
    let packed = SizingInput {
        layers,
        packs_pages: true,
        max_model_len: 2304,
        max_in_flight_tokens: 4096,
        windows_count: 4096,
        allocatable_bytes: 100 << 30,
        enable_prefix_caching: false,
        ..input(&[FULL], 100 << 30)
    };
    let sized = size(&packed).unwrap();
    let shape = |group: &LayerGroup| (group.layers.len(), group.block_size, group.bytes_per_block);
    let window = |layers: u64| (usize::try_from(layers).unwrap(), 64, layers * 37_440);
    let full = 31 * 1_728 + 30 * (37_440 + 4_608);
    let expected = [window(31), window(30), (91, 256, full), (31, 8, 31 * 32_832), (60, 4, 30 * (32_832 + 8_640))];
    assert_eq!(sized.groups.iter().map(shape).collect::<Vec<_>>(), expected);
    assert_eq!(sized.bytes_per_block, full);
    assert_eq!(sized.blocks_per_request, 2 * (2304 / 64 + 1) + 2304 / 256 + (2304 / 8 + 1) + (2304 / 4 + 1));
    assert_eq!((sized.config.block_size, sized.config.num_blocks), (256, 81_652));
    assert_eq!(sized.config.hash_block_size(), 256, "nothing is named");
    let cached = size(&SizingInput { enable_prefix_caching: true, ..packed }).unwrap();
    assert_eq!((cached.config.block_size, cached.config.hash_block_size()), (256, 4), "hits end at 256 tokens, contents are named by 4");
}

#[test]
fn a_release_that_counts_one_step_for_a_window_fits_more_requests_and_admits_by_the_steps_in_flight() {
    let kinds = [FULL, WINDOW];
    let today = size(&input(&kinds, 1 << 30)).unwrap();
    let then = size(&SizingInput { windows_count: 128, ..input(&kinds, 1 << 30) }).unwrap();
    // 64 blocks see everything; 128 - 1 + 256 tokens of the window take 24 and one more, 128 - 1 + 128 take 16 and one more.
    assert_eq!((today.blocks_per_request, then.blocks_per_request), (64 + 25, 64 + 17));
    assert_eq!(then.config.max_in_flight_tokens, today.config.max_in_flight_tokens);
    assert!(then.capacity_tokens > today.capacity_tokens);
}

#[test]
fn a_release_that_counted_one_groups_share_of_the_blocks_says_so_many_tokens() {
    let counted = SizingInput { capacity: CapacityCount::BlocksOverGroups, ..input(&[FULL, WINDOW], 1 << 30) };
    let sized = size(&counted).unwrap();
    assert_eq!(sized.capacity_tokens, u64::from(sized.config.num_blocks / 2 * 16));
}
