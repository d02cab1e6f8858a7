"""Grammars without a grammar library: one compiles after a stated time, or fails then, and allows every token but one.

The manager, the wait for the grammar, the validation of drafts, the bitmask and its rows are upstream's. What is replaced
are the pool of threads that compiles and the library that compiles and fills masks.
"""

from concurrent.futures import Future

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

FORBIDDEN, WRONG = 3, 4
COMPILES, FAILS = "compiles", "fails"


class CompiledAt(Future):
    """The grammar is there, or has failed, once the clock has reached its time."""

    def __init__(self, clock, compile_now, request) -> None:
        super().__init__()
        self._clock, self._compile, self._request = clock, compile_now, request
        self._ready_us = request.sampling_params.extra_args["grammar_ready_us"]

    def done(self) -> bool:
        return self._clock.now_us >= self._ready_us

    def result(self, timeout=None):
        return self._compile(self._request)


class CompilerPool:
    def __init__(self, clock) -> None:
        self._clock = clock

    def submit(self, compile_now, request) -> CompiledAt:
        return CompiledAt(self._clock, compile_now, request)


class Permissive(StructuredOutputGrammar):
    """Allows every token but FORBIDDEN."""

    def accept_tokens(self, request_id, tokens) -> bool:
        return FORBIDDEN not in tokens

    def validate_tokens(self, tokens):
        return tokens[: tokens.index(FORBIDDEN)] if FORBIDDEN in tokens else tokens

    def rollback(self, num_tokens) -> None:
        pass

    def fill_bitmask(self, bitmask, idx) -> None:
        pass

    def is_terminated(self) -> bool:
        return False

    def reset(self) -> None:
        pass


class Compiler:
    def compile_grammar(self, request_type, grammar_spec, stop_token_ids=None) -> Permissive:
        if grammar_spec == FAILS:
            raise ValueError("this grammar does not compile")
        return Permissive()

    def allocate_token_bitmask(self, max_num_seqs):
        return torch.zeros((max_num_seqs, 1), dtype=torch.int32)


def install(manager, clock) -> None:
    """Gives upstream's manager the compiler and the pool that a tokenizer would have brought."""
    manager.executor, manager.backend = CompilerPool(clock), Compiler()
