"""What stands outside the engine: the virtual clock, the GPU's answers about itself, and the compiled modules that cannot load.

Import this before any other vllm module. Everything here is listed in mocks.json.
"""

import json
import os
import sys
import types
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.update(json.loads((Path(__file__).parent / "mocks.json").read_text())["environment"]["values"])
if os.environ.get("PYTHONHASHSEED") != "0":
    sys.exit("PYTHONHASHSEED must be 0 before Python starts (run through oracle-python)")

import mocks  # noqa: E402

for _name in (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm._qutlass_C",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
):
    mocks.patch(f"sys.modules[{_name}]", types.ModuleType(_name))

from vllm.platforms.cuda import CudaPlatformBase  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402

MIB = 1 << 20
# Memory as nvidia-smi prints it, in MiB.
GPUS = {
    "a100": {"name": "NVIDIA A100-SXM4-80GB", "capability": [8, 0], "memory_bytes": 81_920 * MIB, "sms": 108},
    "h100": {"name": "NVIDIA H100 80GB HBM3", "capability": [9, 0], "memory_bytes": 81_559 * MIB, "sms": 132},
    "h200": {"name": "NVIDIA H200", "capability": [9, 0], "memory_bytes": 143_771 * MIB, "sms": 132},
    "b200": {"name": "NVIDIA B200", "capability": [10, 0], "memory_bytes": 183_359 * MIB, "sms": 148},
    "b300": {"name": "NVIDIA B300 SXM6 AC", "capability": [10, 3], "memory_bytes": 275_040 * MIB, "sms": 148},
    "l4": {"name": "NVIDIA L4", "capability": [8, 9], "memory_bytes": 23_034 * MIB, "sms": 58},
    "l40s": {"name": "NVIDIA L40S", "capability": [8, 9], "memory_bytes": 46_068 * MIB, "sms": 142},
    "rtx5090": {"name": "NVIDIA GeForce RTX 5090", "capability": [12, 0], "memory_bytes": 32_607 * MIB, "sms": 170},
}


class GpuPlatform(CudaPlatformBase):
    """A CUDA platform that answers from the scenario's `gpu`."""

    gpu: dict = GPUS["h100"]

    @classmethod
    def get_device_capability(cls, device_id=0):
        return DeviceCapability(*cls.gpu["capability"])

    @classmethod
    def get_device_name(cls, device_id=0):
        return cls.gpu["name"]

    @classmethod
    def get_device_total_memory(cls, device_id=0):
        return cls.gpu["memory_bytes"]

    @classmethod
    def num_compute_units(cls, device_id=0):
        return cls.gpu["sms"]

    @classmethod
    def device_count(cls):
        return 8

    @classmethod
    def is_fully_connected(cls, device_ids):
        return True

    @classmethod
    def current_device(cls):
        return "meta"

    @classmethod
    def is_integrated_gpu(cls, device_id=0):
        return False

    @classmethod
    def get_device_uuid(cls, device_id=0):
        return f"GPU-{device_id}"

    @classmethod
    def get_device_numa_node(cls, device_id=0):
        return None

    @classmethod
    def get_all_device_numa_nodes(cls):
        return None

    def get_global_graph_pool(self):
        return None


import vllm.platforms  # noqa: E402, F401

mocks.patch("vllm.platforms._current_platform", GpuPlatform())

import torch  # noqa: E402
import vllm._custom_ops as _ops  # noqa: E402

for _name in dir(_ops):
    # Where the compiled modules are loaded (meta.py) they answer for themselves.
    if _name.startswith(("cutlass_", "marlin_")) and "support" in _name and not hasattr(torch.ops._C, _name):
        mocks.patch(f"vllm._custom_ops.{_name}", lambda capability, *rest: capability >= 90)


class Clock:
    """Virtual time in integer microseconds; stands in for the `time` module where the engine reads or spends time."""

    def __init__(self) -> None:
        self.now_us = 0

    def advance_to(self, at_us: int) -> None:
        self.now_us = max(self.now_us, at_us)

    def sleep(self, seconds: float) -> None:
        self.now_us += round(seconds * 1_000_000)

    def time(self) -> float:
        return self.now_us / 1_000_000

    monotonic = perf_counter = time


def install_clock(clock: Clock | None = None) -> Clock:
    clock = clock or Clock()
    for module in ("vllm.v1.engine.core", "vllm.v1.core.sched.scheduler", "vllm.v1.request"):
        mocks.patch(f"{module}.time", clock)
    return clock
