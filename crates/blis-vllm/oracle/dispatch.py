"""How upstream launches steps of every size: dispatch.py [--out dispatch.json.gz]

Upstream's own CudaGraphManager, built from a resolved configuration and told that its graphs are captured, is asked for
every token count up to 2,048, for pure decodes and for batches with a prompt; and upstream's agreement between ranks in
lockstep for seeded steps of two to four ranks. Which token counts a configuration captures is recorded beside it.
"""

import argparse
import gzip
import json
import random
from pathlib import Path
from types import SimpleNamespace

import engine  # first: the fake platform must be in place before any other vllm import
import mocks
import scenario as scenarios
import world

from vllm.v1.worker.gpu import dp_utils
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager
from vllm.v1.worker.utils import get_uniform_decode_token_count

MOST_TOKENS = 2048
STEPS, SEED = 1500, 20
GPU = "h100"
MODES = ("FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL", "PIECEWISE", "NONE")
ARGUMENTS = (
    {},
    {"max_num_seqs": 300, "max_num_batched_tokens": 2048},
    {"max_num_seqs": 48},
    {"max_num_seqs": 2048, "max_num_batched_tokens": 2048, "max_cudagraph_capture_size": 2048},
    {"max_num_seqs": 7, "cudagraph_capture_sizes": [1, 3, 5, 24, 100]},
)


class Exchange:
    """Stands in for torch.distributed where the ranks exchange six numbers: what one rank gives, or what all have given."""

    def __init__(self) -> None:
        self.given, self.total = [], None

    def all_reduce(self, tensor, group=None) -> None:
        if self.total is None:
            self.given.append(tensor.clone())
            raise Gathered
        tensor.copy_(self.total)


class Gathered(Exception):
    pass


def manager(mode: str, arguments: dict) -> CudaGraphManager:
    arguments = {**arguments, "compilation_config": {"cudagraph_mode": mode}}
    config = engine.resolve(scenarios.MODELS["tiny-llama"], arguments, world.GPUS[GPU])
    made = CudaGraphManager(config, None, config.compilation_config.cudagraph_mode, decode_query_len=1)
    made._graphs_captured = True
    return made


def uniform(requests: int, tokens: int, decode: bool) -> int | None:
    return get_uniform_decode_token_count(requests, tokens, -(-tokens // requests), decode_graph_eligible=decode)


def alone(made: CudaGraphManager, requests: int, tokens: int, decode: bool) -> list:
    found = made.dispatch(requests, tokens, uniform(requests, tokens, decode), 0, max_query_len=-(-tokens // requests))
    return [found.cg_mode.name, found.num_tokens]


def together(made: CudaGraphManager, ranks: list[list], exchange: Exchange) -> list[list]:
    """What each rank launches when they agree: asked once for what it gives, then with what all gave."""

    def ask(rank: int):
        tokens, requests, decode = ranks[rank]
        return dp_utils.dispatch_cg_and_sync_dp(
            made, requests, tokens, uniform(requests, tokens, decode), len(ranks), rank, max_query_len=-(-tokens // requests)
        )

    exchange.given, exchange.total = [], None
    for rank in range(len(ranks)):
        try:
            ask(rank)
        except Gathered:
            pass
    exchange.total = sum(exchange.given)
    found = [ask(rank)[0] for rank in range(len(ranks))]
    return [[desc.cg_mode.name, desc.num_tokens] for desc in found]


def seeded_ranks(draw: random.Random, most_requests: int) -> list[list]:
    ranks = []
    for _ in range(draw.randint(2, 4)):
        requests = draw.choice([1, draw.randint(1, most_requests), draw.randint(1, min(most_requests, 64))])
        decode = draw.random() < 0.7
        extra = 0 if decode else draw.choice([draw.randint(1, 64), draw.randint(1, 600), draw.randint(1, 2000)])
        ranks.append([min(requests + extra, MOST_TOKENS), requests, decode])
    return ranks


def record(mode: str, arguments: dict, exchange: Exchange) -> dict:
    made = manager(mode, arguments)
    config = made.vllm_config
    seqs = config.scheduler_config.max_num_seqs
    counts = range(1, min(MOST_TOKENS, config.scheduler_config.max_num_batched_tokens) + 1)
    draw = random.Random(f"{SEED} {mode} {arguments}")
    steps = [seeded_ranks(draw, seqs) for _ in range(STEPS // len(MODES))]
    return {
        "mode": mode,
        "arguments": arguments,
        "resolved_mode": config.compilation_config.cudagraph_mode.name,
        "max_num_seqs": seqs,
        "capture_sizes": list(config.compilation_config.cudagraph_capture_sizes or ()),
        "decode": [alone(made, tokens, tokens, True) for tokens in counts if tokens <= seqs],
        "one_prompt": [alone(made, 1, tokens, False) for tokens in counts],
        "most_requests": [alone(made, min(tokens, seqs), tokens, False) for tokens in counts],
        "lockstep": [[ranks, together(made, ranks, exchange)] for ranks in steps],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="record how upstream launches steps of every size")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "dispatch.json.gz")
    options = parser.parse_args()
    print(f"{mocks.verify_wheel()} upstream files are as released", flush=True)
    first = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    mocks.patch("vllm.v1.worker.gpu.cudagraph_utils.get_pp_group", lambda: first)
    mocks.patch("vllm.v1.worker.gpu.dp_utils.get_dp_group", lambda: SimpleNamespace(cpu_group=None))
    exchange = Exchange()
    mocks.patch("vllm.v1.worker.gpu.dp_utils.dist", exchange)
    mocks.audit()
    cases = [record(mode, arguments, exchange) for arguments in ARGUMENTS for mode in MODES]
    content = json.dumps({"gpu": GPU, "most_tokens": MOST_TOKENS, "cases": cases}, separators=(",", ":"), sort_keys=True)
    options.out.write_bytes(gzip.compress((content + "\n").encode(), compresslevel=9, mtime=0))
    print(f"{len(cases)} configurations, {sum(len(c['one_prompt']) for c in cases)} token counts, {sum(len(c['lockstep']) for c in cases)} steps")


if __name__ == "__main__":
    main()
