#!/usr/bin/env python3
"""Generate the surface list of the modelled vLLM release from its unpacked wheel.

Usage: surface.py WHEEL_DIR [--check]

Reads upstream's registration tables as syntax trees (nothing of vLLM is imported or run): what each factory registers, what each
enumerated setting may name, which metrics are named and which event types exist. Merges the hand-kept statuses of
../data/surface.toml and writes ../data/surface.json; with --check it writes nothing and fails if the file would change.

Every item must have exactly one status; an item that surface.toml does not cover, or covers twice, and a pattern that covers
nothing, are errors. Evidence, and what is `traced`, names a recorded scenario or a test of this crate, which must exist.
What it leaves out: the weight of an item, which other repositories count; classes that a user names by their path; metrics whose
names are put together at run time.
"""

import ast
import fnmatch
import json
import pathlib
import re
import sys
import tomllib

from fields import DATA, HERE, Tree, check_release, hints

CRATE = HERE.parent
SURFACE = DATA / "surface.json"
STATUSES = ("modelled", "refused", "out_of_scope")
# The only three reasons for which an item may be out of scope.
SCOPES = {
    "hardware": "runs only on hardware that is not simulated",
    "unpriced": "does no work that a step is priced for",
    "deprecated": "deprecated upstream",
}
# Categories whose items are the values that a setting may take: category, setting, alias or field that lists them.
ENUMERATED = [
    ("scheduler_policy", "scheduling_policy", "SchedulerPolicy"),
    ("prefix_hash", "prefix_caching_hash_algo", "PrefixCachingHashAlgo"),
    ("kv_cache_dtype", "kv_cache_dtype", "CacheDType"),
    ("kv_offloading_backend", "kv_offloading_backend", "KVOffloadingBackend"),
    ("mamba_cache_mode", "mamba_cache_mode", "MambaCacheMode"),
    ("all2all_backend", "all2all_backend", "All2AllBackend"),
    ("executor", "distributed_executor_backend", "DistributedExecutorBackend"),
    ("data_parallel_backend", "data_parallel_backend", "DataParallelBackend"),
    ("expert_placement", "expert_placement_strategy", "ExpertPlacementStrategy"),
    ("dcp_communication", "dcp_comm_backend", "DCPCommBackend"),
    ("moe_backend", "moe_backend", "MoEBackend"),
    ("linear_backend", "linear_backend", "LinearBackend"),
]
# Categories whose items are named inside a JSON setting that is refused as a whole.
INSIDE = {
    "kv_connector": "kv_transfer_config",
    "kv_role": "kv_transfer_config",
    "ec_connector": "ec_transfer_config",
    "offloading_spec": "kv_transfer_config",
    "offloading_tier": "kv_transfer_config",
    "offloading_policy": "kv_transfer_config",
    "speculative_method": "speculative_config",
    "draft_sampling": "speculative_config",
    "rejection_sampling": "speculative_config",
    "structured_output": "structured_outputs_config",
    "event_publisher": "kv_events_config",
    "kv_event": "kv_events_config",
}


def registered(path, method):
    """(name, class) of each call of a factory's registration method at module level."""
    for node in ast.parse(path.read_text()).body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == method:
            name, module, owner = map(ast.literal_eval, call.args)
            yield name, f"{module}.{owner}".removeprefix("vllm.")


def literal(tree, name):
    return [str(value) for value in hints(tree, tree.values[name])[0][1]]


def alias_in(path, name):
    """The values of a Literal alias of one file, with the aliases of that file it is made of."""
    tree = type("Aliases", (), {"values": {}})()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            tree.values[node.targets[0].id] = node.value
    return [str(value) for value in hints(tree, tree.values[name])[0][1]]


def spec_types(path):
    """(category, name, manager) of what upstream's registration function registers."""
    body = next(n for n in ast.parse(path.read_text()).body if getattr(n, "name", "") == "register_all_kvcache_specs").body
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "KVCacheSpecRegistry.register":
            yield "kv_cache_spec", ast.unparse(call.args[0]), ast.unparse(call.args[1])
        elif isinstance(call, ast.Call) and ast.unparse(call.func) == "KVCacheSpecRegistry.register_role_manager":
            yield "kv_group_role", ast.unparse(call.args[0]).split(".")[-1].lower(), ast.unparse(call.args[1])


def enum_members(path, name):
    owner = next(n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef) and n.name == name)
    for statement in owner.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                value = ast.literal_eval(statement.value)
            except ValueError:
                value = None
            yield statement.targets[0].id, value.removeprefix("vllm.") if isinstance(value, str) else None


