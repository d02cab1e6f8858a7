"""Random scenarios from a seed: generate.py --seed N --count K --out DIR

Scenario i of seed N depends on (N, i) alone. Features are drawn independently, so that combinations meet which nobody
would write by hand. Left out by construction: prompts the front end refuses, pools in which one max_model_len request
does not fit, aborts close enough together to fall into one batch (their order would hang on a set), and identifiers
that come back while in use.
"""

import argparse
import random
from pathlib import Path

LAYER_TYPES = ("sliding_attention", "full_attention")


def flow(value: object) -> str:
    """YAML in flow style, so that a scenario stays a page."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(inner) for inner in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def sometimes(rng: random.Random, share: float) -> bool:
    return rng.random() < share


def draw_model(rng: random.Random, block: int) -> tuple[object, int]:
    """A model and the number of KV groups its pool must serve."""
    if sometimes(rng, 0.6):
        return "tiny-llama", 1
    layers = rng.choice([2, 3, 4, 4, 5])
    model = {
        "preset": "tiny-gptoss",
        "sliding_window": rng.choice([block, block + 1, 2 * block, 2 * block + 9, 128]),
        "num_hidden_layers": layers,
        "layer_types": [LAYER_TYPES[index % 2] for index in range(layers)],
    }
    return model, 3 if layers > 2 else 2


def draw_engine(rng: random.Random, groups: int, block: int) -> dict:
    args: dict = {"max_model_len": rng.choice([96, 160, 256, 512])}
    blocks_of_longest = -(-args["max_model_len"] // block) + 1
    smallest = groups * blocks_of_longest + 2
    args["num_gpu_blocks_override"] = smallest + rng.choice([0, 0, 1, 3, smallest // 2, 2 * smallest, 200])
    if block != 16:
        args["block_size"] = block
    args["max_num_batched_tokens"] = rng.choice([16, 24, 32, 48, 64, 96, 128, 256])
    if sometimes(rng, 0.1):
        args |= {"enable_chunked_prefill": False, "max_num_batched_tokens": args["max_model_len"] + rng.choice([0, 64])}
    elif sometimes(rng, 0.1):
        args["max_num_scheduled_tokens"] = max(8, args["max_num_batched_tokens"] * 3 // 5)
    if sometimes(rng, 0.7):
        args["max_num_seqs"] = min(rng.choice([1, 2, 3, 4, 8, 16]), args["max_num_batched_tokens"])
        if args["max_num_seqs"] > 2 and sometimes(rng, 0.1):
            args["max_num_active_seqs"] = args["max_num_seqs"] // 2
    if sometimes(rng, 0.2):
        args["long_prefill_token_threshold"] = rng.choice([8, 16, 20])
        if sometimes(rng, 0.3):
            args["long_prefill_token_threshold_adaptive"] = True
    if sometimes(rng, 0.2):
        args["enable_prefix_caching"] = False
    if sometimes(rng, 0.25):
        args["async_scheduling"] = False
    if sometimes(rng, 0.3):
        args["scheduling_policy"] = "priority"
    if sometimes(rng, 0.2):
        args["scheduler_reserve_full_isl"] = False
    if sometimes(rng, 0.2):
        args["watermark"] = rng.choice([0.01, 0.05, 0.1, 0.2])
    if groups > 1 and args.get("enable_prefix_caching", True) and sometimes(rng, 0.4):
        args["prefix_cache_retention_interval"] = rng.choice([None, 2 * block, 4 * block])
    if groups > 1 and sometimes(rng, 0.1):
        args["disable_hybrid_kv_cache_manager"] = True
        # Without window groups upstream refuses a retention interval.
        args.pop("prefix_cache_retention_interval", None)
    return args


def draw_prompt(rng: random.Random, longest: int, block: int) -> list[dict]:
    pieces = []
    if sometimes(rng, 0.5):
        length = rng.choice([block - 1, block, 2 * block, 2 * block + 1, 3 * block, 5 * block])
        pieces.append({"shared": f"s{rng.randrange(3)}", "length": min(length, longest)})
        if sometimes(rng, 0.2):
            pieces.append({"shared": f"t{rng.randrange(2)}", "length": rng.randrange(1, 2 * block)})
    if not pieces or sometimes(rng, 0.8):
        pieces.append({"unique": rng.choice([1, rng.randrange(1, 20), rng.randrange(1, longest), block])})
    while sum(piece.get("unique", piece.get("length", 0)) for piece in pieces) > longest:
        key = "unique" if "unique" in pieces[-1] else "length"
        if pieces[-1][key] > 1:
            pieces[-1][key] //= 2
        else:
            pieces.pop()
    return pieces


def draw_requests(rng: random.Random, args: dict, block: int) -> list[dict]:
    count = rng.choice([2, 4, 8, 12, 20, 32])
    gap = rng.choice([0, 200, 2_000, 10_000])
    long_outputs = rng.choice([6, 20, 60])
    at, requests = 0, []
    for index in range(count):
        at += rng.randrange(gap + 1) if sometimes(rng, 0.8) else 0
        prompt = draw_prompt(rng, args["max_model_len"] - 1, block)
        most = rng.choice([1, 2, rng.randrange(1, long_outputs + 1), rng.randrange(1, long_outputs + 1)])
        request = {"id": f"r{index:02}", "arrival_us": at, "prompt": prompt, "max_tokens": most}
        if sometimes(rng, 0.4):
            request["output_length"] = rng.randrange(1, most + 1)
        if args.get("scheduling_policy") == "priority":
            request["priority"] = rng.randrange(-1, 4)
        requests.append(request)
    return requests


def draw_aborts(rng: random.Random, requests: list[dict], longest_step: int) -> list[dict]:
    if not sometimes(rng, 0.3):
        return []
    aborts, at = [], 0
    for victim in rng.sample(requests, min(len(requests), rng.randrange(1, 4))):
        at = max(at + 3 * longest_step + 3_000, victim["arrival_us"] + rng.randrange(5 * longest_step))
        aborts.append({"id": victim["id"], "at_us": at})
    return aborts


def scenario(seed: int, index: int) -> str:
    rng = random.Random(f"{seed}/{index}")
    block = rng.choice([16, 16, 16, 16, 32, 64])
    model, groups = draw_model(rng, block)
    args = draw_engine(rng, groups, block)
    step = {"base_us": rng.choice([100, 1_000, 7_300]), "per_token_us": rng.choice([0, 1, 13, 90])}
    requests = draw_requests(rng, args, block)
    longest_step = step["base_us"] + step["per_token_us"] * args["max_num_batched_tokens"]
    aborts = draw_aborts(rng, requests, longest_step)
    lines = [
        f"# Drawn by generate.py --seed {seed}, index {index}.",
        f"name: random-{seed}-{index:04}",
        f"seed: {seed}",
        f"engine_args: {flow(args)}",
        f"gpu: {rng.choice(['a100', 'h100', 'h200', 'b200'])}",
        f"model: {flow(model)}",
        f"step_time: {flow(step)}",
        "requests:",
        *(f"  - {flow(request)}" for request in requests),
    ]
    if aborts:
        lines += ["aborts:", *(f"  - {flow(abort)}" for abort in aborts)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="draw random scenarios from a seed")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for index in range(options.count):
        (options.out / f"random-{options.seed}-{index:04}.yaml").write_text(scenario(options.seed, index))


if __name__ == "__main__":
    main()
