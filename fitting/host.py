"""Host work around each step: scheduling, preparing inputs, taking the output in, and what lies between client and engine.

No measurement of the scheduler's loop exists in the data this registry is fitted to: its values are assumptions of the right order for
a Python loop (a few microseconds for each request it touches), the same on every chip, with wide intervals. The front end was timed
(`TIMED`); how fast the processors of the measured deployments do the same work, and how long a request is on its way, is calibrated.
"""

import calibrated
import forms
from entry import scope, stated
from writer import rounded

HOST = {"clock": "host", "launch": "graph"}
TERMS = (
    ("schedule", "host.schedule", (150, [60, 400]), (3, [1, 6]), (0, [0, 0.01]),
     "assumed: one pass of a Python scheduler over the running requests, a few dictionary and list operations and one block-table look-up for each"),
    ("prepare", "host.prepare", (350, [150, 900]), (1.5, [0.5, 4]), (0.005, [0, 0.02]),
     "assumed: building index arrays in numpy, about ten small host-to-device copies, attention metadata"),
    ("update", "host.update", (80, [30, 200]), (4, [2, 8]), (0, [0, 0.01]),
     "assumed: one pass over the step's outputs, appending a token, checking stops and building a message for each request"),
)
# CPU time of its event loop in microseconds: the modelled release's own API server (its routes, renderer, output processor, message decoder and logging) with a stub in
# place of the engine's process and a client in another process: 8 to 64 streams of 994 and 8,173 tokens of random text, a vocabulary of
# 100,000, on one core of a shared Xeon server. Between runs and numbers of streams they spread by the factors given.
TIMED = {
    "accept": (2400, 0.42), "response": 1250, "step": 250, "output": 20, "chunk": 80,
}
SPREAD = (0.7, 1.4)
FRONT_END = (
    "timed with the modelled release's own front end and a stub in place of the engine (host.py says how), times one factor for the processors of the measured "
    "deployments, which is calibrated on fit units: {}"
)
PARTS = {
    "accept": "the event loop's work on a request until it is handed to the tokenising thread and on to the engine: connection, parsing, checks, sampling settings, message",
    "frontend": "the event loop's work on a step's message (base), a request's tokens in it (per token: detokenising, statistics, queue), a chunk (per "
                "request: waking the stream, building and writing the event) and a response begun and ended (per operation)",
}
TOKENISE = (
    "the tokenising thread, one prompt after the other while the event loop goes on: calibrated on prompts of fit units. The library was timed (tokenizers 0.23, "
    "byte-pair vocabularies of 65,000 and 100,000, text of random tokens as the benchmark sends, one core of a Xeon server): 2.9 to 4.7 us a token with nothing "
    "beside it, 5.1 to 7.5 us on a shared server; the vocabularies of Llama 3, gpt-oss and DeepSeek V3 2.4 to 6.0 us there, so that some of what is calibrated is not tokenising"
)


def front_end():
    """Entries of what lies between client and engine: name, and value of each coefficient as timed."""
    accept, prompt_token = TIMED["accept"]
    yield "accept", {"base": accept, "per_token": prompt_token}
    yield "frontend", {"base": TIMED["step"], "per_request": TIMED["chunk"], "per_token": TIMED["output"], "per_operation": TIMED["response"]}


def entries(chip, wheel, report):
    for name, primitive, base, per_request, per_token, reason in TERMS:
        terms = {"base": base, "per_request": per_request, "per_token": per_token}
        yield stated(
            scope(name, primitive, None), forms.per_unit.__name__,
            {k: {"value": v, "unit": "us", "interval": i} for k, (v, i) in terms.items()}, "assumed", reason, HOST,
        )
    method, carried = calibrated.method(chip)
    pace = calibrated.coefficient("host_pace")
    low, high = pace["interval"]
    calibration = {"sources": [calibrated.cite()], "fit": calibrated.fit()}
    for name, terms in front_end():
        coefficients = {
            k: {"value": rounded(v * pace["value"]), "unit": "us", "interval": [rounded(v * low * SPREAD[0]), rounded(v * high * SPREAD[1])]}
            for k, v in terms.items()
        }
        coefficients.setdefault("base", {"value": 0, "unit": "us", "interval": [0, 0]})
        yield stated(scope(name, f"host.{name}", None), forms.per_unit.__name__, coefficients, method,
                     FRONT_END.format(PARTS[name]) + carried, HOST, ranges=calibrated.span(), **calibration)
    yield stated(scope("tokenise", "host.tokenise", None), forms.per_unit.__name__, {
        "base": {"value": 0, "unit": "us", "interval": [0, 0]}, "per_token": calibrated.coefficient("text_token"),
    }, method, TOKENISE + carried, HOST, ranges=calibrated.span(), **calibration)
