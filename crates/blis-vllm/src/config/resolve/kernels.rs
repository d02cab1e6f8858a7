//! Choices among kernels and collectives, as stated or by default; lowering turns them into kernel names.
//!
//! upstream: vllm `engine/arg_utils.py::EngineArgs.create_engine_config` (kernel overrides), `envs.py`.

use serde_json::Value;

use super::ledger::Ledger;
use crate::config::choices::{FlashinferAllreduce, LinearBackend, MatmulPrecision, MoeBackend};
use crate::config::error::ConfigError;
use crate::config::resolved::{CompilationSettings, KernelSettings};
use crate::config::setting::Setting;

/// Bytes of FlashInfer's workspace unless stated. upstream: vllm `envs.py::VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE`.
const FLASHINFER_WORKSPACE_BYTES: u64 = 394 * 1024 * 1024;

pub(super) fn resolve(ledger: &mut Ledger<'_>) -> Result<KernelSettings, ConfigError> {
    let moe = preferred(ledger, Setting::MoeBackend, Setting::KernelConfigMoeBackend);
    let linear = preferred(ledger, Setting::LinearBackend, Setting::KernelConfigLinearBackend);
    let workspace = ledger.optional_count(Setting::VllmFlashinferWorkspaceBufferSize)?;
    if workspace.is_none() {
        ledger.derive(Setting::VllmFlashinferWorkspaceBufferSize, FLASHINFER_WORKSPACE_BYTES, "394 MiB");
    }
    Ok(KernelSettings {
        moe_backend: ledger.choice(moe, MoeBackend::named),
        moe_activation_mxfp8: !ledger.value(Setting::QuantizationConfigMoeActivation).is_null(),
        linear_backend: ledger.choice(linear, LinearBackend::named),
        enable_flashinfer_autotune: autotune(ledger)?,
        flashinfer_autotune_skip_ops: ledger.words(Setting::VllmFlashinferAutotuneSkipOps),
        disable_custom_all_reduce: ledger.flag(Setting::DisableCustomAllReduce),
        flashinfer_allreduce_backend: ledger.choice(Setting::VllmFlashinferAllreduceBackend, FlashinferAllreduce::named),
        allreduce_use_symm_mem: ledger.flag(Setting::VllmAllreduceUseSymmMem),
        allreduce_use_flashinfer: ledger.flag(Setting::VllmAllreduceUseFlashinfer),
        use_nccl_symm_mem: ledger.flag(Setting::VllmUseNcclSymmMem),
        use_deep_gemm: ledger.flag(Setting::VllmUseDeepGemm),
        moe_use_deep_gemm: ledger.flag(Setting::VllmMoeUseDeepGemm),
        asks_for_deep_gemm: asks_for_deep_gemm(ledger),
        blockscale_fp8_gemm_flashinfer: ledger.flag(Setting::VllmBlockscaleFp8GemmFlashinfer),
        disabled_kernels: ledger.words(Setting::VllmDisabledKernels),
        float32_matmul_precision: ledger.choice(Setting::VllmFloat32MatmulPrecision, MatmulPrecision::named),
        flashinfer_workspace_bytes: workspace.unwrap_or(FLASHINFER_WORKSPACE_BYTES),
    })
}

/// FlashInfer's kernels for one node cannot sum over ranks of several.
/// upstream: vllm `distributed/device_communicators/flashinfer_all_reduce.py::get_fi_ar_workspace`
pub(super) fn check_all_reduce(
    kernels: &KernelSettings,
    compilation: &CompilationSettings,
    several_nodes: bool,
) -> Result<(), ConfigError> {
    let asks = kernels.allreduce_use_flashinfer || compilation.passes.fuse_allreduce_rms;
    if several_nodes && asks && kernels.flashinfer_allreduce_backend == FlashinferAllreduce::Trtllm {
        let refusal = "Flashinfer allreduce is not supported for multi-node allreduce with 'trtllm' backend; use 'mnnvl' backend instead";
        return Err(ConfigError::Refused(refusal.to_owned()));
    }
    Ok(())
}

/// upstream: vllm `model_executor/layers/fused_moe/oracle/fp8.py::select_fp8_moe_backend`, which asks whether the variables are set
fn asks_for_deep_gemm(ledger: &mut Ledger<'_>) -> Option<&'static str> {
    let switches = [Setting::VllmUseDeepGemm, Setting::VllmMoeUseDeepGemm];
    let on = switches.iter().all(|&switch| ledger.flag(switch));
    switches.iter().find(|&&switch| on && ledger.stated(switch).is_some()).map(|switch| switch.key())
}

/// The flag, unless it is `auto`; then the key of `--kernel-config`.
fn preferred(ledger: &Ledger<'_>, flag: Setting, key: Setting) -> Setting {
    let names = |setting| ledger.stated(setting).and_then(Value::as_str).is_some_and(|backend| backend != "auto");
    if !names(flag) && names(key) { key } else { flag }
}

fn autotune(ledger: &mut Ledger<'_>) -> Result<bool, ConfigError> {
    let setting = ledger.either(Setting::EnableFlashinferAutotune, Setting::KernelConfigEnableFlashinferAutotune)?;
    if let Some(stated) = ledger.optional_flag(setting) {
        return Ok(stated);
    }
    let level = ledger.count(Setting::OptimizationLevel)?;
    ledger.derive(setting, level > 0, format!("optimization level {level}"));
    Ok(level > 0)
}
