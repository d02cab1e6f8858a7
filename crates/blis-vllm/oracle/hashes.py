"""What upstream's own functions name some blocks: hashes.py [--out hashes.json]

Chains of blocks of every length that is written in a way of its own, with tokens on both sides of every change of width.
"""

import argparse
import json
from pathlib import Path

import world  # first: the fake platform must be in place before any other vllm import
import mocks

from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import BlockHash, hash_block_tokens, maybe_convert_block_hash

LENGTHS = (1, 2, 3, 4, 15, 16, 23, 24, 64, 256)
EDGES = (0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1)


def chain(algorithm: str, seed: str) -> dict:
    function = get_hash_fn_by_name(algorithm)
    # As init_none_hash, whose seed comes from the environment of the process.
    root = parent = BlockHash(function(seed))
    rows = []
    for number, length in enumerate(LENGTHS):
        tokens = [(EDGES[(number + index) % len(EDGES)] + index // len(EDGES)) % 2**32 for index in range(length)]
        parent = hash_block_tokens(function, parent, tokens)
        rows.append([tokens, parent.hex(), maybe_convert_block_hash(parent)])
    return {"algorithm": algorithm, "seed": seed, "root": root.hex(), "chain": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="record the hashes of blocks")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("hashes.json"))
    options = parser.parse_args()
    print(f"{mocks.verify_wheel()} upstream files are as released", flush=True)
    mocks.audit()
    cases = [chain(algorithm, seed) for algorithm in ("sha256", "sha256_cbor") for seed in ("0", "vllm-none-hash")]
    options.out.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")
    print(f"{sum(len(case['chain']) for case in cases)} blocks")


if __name__ == "__main__":
    main()
