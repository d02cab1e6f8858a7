"""Device memory that is neither weights, activations of the profiling shape, nor KV cache. Assumed throughout."""

import forms
from entry import scope, stated

MIB = 1024 * 1024
# What the driver keeps of one kernel in a captured graph, in MiB.
NODE = 26 / 1024
NONE = {"clock": "none", "launch": "graph"}
TERMS = (
    ("context", "memory.context", {"base": (550, [400, 900])},
     "assumed: the driver's context with the libraries' kernels loaded; the operator database's own setting before its safety margin is 551 MB"),
    ("communicator", "memory.communicator", {"base": (310, [150, 500]), "per_rank": (14, [4, 40])},
     "assumed: communication buffers of one group; the operator database's own settings are 342 MiB for 2 ranks and 392 MiB for 4 and 8"),
    ("graphs", "memory.graphs", {"base": (100, [0, 300]), "per_node": (NODE, [v / 1024 for v in (19, 37)])},
     "assumed: one shared pool of intermediates; and for each kernel of each captured graph 26 KiB, as the pools say that servers of fit units logged (NOTES)"),
    ("activation-overhead", "memory.activation_overhead", {"base": (150, [0, 500])},
     "assumed: what the allocator holds beyond the live activations (rounding, fragments, library workspaces)"),
)


def entries(chip, wheel, report):
    for name, primitive, terms, reason in TERMS:
        coefficients = {k: {"value": v * MIB, "unit": "bytes", "interval": [a * MIB, b * MIB]} for k, (v, (a, b)) in terms.items()}
        yield stated(scope(name, primitive, None), forms.stored.__name__, coefficients, "assumed", reason, NONE)
