"""Random scenarios from a seed: generate.py --seed N --count K --out DIR [--drafts | --chunked | --two-heads | --compressed]

Scenario i of seed N depends on (N, i) alone, and on whether engines draft: with `--drafts` all of them do, by every
method, some of them serve adapters too, and some requests have grammars; with `--chunked` all models have layers that see a
chunk of the context, with `--two-heads` layers whose blocks differ in length, and with `--compressed` layers that compress, with
blocks of up to four lengths. Features are drawn independently, so that combinations meet which nobody
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


def draw_chunked(rng: random.Random, block: int) -> tuple[object, int]:
    """A model with layers that see a chunk of the context, and the number of KV groups its pool must serve."""
    # By which layers see all of the context: 0.
    pattern, groups = rng.choice([([1, 0], 2), ([1, 1, 0], 3), ([1, 1, 1, 0] * 2, 4), ([0, 1, 1, 0, 1], 3), ([1, 1], 1), ([1, 1, 1, 1, 0], 5)])
    chunk = block * rng.choice([1, 2, 2, 4, 8])
    model = {"preset": "tiny-llama4", "attention_chunk_size": chunk, "num_hidden_layers": len(pattern), "no_rope_layers": pattern}
    return model, groups


def draw_two_heads(rng: random.Random, block: int) -> tuple[object, int]:
    """A model whose layers have heads of two widths, and the number of KV groups its pool must serve."""
    layers = rng.choice([2, 3, 4, 6])
    model = {
        "preset": "tiny-gemma4",
        "num_hidden_layers": layers,
        "layer_types": [LAYER_TYPES[index % 3 == 2 or index == layers - 1] for index in range(layers)],
        "sliding_window": rng.choice([block // 2, block + 1, 2 * block, 5 * block, 128]),
        "num_global_key_value_heads": rng.choice([1, 1, 2, 3, 4]),
    }
    return model, 4


# Compression ratios by layer, with the groups that keep windows and the states of each ratio's compressors.
COMPRESSED = [
    ([4], 1, 1, 0),
    ([0, 128, 4], 3, 1, 1),
    ([128, 4, 128, 4], 2, 1, 1),
    ([4, 0, 4], 2, 1, 0),
    ([0, 4, 4, 4, 128], 2, 1, 1),
    ([0, 0, 4, 128, 4, 128], 3, 1, 1),
]


def draw_compressed(rng: random.Random, block: int) -> tuple[object, int]:
    """A model whose layers compress, and a number of KV groups of which its own sizing makes no use."""
    ratios = rng.choice(COMPRESSED)[0]
    return {"preset": "tiny-dsv4", "num_hidden_layers": len(ratios), "compress_ratios": ratios}, 4


def size_compressed(rng: random.Random, args: dict, ratios: list[int]) -> None:
    """Lengths to which blocks of 256 tokens matter, and a pool of blocks of four lengths."""
    # Its kernels settle the length of blocks, and pages that are packed have groups in any case.
    for key in ("block_size", "disable_hybrid_kv_cache_manager", "max_num_scheduled_tokens", "enable_chunked_prefill"):
        args.pop(key, None)
    _, windows, few, many = next(row for row in COMPRESSED if row[0] == ratios)
    length, batch = rng.choice([512, 768, 1024, 1536]), rng.choice([32, 64, 96, 160, 256, 512])
    # Two steps may be in flight.
    held = lambda window, block: -(-min(length, window - 1 + 2 * batch) // block) + 1
    smallest = -(-length // 256) + windows * held(128, 64) + few * held(8, 4) + many * held(128, 8) + 2
    args |= {"max_model_len": length, "max_num_batched_tokens": batch}
    args["num_gpu_blocks_override"] = smallest + rng.choice([0, 1, 5, smallest // 4, smallest, 4 * smallest])
    args["max_num_seqs"] = min(args.get("max_num_seqs", 8), batch)


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


def draw_drafting(rng: random.Random, model: object) -> tuple[object, dict]:
    """A model and a way of drafting for it."""
    if sometimes(rng, 0.2):
        modules = rng.choice([1, 1, 2])
        tokens = rng.choice([1, 2, 3, 4, 7]) if modules == 1 else rng.choice([1, 2, 4, 6])
        return {"preset": "tiny-mla", "num_nextn_predict_layers": modules}, {"method": "mtp", "num_speculative_tokens": tokens}
    if sometimes(rng, 0.25):
        draft = rng.choice(["tiny-dflash", "tiny-dflash-window", "tiny-dspark", "tiny-dspark-fill"])
        config = {"method": draft.split("-")[1], "model": draft, "num_speculative_tokens": rng.choice([2, 4, 6])}
        return "tiny-qwen3", config
    method = rng.choice(["ngram", "ngram_gpu", "eagle", "eagle3", "eagle3", "draft_model"])
    config = {"method": method} if method.startswith("ngram") else {"method": method, "model": "tiny-draft"}
    return model, config | {"num_speculative_tokens": rng.choice([1, 2, 3, 5, 7])}


def add_drafting(rng: random.Random, args: dict, config: dict) -> dict:
    """Turns on drafting in an engine, and states which drafts are right."""
    tokens = config["num_speculative_tokens"]
    if sometimes(rng, 0.15):
        config["num_speculative_tokens_per_batch_size"] = [[1, 2, tokens], [4, rng.choice([4, 7]), rng.randrange(tokens + 1)]]
        if sometimes(rng, 0.5):
            config["num_speculative_tokens_per_batch_size"].append([8, 64, 0])
    if config["method"] not in ("ngram", "ngram_gpu", "draft_model") and sometimes(rng, 0.15):
        config["disable_eagle_block_drop"] = True
    if sometimes(rng, 0.1):
        config["disable_padded_drafter_batch"] = True
    if config["method"] == "ngram" or config.get("disable_padded_drafter_batch"):
        args.pop("async_scheduling", None)
    args["speculative_config"] = config
    profile = {"accepted_permille": [rng.choice([200, 500, 800, 950]) for _ in range(rng.randrange(1, tokens + 1))]}
    if sometimes(rng, 0.7):
        profile["forbidden_permille"] = rng.choice([100, 500, 1000])
    return profile


def add_features(rng: random.Random, args: dict, requests: list[dict]) -> None:
    """Adapters and grammars. At most one grammar fails: upstream ends several of one step in the order of a set."""
    tokens = args["speculative_config"]["num_speculative_tokens"]
    if sometimes(rng, 0.2):
        args |= {"enable_lora": True, "max_loras": rng.choice([1, 1, 2])}
        args["max_num_seqs"] = min(args.get("max_num_seqs", 16), args["max_num_batched_tokens"] // (tokens + 1))
        if args.get("max_num_active_seqs", 0) > args["max_num_seqs"]:
            del args["max_num_active_seqs"]
        for request in requests:
            if sometimes(rng, 0.7):
                request["adapter"] = rng.randrange(1, 4)
    if sometimes(rng, 0.3):
        failing = rng.randrange(len(requests)) if sometimes(rng, 0.3) else None
        for index, request in enumerate(requests):
            if index == failing or sometimes(rng, 0.5):
                grammar = {"compile_us": rng.choice([0, 0, 300, 2_000, 9_000, 25_000])}
                request["grammar"] = grammar | ({"fails": True} if index == failing else {})


def scenario(seed: int, index: int, kind: str = "") -> str:
    rng = random.Random(f"{kind}/{seed}/{index}" if kind else f"{seed}/{index}")
    drafts = kind == "drafts"
    block = rng.choice([16, 16, 16, 16, 32, 64])
    draw = {"chunked": draw_chunked, "two-heads": draw_two_heads, "compressed": draw_compressed}.get(kind, draw_model)
    if kind == "compressed":
        block = 256
    model, groups = draw(rng, block)
    gpus = ["a100", "h100", "h200", "b200"]
    profile = None
    if drafts:
        model, config = draw_drafting(rng, model)
        latent = isinstance(model, dict) and model["preset"] == "tiny-mla"
        # The drafter's layers may make further groups; latent attention settles its own block size.
        windows = isinstance(model, dict) and not latent or config.get("model") == "tiny-dflash-window"
        groups = 4 if windows else 1
        block = 16 if latent else block
        # The backend of latent attention on Blackwell asks a device for memory when it is imported.
        gpus = gpus[:3] if latent else gpus
    args = draw_engine(rng, groups, block)
    if kind == "compressed":
        size_compressed(rng, args, model["compress_ratios"])
        gpus = gpus[1:3]
    if kind == "two-heads" and args.get("prefix_cache_retention_interval"):
        # A multiple of the length that blocks of all groups divide.
        args["prefix_cache_retention_interval"] *= 2
    if kind == "chunked":
        # Without layers that have a window upstream refuses a retention interval.
        args.pop("prefix_cache_retention_interval", None)
    if drafts:
        profile = add_drafting(rng, args, config)
    step = {"base_us": rng.choice([100, 1_000, 7_300]), "per_token_us": rng.choice([0, 1, 13, 90])}
    requests = draw_requests(rng, args, block)
    if drafts:
        add_features(rng, args, requests)
    longest_step = step["base_us"] + step["per_token_us"] * args["max_num_batched_tokens"]
    aborts = draw_aborts(rng, requests, longest_step)
    lines = [
        f"# Drawn by generate.py --seed {seed}{f' --{kind}' if kind else ''}, index {index}.",
        f"name: {name(seed, index, kind)}",
        f"seed: {seed}",
        f"engine_args: {flow(args)}",
        f"gpu: {rng.choice(gpus)}",
        f"model: {flow(model)}",
        f"step_time: {flow(step)}",
        *([f"speculation: {flow(profile)}"] if profile else []),
        "requests:",
        *(f"  - {flow(request)}" for request in requests),
    ]
    if aborts:
        lines += ["aborts:", *(f"  - {flow(abort)}" for abort in aborts)]
    return "\n".join(lines) + "\n"


def name(seed: int, index: int, kind: str) -> str:
    return f"random-{f'{kind}-' if kind else ''}{seed}-{index:04}"


def main() -> None:
    parser = argparse.ArgumentParser(description="draw random scenarios from a seed")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--drafts", dest="kind", action="store_const", const="drafts", default="", help="engines that draft, adapters and grammars")
    parser.add_argument("--chunked", dest="kind", action="store_const", const="chunked", help="models with layers that see a chunk of the context")
    parser.add_argument("--two-heads", dest="kind", action="store_const", const="two-heads", help="models with blocks of two lengths")
    parser.add_argument("--compressed", dest="kind", action="store_const", const="compressed", help="models with layers that compress")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for index in range(options.count):
        path = options.out / f"{name(options.seed, index, options.kind)}.yaml"
        path.write_text(scenario(options.seed, index, options.kind))


if __name__ == "__main__":
    main()
