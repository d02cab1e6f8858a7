"""Host work around each step: scheduling, preparing inputs, taking the output in, and the front end's share of each token.

No measurement of these exists in the data this registry is fitted to. The values are assumptions of the right order for a Python
scheduler loop (a few microseconds for each request it touches), the same on every chip, with wide intervals; end-to-end
measurements outside the fit are what will replace them.
"""

import forms
from entry import scope, stated

HOST = {"clock": "host", "launch": "graph"}
TERMS = (
    ("schedule", "host.schedule", (150, [60, 400]), (3, [1, 6]), (0, [0, 0.01]),
     "assumed: one pass of a Python scheduler over the running requests, a few dictionary and list operations and one block-table look-up for each"),
    ("prepare", "host.prepare", (350, [150, 900]), (1.5, [0.5, 4]), (0.005, [0, 0.02]),
     "assumed: building index arrays in numpy, about ten small host-to-device copies, attention metadata"),
    ("update", "host.update", (80, [30, 200]), (4, [2, 8]), (0, [0, 0.01]),
     "assumed: one pass over the step's outputs, appending a token, checking stops and building a message for each request"),
    ("frontend", "host.frontend", (100, [30, 300]), (15, [5, 40]), (0.2, [0.05, 1]),
     "assumed: a message taken from the engine (base), each request's chunk detokenised, serialised and written (per request), prompts "
     "tokenised (per token)"),
)


def entries(chip, wheel, report):
    for name, primitive, base, per_request, per_token, reason in TERMS:
        terms = {"base": base, "per_request": per_request, "per_token": per_token}
        yield stated(
            scope(name, primitive, None), forms.per_unit.__name__,
            {k: {"value": v, "unit": "us", "interval": i} for k, (v, i) in terms.items()}, "assumed", reason, HOST,
        )
