"""Collectives whose ranks lie in several domains of links, and tensors sent from one rank to another.

No table times either. What a collective does within a domain is measured (`collective.py`); NCCL pipelines that with what crosses the
network, so latencies add up and the two streams of bytes overlap. Each crossing costs what NCCL's own tuning model (src/graph/tuning.cc,
`baseLat` and `hwLat`, its latency protocol) gives for one hop, and moves bytes at the share of the rate that its 128-byte protocol leaves for
data. A sum climbs and descends a tree over the domains; a concatenation, and a sum that ranks keep parts of, go round one ring over all
ranks, so that every further domain adds a crossing and the hops within it.
"""

from entry import DEVICE_GRAPH, scope
from source import facts

TUNING = {"source": "NCCL 2.2x source code, src/graph/tuning.cc: baseLat and hwLat, in microseconds"}
BASE = {"tree": 6.8, "ring": 6.6}
HOP = {"network": {"tree": 5.0, "ring": 2.7}, "nvlink": {"tree": 0.6, "ring": 0.6}, "pcie": {"tree": 1.0, "ring": 1.0}}
EFFICIENCY = 0.9375             # 120 of 128 bytes
SHAPES = {"collective.all_reduce": "tree", "collective.all_gather": "ring", "collective.reduce_scatter": "ring"}
RULE = (
    "within a domain as measured there; a hop over the network by NCCL's tuning model ({hop} us{inner}); 120 of 128 bytes are data; "
    "both streams overlap"
)
ALONE_RULE = "NCCL's tuning model: its base latency, {hop} us a hop over the network, 120 of 128 bytes data; one rank in each domain"
ANY_RULE = "as {name}, for other kernels and other numbers of ranks in a domain"
SEND_RULE = "no table times a send: base latency and one hop by NCCL's tuning model, at the data sheet's rate of the link{share}"


def coefficients(hop):
    return {"hop_time": {"value": round(hop, 3), "unit": "us"}, "efficiency": {"value": EFFICIENCY, "unit": "ratio"}}


def crossing(name, primitive, kernel, group, ranges, hop, sources, reason, span=None):
    head = dict(scope(name, primitive, kernel, None, group), tier="network")
    return dict(head, method="literature", form="network", coefficients=coefficients(hop), ranges=ranges, range=span or {},
                boundary=DEVICE_GRAPH, sources=[*sources, TUNING], reason=reason)


def entries(chip, within):
    """Network entries for the NCCL entries of a chip, which `within` holds in ascending order of their groups, then those of sends."""
    chip_facts = facts(chip)
    wire = chip_facts["wire"]
    for primitive, shape in SHAPES.items():
        own = [entry for entry in within if entry["primitive"] == primitive]
        kernel = "/".join(own[0]["kernel"].values())
        hop = HOP["network"][shape]
        alone = [{"up_to": None, "latency": BASE[shape], "bandwidth": chip_facts["bandwidth"]}]
        stem = kernel.replace("/", "-")
        yield crossing(f"{stem}-1-network", primitive, kernel, 1, alone, hop, [], ALONE_RULE.format(hop=hop))
        for entry in own:
            group = entry["group"]
            further = (group - 1) * HOP[wire]["ring"] if shape == "ring" else 0.0
            inner = f", {further:.1f} us of it within the domain" if further else ""
            last = crossing(f"{stem}-{group}-network", primitive, kernel, group, entry["ranges"], hop + further, entry["sources"],
                            RULE.format(hop=round(hop + further, 3), inner=inner), entry["range"])
            yield last
        yield crossing(f"any-{primitive.rsplit('.', 1)[1].replace('_', '-')}-network", primitive, None, None, last["ranges"],
                       last["coefficients"]["hop_time"]["value"], last["sources"][:-1], ANY_RULE.format(name=last["name"]))
    link = chip_facts["link"]
    near = [{"up_to": None, "latency": round(BASE["ring"] + HOP[wire]["ring"], 3), "bandwidth": link}]
    far = [{"up_to": None, "latency": BASE["ring"], "bandwidth": link}]
    yield dict(scope("any-send", "collective.send", None), method="literature", form="collective", ranges=near,
               boundary=DEVICE_GRAPH, sources=[TUNING], reason=SEND_RULE.format(share=""))
    yield crossing("any-send-network", "collective.send", None, None, far, HOP["network"]["ring"], [],
                   SEND_RULE.format(share=" or the network's, whichever is less, 120 of 128 bytes of it data"))
