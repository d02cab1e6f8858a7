//! Weights on each rank, against arithmetic over the checkpoint's own tensors.

use super::*;

fn resident(plan: &PoolPlan) -> u64 {
    plan.weights.iter().map(|tensor| tensor.bytes.get() * u64::from(tensor.count)).sum()
}

fn gpt_oss(ranks: u64, chip_name: &str, more: &str) -> u64 {
    resident(&Line("gpt-oss-120b", chip_name, &format!("--tensor-parallel-size {ranks} {more}")).plan())
}

/// What one rank keeps of gpt-oss-120b besides its experts, in bytes: 2 for every element.
fn besides_experts(ranks: u64) -> u64 {
    let (hidden, vocabulary, layers) = (2880, 201_088, 36);
    let embeddings = 2 * vocabulary / ranks * hidden;
    let heads = 64 / ranks;
    let columns = (heads + 2 * (8 / ranks)) * 64;
    let attention = columns * (hidden + 1) + hidden * (heads * 64 + 1) + heads;
    let router = 128 * (hidden + 1);
    2 * (embeddings + hidden + layers * (attention + router + 2 * hidden))
}

/// Experts of all layers with blocks of 32 4-bit elements and one scale, before biases.
fn experts(hidden: u64, width: u64) -> u64 {
    let elements = 2 * width * hidden + hidden * width;
    36 * 128 * (elements / 2 + elements / 32)
}

/// Biases of all experts at some bytes an element.
fn biases(hidden: u64, width: u64, bytes: u64) -> u64 {
    36 * 128 * (2 * width + hidden) * bytes
}

#[test]
fn gpt_oss_120b_on_marlin_keeps_its_checkpoint_with_padded_experts() {
    for (ranks, width) in [(1, 2944), (2, 1536), (4, 768), (8, 384)] {
        let expected = besides_experts(ranks) + experts(3072, width) + biases(3072, width, 2);
        assert_eq!(gpt_oss(ranks, "h200", "--moe-backend marlin"), expected, "{ranks} ranks");
    }
}

#[test]
fn gpt_oss_120b_on_blackwell_has_wide_biases() {
    for (ranks, width) in [(1, 2944), (2, 1536), (4, 768), (8, 384)] {
        let expected = besides_experts(ranks) + experts(3072, width) + biases(3072, width, 4);
        assert_eq!(gpt_oss(ranks, "b200", ""), expected, "{ranks} ranks");
    }
}

#[test]
fn earlier_releases_pad_tensorrt_llms_mxfp4_experts_to_256() {
    let ran = |release| resident(&Line("gpt-oss-120b", "b200", "--tensor-parallel-size 8").lower_as(Some(release)).unwrap());
    assert_eq!(ran("0.26.0"), besides_experts(8) + experts(3072, 512) + biases(3072, 512, 4));
    assert_eq!(ran("0.27.0"), gpt_oss(8, "b200", ""));
}

#[test]
fn gpt_oss_120b_on_triton_pads_widths_to_64_and_scales_to_tiles() {
    for (ranks, width) in [(1, 2880), (2, 1472), (4, 768), (8, 384)] {
        let width: u64 = width;
        let elements = 3 * width * 2880;
        // Rows of scales in tiles of 256, scales of a row in fours: 90 become 92.
        let scales = (2 * width).next_multiple_of(256) * 92 + 3072 * (width / 32).next_multiple_of(4);
        let expected = besides_experts(ranks) + 36 * 128 * (elements / 2 + scales) + biases(2880, width, 4);
        assert_eq!(gpt_oss(ranks, "h100", ""), expected, "{ranks} ranks");
    }
}

#[test]
fn on_one_rank_the_checkpoint_is_within_the_padding_of_what_is_resident() {
    let graph = model("gpt-oss-120b");
    // 4.25 bits for every weight of an expert, 16 for everything else.
    let expert_weights = 36 * 128 * 3 * 2880 * 2880;
    let checkpoint = expert_weights * 17 / 32 + (graph.parameters.total - expert_weights) * 2;
    let kept = gpt_oss(1, "h100", "");
    assert!(kept > checkpoint && kept < checkpoint + checkpoint / 50, "{kept} against {checkpoint}");
}

#[test]
fn unquantised_and_8_bit_models_keep_as_much_as_their_checkpoint() {
    let plain = resident(&Line("llama-3.1-8b-instruct", "h100", "").plan());
    assert_eq!(plain, 2 * model("llama-3.1-8b-instruct").parameters.total);
    let (hidden, layers, vocabulary) = (8192, 80, 128_256);
    let outside = 2 * (2 * vocabulary * hidden + hidden + layers * 2 * hidden);
    let narrow = resident(&Line("llama-3.1-70b-instruct-fp8", "h200", "").plan());
    let matrices = model("llama-3.1-70b-instruct-fp8").parameters.total - outside / 2;
    assert_eq!(narrow, outside + matrices);
    let four_bits = resident(&Line("llama-3.1-70b-instruct-fp4", "b200", "").plan());
    assert_eq!(four_bits, outside + matrices / 2 + matrices / 16);
}