def metrics(root):
    """Every text that is a metric's whole name, but for prefixes that are only compared with."""
    found, prefixes = set(), set()
    for path in root.rglob("*.py"):
        source = path.read_text()
        if "vllm:" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"vllm:[a-z0-9_]+", node.value):
                found.add(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
                prefixes |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return sorted(found - prefixes)


def event_types(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "KVCacheEvent" for base in node.bases):
            yield node.name


def items(wheel):
    """(category, name, what it maps to or None) of everything the release registers."""
    root, tree = wheel / "vllm", Tree(wheel)
    connectors = root / "distributed/kv_transfer/kv_connector/factory.py"
    yield from (("kv_connector", *row) for row in registered(connectors, "register_connector"))
    yield from (("kv_role", name, None) for name in dict.fromkeys(alias_in(root / "config/kv_transfer.py", "KVRole")))
    ec = root / "distributed/ec_transfer/ec_connector/factory.py"
    yield from (("ec_connector", *row) for row in registered(ec, "register_connector"))
    yield from (("offloading_spec", *row) for row in registered(root / "v1/kv_offload/factory.py", "register_spec"))
    yield from (("offloading_tier", *row) for row in registered(root / "v1/kv_offload/tiering/factory.py", "register_tier"))
    policies = root / "v1/kv_offload/cpu/policies/factory.py"
    yield from (("offloading_policy", *row) for row in registered(policies, "register_cache_policy"))
    yield from spec_types(root / "v1/core/single_type_kv_cache_manager.py")
    speculative = root / "config/speculative.py"
    for category, alias in (
        ("speculative_method", "SpeculativeMethod"),
        ("draft_sampling", "DraftSampleMethod"),
        ("rejection_sampling", "RejectionSampleMethod"),
    ):
        yield from ((category, name, None) for name in alias_in(speculative, alias))
    for category, _, alias in ENUMERATED:
        yield from ((category, name, None) for name in literal(tree, alias))
    yield from (("cudagraph_mode", name, None) for name, _ in enum_members(root / "config/compilation.py", "CUDAGraphMode"))
    backends = root / "v1/attention/backends/registry.py"
    yield from (("attention_backend", *row) for row in enum_members(backends, "AttentionBackendEnum"))
    yield from (("structured_output", name, None) for name in literal(tree, "StructuredOutputsBackend"))
    yield from (("event_publisher", name, None) for name in hints(tree, tree.fields("KVEventsConfig")["publisher"].annotation)[0][1])
    yield from (("kv_event", name, None) for name in event_types(root / "distributed/kv_events.py"))
    yield from (("metric", name, None) for name in metrics(root))


def check_evidence(evidence):
    kind, _, name = evidence.partition(" ")
    if kind == "scenario":
        return (CRATE / "oracle/scenarios" / f"{name}.yaml").is_file()
    sources = [*CRATE.glob("src/**/*.rs"), *CRATE.glob("tests/**/*.rs")]
    return kind == "test" and any(f"fn {name}(" in path.read_text() for path in sources)


def check_group(group, upstream):
    where = f"surface.toml: {group.get('category')}"
    if group["status"] not in STATUSES or not group.get("reason"):
        raise SystemExit(f"{where}: a status of {', '.join(STATUSES)} and a reason are needed")
    if (group["status"] == "out_of_scope") != ("scope" in group) or group.get("scope", "hardware") not in SCOPES:
        raise SystemExit(f"{where}: out of scope needs `scope`, one of {', '.join(SCOPES)}")
    if (group["status"] == "out_of_scope") != ("upstream" in group) or not (upstream / group.get("upstream", "")).exists():
        raise SystemExit(f"{where}: out of scope needs `upstream`, the file that shows it")
    if (group["status"] == "modelled") != bool(group.get("evidence")):
        raise SystemExit(f"{where}: what is modelled, and nothing else, names its evidence")
    if "traced" in group and group["status"] != "refused":
        raise SystemExit(f"{where}: only what is refused is `traced`")
    for evidence in group.get("evidence", []) + group.get("traced", []):
        if not check_evidence(evidence):
            raise SystemExit(f"{where}: no {evidence}")


def rows(found, groups, upstream):
    settings = {category: setting for category, setting, _ in ENUMERATED} | INSIDE
    settings |= {"cudagraph_mode": "compilation_config.cudagraph_mode", "attention_backend": "attention_backend"}
    covered = {}
    for group in groups:
        check_group(group, upstream)
        for pattern in group["items"]:
            hit = [i for i in found if i[0] == group["category"] and fnmatch.fnmatchcase(i[1], pattern)]
            if not hit:
                raise SystemExit(f"surface.toml: {pattern!r} covers no {group['category']} of this release")
            for item in hit:
                # A longer pattern says more; a name without a wildcard says all.
                weight = len(pattern) if "*" in pattern else len(item[1]) + 1
                before = covered.get(item[:2], (0, None))[0]
                if before == weight:
                    raise SystemExit(f"surface.toml: {item[0]} {item[1]} is covered twice")
                if before < weight:
                    covered[item[:2]] = (weight, group)
    missing = [f"{category} {name}" for category, name, _ in found if (category, name) not in covered]
    if missing:
        raise SystemExit("surface.toml gives no status to: " + ", ".join(missing))
    for category, name, target in found:
        group = covered[(category, name)][1]
        row = {"category": category, "name": name}
        if target:
            row["maps_to"] = target
        if category in settings:
            row["setting"] = settings[category]
        row["status"] = group["status"]
        if "scope" in group:
            row["scope"], row["upstream"] = SCOPES[group["scope"]], group["upstream"]
        row["reason"] = group["reason"]
        if "evidence" in group:
            row["evidence"] = group["evidence"]
        if "traced" in group:
            row["traced"] = group["traced"]
        yield row


def main(argv):
    if len(argv) not in (2, 3) or (len(argv) == 3 and argv[2] != "--check"):
        raise SystemExit(__doc__)
    wheel = pathlib.Path(argv[1])
    check_release(wheel)
    found = list(items(wheel))
    if len(found) != len({item[:2] for item in found}):
        raise SystemExit("two items of one name in a category")
    table = list(rows(found, tomllib.loads((DATA / "surface.toml").read_text())["group"], wheel / "vllm"))
    text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=True) for row in table) + "\n]\n"
    if len(argv) == 3:
        if not SURFACE.exists() or SURFACE.read_text() != text:
            raise SystemExit("out of date, run surface.py: surface.json")
    else:
        SURFACE.write_text(text)
    counts = {status: sum(row["status"] == status for row in table) for status in STATUSES}
    print(f"{len(table)} items of the surface: {counts}")


if __name__ == "__main__":
    main(sys.argv)
