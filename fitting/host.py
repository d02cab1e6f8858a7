"""Host work around each step: scheduling, preparing inputs, taking the output in, and the front end's share of each token.

No measurement of the scheduler's loop exists in the data this registry is fitted to: its values are assumptions of the right order for
a Python loop (a few microseconds for each request it touches), the same on every chip, with wide intervals. What accepting a
request and turning its text into tokens cost is calibrated (`calibrate.py`), the latter within a timing of the library (`FRONT_END`).
"""

import calibrated
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
)
FRONT_END = (
    "per operation (a request accepted: connection, parsing, validation, hand-over) and per token (text to tokens and back): calibrated on "
    "prompts of fit units. The library the front end calls was timed (tokenizers 0.23, byte-pair vocabulary of 65,000, text of random tokens "
    "as the benchmark sends, one core of a Xeon server): 2.9 to 4.7 us a token from text, 2.6 us to text in steps; the models' "
    "vocabularies are two to three times as large, and a token is parsed and handed on beside. Base (a message taken from the engine) "
    "and per request (a chunk serialised and written) are assumed"
)


def entries(chip, wheel, report):
    for name, primitive, base, per_request, per_token, reason in TERMS:
        terms = {"base": base, "per_request": per_request, "per_token": per_token}
        yield stated(
            scope(name, primitive, None), forms.per_unit.__name__,
            {k: {"value": v, "unit": "us", "interval": i} for k, (v, i) in terms.items()}, "assumed", reason, HOST,
        )
    yield stated(
        scope("frontend", "host.frontend", None), forms.per_unit.__name__,
        {
            "base": {"value": 100, "unit": "us", "interval": [30, 300]},
            "per_request": {"value": 15, "unit": "us", "interval": [5, 40]},
            "per_token": calibrated.coefficient("text_token"),
            "per_operation": calibrated.coefficient("request_accepted"),
        },
        "assumed", FRONT_END, HOST, sources=[calibrated.cite()],
    )
