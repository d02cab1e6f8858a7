//! Which kernels are launched as programmatic dependents, and so may begin while the kernel before them drains.
//!
//! upstream: vllm `platforms/cuda.py::CudaPlatformBase.is_arch_support_pdl`, `utils/deep_gemm.py::_apply_pdl`
//!
//! A kernel stands here if its launch sets the attribute and its code waits for the kernel before it: read in sources, or where there are none in
//! the wheels' binaries. Of several kernels under one name the first counts: attention begins with what
//! writes keys and values to the cache, which is not. Measured runs of earlier releases launched as those did.
//! Left out: kernels of closed libraries, of which nothing shows how they are launched; vLLM's quantisation, which is launched so
//! for some formats alone; the down projections of latent attention, whose caller asks for it in models the catalog does not have.

use blis_contracts::plan::Start;

use super::names::{
    CSRC_QK_NORM_ALL_REDUCE, CSRC_QK_NORM_ROPE_INSERT, CSRC_ROUTER, CUTEDSL_FEW_ROWS_ROUTER, CUTEDSL_MSA_INDEX_DECODE, CUTEDSL_ROUTER,
    DEEPGEMM_FP8_BLOCK, DEEPGEMM_PAGED_SCORES, DEEPGEMM_PAGED_TOKEN_SCORES, DEEPGEMM_SCORES, DEEPGEMM_TOKEN_SCORES, FLASHINFER_ALL_REDUCE,
    FLASHINFER_CUTEDSL_BF16, FLASHINFER_CUTEDSL_MXFP8, FLASHINFER_CUTEDSL_NVFP4, FLASHINFER_CUTLASS_EXPERTS, FLASHINFER_CUTLASS_MXFP8,
    FLASHINFER_CUTLASS_NVFP4, FLASHINFER_FP8, FLASHINFER_MXFP8_QUANTISE, FLASHINFER_NORM, FUSED_ALL_REDUCE_NORM, FUSED_INVERSE_ROTATION,
    FUSED_KEY_INSERT, KernelName, MHC_IN, MHC_OUT, MHC_OUT_IN, TRITON_CAUSAL_CONV, TRITON_CAUSAL_CONV_UPDATE, TRITON_LATENT_NORM_ROPE,
    TRITON_LATENT_QUERY, TRITON_MSA_DECODE, TRITON_MSA_INDEX_DECODE, TRITON_QK_LATENT_NORM, TRTLLM_EXPERTS, TRTLLM_SPARSE_MLA,
    TRTLLM_UNTUNED_EXPERTS,
};
use super::site::Site;
use crate::config::Release;

/// The least compute capability that has such launches.
const LEAST_CAPABILITY: (u32, u32) = (9, 0);

/// Kernels launched so, under the first release that was read and did it; what an earlier kernel of the same purpose did counts as well.
const SINCE: [(Release, &[KernelName]); 7] = [
    (
        Release::new([0, 10, 2]),
        &[FUSED_ALL_REDUCE_NORM, TRTLLM_EXPERTS, TRTLLM_UNTUNED_EXPERTS, FLASHINFER_CUTLASS_EXPERTS, FLASHINFER_MXFP8_QUANTISE],
    ),
    (
        Release::new([0, 22, 0]),
        &[
            FLASHINFER_ALL_REDUCE,
            CSRC_QK_NORM_ALL_REDUCE,
            FLASHINFER_CUTEDSL_NVFP4,
            FLASHINFER_CUTLASS_NVFP4,
            FLASHINFER_CUTEDSL_MXFP8,
            FLASHINFER_CUTLASS_MXFP8,
            FLASHINFER_FP8,
            FUSED_KEY_INSERT,
            MHC_OUT,
            MHC_OUT_IN,
        ],
    ),
    (
        Release::new([0, 25, 0]),
        &[
            CSRC_ROUTER,
            CSRC_QK_NORM_ROPE_INSERT,
            DEEPGEMM_FP8_BLOCK,
            DEEPGEMM_SCORES,
            DEEPGEMM_PAGED_SCORES,
            DEEPGEMM_TOKEN_SCORES,
            DEEPGEMM_PAGED_TOKEN_SCORES,
            FLASHINFER_NORM,
            FUSED_INVERSE_ROTATION,
            MHC_IN,
            TRITON_MSA_DECODE,
            TRITON_MSA_INDEX_DECODE,
            CUTEDSL_MSA_INDEX_DECODE,
        ],
    ),
    (Release::new([0, 26, 0]), &[CUTEDSL_ROUTER, CUTEDSL_FEW_ROWS_ROUTER]),
    (Release::new([0, 27, 0]), &[TRITON_QK_LATENT_NORM, TRITON_CAUSAL_CONV, TRITON_CAUSAL_CONV_UPDATE]),
    (Release::new([0, 28, 0]), &[TRITON_LATENT_NORM_ROPE, TRITON_LATENT_QUERY]),
    (Release::new([0, 32, 0]), &[FLASHINFER_CUTEDSL_BF16, TRTLLM_SPARSE_MLA]),
];

/// When a kernel may begin.
pub(super) fn start(site: &Site<'_>, kernel: KernelName) -> Start {
    let since = SINCE.iter().find(|(_, kernels)| kernels.contains(&kernel)).map(|(since, _)| *since);
    let ran = site.resolved.rules.ran;
    let launched_so = site.capability >= LEAST_CAPABILITY && since.is_some_and(|since| ran.is_none_or(|ran| since <= ran));
    if launched_so { Start::Dependent } else { Start::Ordered }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_one_row_and_releases_rise() {
        let mut named: Vec<KernelName> = SINCE.iter().flat_map(|(_, kernels)| kernels.iter().copied()).collect();
        let rows = named.len();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), rows);
        assert!(SINCE.is_sorted_by(|a, b| a.0 < b.0));
    }
}
