"""A GPU that holds shapes only: upstream's own model classes on meta tensors, one rank of a group that is not there.

Import this before any other vllm module. Upstream's compiled modules are loaded, so that every operation has its own
schema; none is ever launched. Packages that the release demands and the lock leaves out (they only compile kernels) are
empty stand-ins. Everything put in place is listed in mocks.json.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import tempfile
import types
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode

# Packages of the release's own requirements that hold compilers of kernels or image decoders.
ABSENT = ("cuda", "cutlass", "humming", "quack", "tilelang", "tokenspeed_mla", "torchvision")


class _Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __fspath__(cls):
        return "absent"

    def __iter__(cls):
        return iter(())


class Anything(metaclass=_Anything):
    """Whatever an absent package offers: may be called, subscripted, derived from and used as a decorator."""

    def __init__(self, *args, **options) -> None:
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __call__(self, *args, **options):
        return Anything()

    def __getitem__(self, key):
        return Anything

    def __iter__(self):
        return iter(())

    def __class_getitem__(cls, key):
        return cls


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the absent packages; each offers whatever is asked of it."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        def offered(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Anything

        module.__getattr__ = offered


_package = Path(importlib.util.find_spec("vllm").origin).parent
for _module in sorted(_package.glob("*.so")):
    if not _module.name.startswith(("cumem", "fs_io", "spinloop")):
        torch.ops.load_library(str(_module))

import engine  # noqa: E402
import mocks  # noqa: E402
import world  # noqa: E402

# Only now: upstream's dependencies look for the version of what they find.
sys.meta_path.append(Absent())

from vllm.model_executor.model_loader.utils import initialize_model  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402
from vllm.v1.worker.workspace import init_workspace_manager  # noqa: E402


class ToMeta(TorchFunctionMode):
    """Whatever would be made on, or moved to, a device is made on the meta device."""

    def __torch_function__(self, function, kinds, args=(), options=None):
        options = dict(options or {})
        device = options.get("device")
        if device is not None and torch.device(device).type != "meta":
            options["device"] = "meta"
        if function is torch.Tensor.to and len(args) > 1 and isinstance(args[1], (str, torch.device)):
            args = (args[0], "meta", *args[2:])
        return function(*args, **options)


class Ranks:
    """A process group as far as its size and our place in it go."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def size(self) -> int:
        return self.ranks

    def rank(self) -> int:
        return 0


class Group:
    """Upstream's coordinator of a group, seen from its first rank; a collective hands back the shape it would."""

    device_communicator = mq_broadcaster = listener = None
    use_message_queue_broadcaster = False
    rank = rank_in_group = local_rank = first_rank = 0
    is_first_rank = True

    def __init__(self, name: str, ranks: int) -> None:
        self.unique_name, self.world_size, self.ranks = name, ranks, list(range(ranks))
        self.device_group = self.cpu_group = Ranks(ranks)
        self.last_rank, self.is_last_rank = ranks - 1, ranks == 1
        self.device = torch.device("meta")

    def all_reduce(self, tensor):
        return tensor

    def all_gather(self, tensor, dim=-1):
        self.hear("all_gather", tensor, dim)
        return torch.cat([tensor] * self.world_size, dim)

    def gather(self, tensor, dst=0, dim=-1):
        return self.all_gather(tensor, dim)

    def reduce_scatter(self, tensor, dim=-1):
        part = tensor.chunk(self.world_size, dim)[0]
        self.hear("reduce_scatter", part, dim)
        return part

    def hear(self, name: str, part, dim: int) -> None:
        """Passes on what this rank gives to a concatenation of rows, or keeps of their sum."""
        if dim == 0 and Group.listener is not None:
            Group.listener(f"{self.unique_name}.{name}", part.shape[0], part.shape[-1])


def _properties(device=None):
    gpu = world.GpuPlatform.gpu
    major, minor = gpu["capability"]
    return SimpleNamespace(
        name=gpu["name"], major=major, minor=minor, multi_processor_count=gpu["sms"], total_memory=gpu["memory_bytes"],
        gcnArchName="", warp_size=32, max_threads_per_multi_processor=2048, L2_cache_size=50 << 20,
    )


def install() -> None:
    """Put the device's stand-ins in place."""
    mocks.stand_in("meta.Absent(MetaPathFinder)", Anything)
    mocks.patch("torch.cuda.Stream", Anything)
    mocks.patch("torch.cuda.Event", Anything)
    mocks.patch("torch.cuda.current_device", lambda: 0)
    mocks.patch("torch.cuda.get_device_properties", _properties)
    mocks.patch("torch.cuda.get_device_capability", lambda device=None: tuple(world.GpuPlatform.gpu["capability"]))
    mocks.patch("vllm.model_executor.models.registry._run_in_subprocess", lambda inspect: inspect())
    listing = "vllm.model_executor.layers.fused_moe.expert_map_manager.ExpertMapManager.get_compressed_map_string"
    mocks.patch(listing, lambda manager: "")


def build(files: dict[str, str], arguments: dict, gpu: str):
    """Upstream's configuration and its model for one rank, every tensor of it on the meta device."""
    with tempfile.TemporaryDirectory() as directory:
        config = engine.resolve_in(Path(directory), files, arguments, world.GPUS[gpu])
        ranks, cores = config.parallel_config.tensor_parallel_size, config.parallel_config.data_parallel_size
        sizes = {"TP": ranks, "EP": ranks * cores, "ETP": ranks, "WORLD": ranks, "PP": 1, "DP": cores, "DCP": 1, "PCP": 1}
        for name, size in sizes.items():
            mocks.patch(f"vllm.distributed.parallel_state._{name}", Group(name.lower(), size))
        # As a worker does when it starts.
        init_workspace_manager(torch.device("meta"))
        with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"), ToMeta():
            return config, initialize_model(config)
