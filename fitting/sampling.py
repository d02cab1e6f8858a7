"""Turning logits into tokens. Nothing of it is measured: an assumed number of passes over the logits."""

import forms
from entry import scope, stated

REASON = (
    "assumed: about ten small kernels (floor), and passes over the logits: cast to fp32 (2 + 4 bytes), then between one argmax (4) and a "
    "softmax with noise and argmax (about 28 more); the middle of that span"
)


def entries(chip, wheel, report):
    yield stated(
        scope("sampler", "sampling", None), forms.sampling.__name__,
        {
            "floor": {"value": 20, "unit": "us", "interval": [10, 40]},
            "bytes_per_logit": {"value": 14, "unit": "bytes", "interval": [10, 34]},
            "memory_efficiency": {"value": 0.7, "unit": "ratio", "interval": [0.5, 0.9]},
        },
        "assumed", REASON,
    )
