//! Grouping, block counts and refusals at start-up.

use super::*;

const FULL: Attention = Attention::Full;
const WINDOW: Attention = Attention::SlidingWindow { window: 128 };

fn layers(kinds: &[Attention]) -> Vec<LayerKv> {
    let layer =
        |(index, attention): (usize, &Attention)| LayerKv { name: format!("layers.{index}"), attention: *attention, bytes_per_token: 4096 };
    kinds.iter().enumerate().map(layer).collect()
}

fn input(kinds: &[Attention], available_bytes: u64) -> SizingInput {
    SizingInput {
        layers: layers(kinds),
        block_size: 16,
        max_model_len: 1024,
        max_model_len_fits_memory: false,
        max_in_flight_tokens: 256,
        disable_hybrid_kv_cache_manager: false,
        available_bytes,
        allocatable_bytes: 1 << 36,
        num_gpu_blocks_override: None,
        prefix_cache_retention_interval: Some(0),
        watermark: 0.0,
        enable_prefix_caching: true,
    }
}

fn grouped(kinds: &[Attention]) -> Vec<Vec<usize>> {
    group_layers(&layers(kinds), false).unwrap().into_iter().map(|group| group.layers).collect()
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
    let groups = group_layers(&layers(&[WINDOW, FULL]), true).unwrap();
    assert_eq!(groups, [LayerGroup { layers: vec![0, 1], attention: FULL, window: Some(128) }]);
    let other = Attention::SlidingWindow { window: 64 };
    assert_eq!(group_layers(&layers(&[WINDOW, FULL, other]), true), Err(KvSizingError::MixedWindows));
    assert_eq!(group_layers(&layers(&[WINDOW, other]), true), Err(KvSizingError::CannotPromote));
}

#[test]
fn layers_with_pages_of_different_sizes_are_refused() {
    let mut unequal = layers(&[FULL, FULL]);
    unequal[1].bytes_per_token = 8192;
    let error = group_layers(&unequal, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layers `layers.0` and `layers.1` store 4096 and 8192 bytes of KV per token; layers that differ in this are not modelled"
    );
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
    let expected =
        KvSizingError::RequestDoesNotFit { max_model_len: 1024, needed: 8_388_608, available: 8_388_607, estimated_max_model_len: 1008 };
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
    assert!(matches!(size(&stated), Err(KvSizingError::RequestDoesNotFit { .. })));
    stated.num_gpu_blocks_override = Some(1);
    assert_eq!(size(&stated), Err(KvSizingError::NoMemory));
}

#[test]
fn a_pool_that_the_device_cannot_hold_is_refused_however_it_is_stated() {
    let mut exact = input(&[FULL; 2], EXACT);
    exact.allocatable_bytes = EXACT;
    assert_eq!(size(&exact).unwrap().config.num_blocks, 65);
    exact.num_gpu_blocks_override = Some(66);
    assert_eq!(size(&exact), Err(KvSizingError::PoolDoesNotFit { needed: EXACT / 65 * 66, allocatable: EXACT }));
    let stated = input(&[FULL; 2], u64::MAX);
    assert!(matches!(size(&stated), Err(KvSizingError::PoolDoesNotFit { .. })));
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
    assert_eq!(size(&fitted), Err(KvSizingError::NothingFits));
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
