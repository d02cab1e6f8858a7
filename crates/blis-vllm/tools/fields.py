#!/usr/bin/env python3
"""Generate the field table of the modelled vLLM release from its unpacked wheel.

Usage: fields.py WHEEL_DIR [--check]

Reads upstream's sources as syntax trees (nothing of vLLM is imported or run), merges the two
hand-kept tables of ../data (status.toml, formerly.toml) and writes ../data/fields.json and
../src/config/setting.rs. The table also says which of its rows state each field of upstream's
configuration classes. With --check it writes nothing and fails if either would change.

The wheel must be of the release that ../upstream.toml pins. Every row must have exactly one status: a field that status.toml does not cover, or covers
twice, and a pattern that covers nothing, are errors.
"""

import ast
import fnmatch
import json
import pathlib
import re
import sys
import tomllib

from classes import config_classes

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
SETTING_RS = HERE.parent / "src" / "config" / "setting.rs"

# JSON flags whose keys are listed one by one, with the class that upstream validates them with.
NESTED = {
    "compilation_config": "CompilationConfig",
    "compilation_config.pass_config": "PassConfig",
    "compilation_config.dynamic_shapes_config": "DynamicShapesConfig",
    "attention_config": "AttentionConfig",
    "attention_config.hisparse_config": "HiSparseConfig",
    "quantization_config": "QuantizationConfigArgs",
    "quantization_config.linear": "QuantSpec",
    "quantization_config.moe": "QuantSpec",
    "kernel_config": "KernelConfig",
    "kernel_config.ir_op_priority": "IrOpPriorityConfig",
    "ir_op_priority": "IrOpPriorityConfig",
    "mamba_config": "MambaConfig",
    "engram_config": "EngramConfig",
    "pooler_config": "PoolerConfig",
    "eplb_config": "EPLBConfig",
    "fault_tolerance_config": "FaultToleranceConfig",
    "speculative_config": "SpeculativeConfig",
    "speculative_config.draft_load_config": "LoadConfig",
    "watermark_config": "WatermarkConfig",
    "diffusion_config": "DiffusionConfig",
    "reasoning_config": "ReasoningConfig",
    "structured_outputs_config": "StructuredOutputsConfig",
    "kv_transfer_config": "KVTransferConfig",
    "kv_events_config": "KVEventsConfig",
    "ec_transfer_config": "ECTransferConfig",
    "ec_manager_config": "EncoderCacheManagerConfig",
    "aux_output_config": "AuxOutputConfig",
    "weight_transfer_config": "WeightTransferConfig",
    "profiler_config": "ProfilerConfig",
    "logging_config": "LoggingConfig",
}
# Keys that upstream sets itself, whatever a line says of them: configurations of which each field has a flag.
SET_BY_UPSTREAM = {
    f"speculative_config.{name}"
    for name in ("target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config")
}
NESTED_REASON = "an object whose keys are settings of their own"
BOUNDS = ("gt", "ge", "lt", "le")


class Tree:
    """All module-level classes, aliases and constants of the files that define configuration."""

    def __init__(self, root):
        self.root = root / "vllm"
        files = sorted((self.root / "config").glob("*.py")) + [
            self.root / "engine/arg_utils.py",
            self.root / "entrypoints/launchers/cli_args.py",
            self.root / "entrypoints/launchers/utils/constants.py",
            self.root / "entrypoints/anthropic/protocol.py",
            self.root / "renderers/chat_utils.py",
            self.root / "tool_parsers/tool_strict_level.py",
            self.root / "v1/attention/backends/registry.py",
            self.root / "v1/attention/backends/mla/prefill/registry.py",
        ]
        self.classes, self.values = {}, {}
        for path in files:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.values.setdefault(node.targets[0].id, node.value)
                elif isinstance(node, ast.AnnAssign) and node.value is not None:
                    self.values.setdefault(node.target.id, node.value)

    def fields(self, name):
        """Annotated attributes of a class, bases first, without ClassVar and init=False ones."""
        node, out = self.classes[name], {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in self.classes:
                out.update(self.fields(base.id))
        for stmt in node.body:
            if not isinstance(stmt, ast.AnnAssign):
                continue
            text = ast.unparse(stmt.annotation)
            if "ClassVar" in text or (stmt.value and "init=False" in ast.unparse(stmt.value)):
                continue
            out[stmt.target.id] = stmt
        return out

    def is_enum(self, name):
        node = self.classes.get(name)
        return node is not None and any("Enum" in ast.unparse(b) for b in node.bases)

    def enum_members(self, name):
        return [
            s.targets[0].id
            for s in self.classes[name].body
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and s.targets[0].id[0] != "_"
        ]


def literal_items(tree, node):
    """The values one member of a Literal stands for: itself, a named constant, or a nested Literal."""
    if isinstance(node, ast.Name):
        node = tree.values[node.id]
        if isinstance(node, ast.Subscript):
            return hints(tree, node)[0][1]
    if isinstance(node, ast.Subscript):
        return hints(tree, node)[0][1]
    return [ast.literal_eval(node)]


def hints(tree, node):
    """The set of type hints of an annotation, as upstream's get_type_hints sees it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp):
        return hints(tree, node.left) + hints(tree, node.right)
    if isinstance(node, ast.Constant) and node.value is None:
        return [("None",)]
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value)
        if head == "Literal":
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return [("Literal", [value for item in items for value in literal_items(tree, item)])]
        if head in ("Annotated", "InitVar", "SkipValidation"):
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return hints(tree, inner)
        if head in ("list", "set", "tuple"):
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return [("list", hints(tree, inner))]
        return [("dict" if head == "dict" else "other", head)]
    name = ast.unparse(node)
    if name in ("bool", "int", "float", "str"):
        return [(name,)]
    if name == "dict":
        return [("dict", name)]
    if name in tree.values:
        return hints(tree, tree.values[name])
    if tree.is_enum(name):
        return [("enum", name)]
    if name in tree.classes:
        return [("dataclass", name)]
    return [("other", name)]


def kind_of(tree, node, name):
    """(type, choices, optional): what upstream's _compute_kwargs makes of an annotation."""
    if ast.unparse(node) == "QuantKeyField":
        return "choice", [k.value for k in tree.values["QUANT_KEY_NAMES"].keys], True
    found = hints(tree, node)
    heads = {h[0] for h in found}
    optional = "None" in heads and "bool" not in heads
    literal = [value for h in found if h[0] == "Literal" for value in h[1]] or None
    sequence = next((h[1] for h in found if h[0] == "list"), None)
    if "dataclass" in heads:
        return "json", None, optional
    if heads == {"bool", "str", "None"}:
        return "flag_or_str", None, False
    if "bool" in heads:
        return "bool", None, False
    if literal is not None:
        if "str" in heads:
            return "str", None, optional
        kind = "int_choice" if isinstance(literal[0], int) else "choice"
        return kind, literal, optional
    if sequence is not None:
        elements = {h[0] for h in sequence}
        choices = next((h[1] for h in sequence if h[0] == "Literal"), None)
        return ("ints" if elements == {"int"} else "strs"), choices, optional
    if "enum" in heads:
        enum = next(h[1] for h in found if h[0] == "enum")
        integral = "IntEnum" in [ast.unparse(b) for b in tree.classes[enum].bases]
        if integral and name != "mode":
            values = [ast.literal_eval(s.value) for s in tree.classes[enum].body if isinstance(s, ast.Assign)]
            return "int", values, optional
        return "enum", tree.enum_members(enum), optional
    if "int" in heads:
        human = {
            "max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes",
            "safetensors_prefetch_block_size", "max_num_queued_tokens",
        }
        kind = "int_human_or_auto" if name == "max_model_len" else "int_human" if name in human else "int"
        return kind, None, optional
    if "float" in heads:
        return "float", None, optional
    if "dict" in heads:
        return ("json_or_str" if {"str", "other"} & heads else "json"), None, optional
    return "str", None, optional


def literal(node):
    """A default as JSON text, or None where it is no literal."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError):
        return None
    return json.dumps(sorted(value) if isinstance(value, set) else value)


def default_and_bounds(tree, node):
    """(default, bounds) of a field's right-hand side; "derived" where upstream computes it."""
    if node is None:
        return "derived", {}
    if isinstance(node, ast.Call):
        head = ast.unparse(node.func)
        keywords = {k.arg: k.value for k in node.keywords}
        if head in ("Field", "field", "PydanticField"):
            bounds = {b: ast.literal_eval(keywords[b]) for b in BOUNDS if b in keywords}
            if "default_factory" in keywords:
                factory = ast.unparse(keywords["default_factory"])
                empty = {"list": "[]", "dict": "{}", "set": "[]"}.get(factory)
                if empty is None and isinstance(keywords["default_factory"], ast.Lambda):
                    empty = literal(keywords["default_factory"].body)
                if empty is None and factory in tree.classes:
                    empty = "{}"
                return empty or "derived", bounds
            value = keywords.get("default", node.args[0] if node.args else None)
            return (default_and_bounds(tree, value)[0] if value is not None else "derived"), bounds
        if head == "get_field":
            owner, name = ast.unparse(node.args[0]), ast.literal_eval(node.args[1])
            return default_and_bounds(tree, tree.fields(owner)[name].value)
        if head == "int" and "ssl.CERT_NONE" in ast.unparse(node):
            return "0", {}
    if isinstance(node, ast.Attribute):
        owner, name = ast.unparse(node.value), node.attr
        if owner in tree.classes and tree.is_enum(owner):
            members = {s.targets[0].id: s.value for s in tree.classes[owner].body if isinstance(s, ast.Assign)}
            integral = "IntEnum" in [ast.unparse(b) for b in tree.classes[owner].bases]
            return (literal(members[name]) if integral else json.dumps(name)), {}
        if owner in tree.classes and name in tree.fields(owner):
            return default_and_bounds(tree, tree.fields(owner)[name].value)
    if isinstance(node, ast.Name) and node.id in tree.values:
        return default_and_bounds(tree, tree.values[node.id])
    if isinstance(node, ast.Name):
        found = [
            s.value for c in tree.classes.values() for s in c.body
            if isinstance(s, ast.AnnAssign) and s.value is not None and s.target.id == node.id
        ]
        if len(found) == 1:
            return default_and_bounds(tree, found[0])
    return literal(node) or "derived", {}


def row(key, scope, flags, kind, choices, optional, default, bounds):
    out = {"key": key, "scope": scope}
    if flags:
        out["flags"] = flags
    out["type"] = kind
    if choices:
        out["choices"] = list(dict.fromkeys(str(c) for c in choices))
    if optional:
        out["optional"] = True
    if default != "derived":
        out["default"] = json.loads(default)
    out.update(bounds)
    return out


class CliReader(ast.NodeVisitor):
    """Reads add_argument calls of one function: flag spellings and what they override."""

    def __init__(self):
        self.owners, self.aliases, self.json_fields, self.found = {}, {}, set(), []

    def visit_Assign(self, node):
        target, value = node.targets[0], node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "get_kwargs":
            self.owners[target.id] = ast.unparse(value.args[0])
        elif isinstance(target, ast.Name) and isinstance(value, ast.Subscript):
            if ast.unparse(value.value) == "get_kwargs(VllmConfig)":
                self.owners["@VllmConfig"] = "VllmConfig"
                self.aliases[target.id] = ("VllmConfig", ast.literal_eval(value.slice))
            elif isinstance(value.value, ast.Name) and value.value.id in self.owners:
                self.aliases[target.id] = (self.owners[value.value.id], ast.literal_eval(value.slice))
        elif isinstance(target, ast.Subscript) and "json.loads" in ast.unparse(value):
            self.json_fields.add(ast.literal_eval(target.value.slice))

    def source(self, node):
        """(class, field) behind ``**kwargs``, if any."""
        if isinstance(node, ast.Dict):
            node = next((v for k, v in zip(node.keys, node.values) if k is None), None)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return self.owners[node.value.id], ast.literal_eval(node.slice)
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id)
        return None

    def visit_Call(self, node):
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
            return
        flags = [a.value for a in node.args if isinstance(a, ast.Constant)]
        if not flags:
            return
        keywords = {k.arg: k.value for k in node.keywords if k.arg}
        spread = next((k.value for k in node.keywords if k.arg is None), None)
        override = None
        if isinstance(spread, ast.Dict):
            override = {k.value: v for k, v in zip(spread.keys, spread.values) if k is not None}
        self.found.append((flags, keywords, self.source(spread) if spread is not None else None, override or {}))


def plain_kind(keywords):
    """The type of an argument that upstream spells out in add_argument itself."""
    action = ast.unparse(keywords["action"]) if "action" in keywords else ""
    if action == "'store_true'":
        return "flag", None
    if "BooleanOptionalAction" in action:
        return "bool", None
    if "choices" in keywords:
        try:
            return "choice", list(ast.literal_eval(keywords["choices"]))
        except ValueError:
            return "str", None
    return ("int" if ast.unparse(keywords.get("type", ast.Constant("str"))) == "int" else "str"), None


def cli_rows(tree, function, scope, dests):
    reader = CliReader()
    reader.visit(function)
    rows = []
    for flags, keywords, source, override in reader.found:
        dest = ast.literal_eval(keywords["dest"]) if "dest" in keywords else None
        long = next((f for f in flags if f.startswith("--")), flags[0])
        key = dest or long.lstrip("-").replace("-", "_")
        if source is not None:
            stmt = tree.fields(source[0])[source[1]]
            kind, choices, optional = kind_of(tree, stmt.annotation, source[1])
            _, bounds = default_and_bounds(tree, stmt.value)
            if source[1] in reader.json_fields:
                kind = "json"
            if key in NESTED:
                kind = "nested"
            if key in ("moe_backend", "linear_backend", "sparse_indexer_topk_backend"):
                kind = "choice_folded"
            if key == "all2all_backend":
                choices = [c for c in choices if c != "passthrough"]
        else:
            (kind, choices), optional, bounds = plain_kind(keywords), False, {}
            if key == "log_level":
                kind, choices = "choice", hints(tree, tree.values["LogLevel"])[0][1]
        if key in dests:
            default, more = default_and_bounds(tree, dests[key].value)
            bounds = bounds or more
        else:
            default = literal(keywords["default"]) if "default" in keywords else None
            default = default or ("false" if kind == "flag" else "null")
        if "default" in override:
            default = literal(override["default"]) or default
        rows.append(row(key, scope, flags, kind, choices, optional, default, bounds))
    return rows


def function_of(tree_body, name):
    return next(n for n in tree_body if isinstance(n, ast.FunctionDef) and n.name == name)


def engine_rows(tree):
    dests = tree.fields("AsyncEngineArgs")
    for name, stmt in dests.items():
        refuse_unlisted(tree, stmt.annotation, name)
    rows = cli_rows(tree, function_of(tree.classes["EngineArgs"].body, "add_cli_args"), "engine", dests)
    rows += cli_rows(tree, function_of(tree.classes["AsyncEngineArgs"].body, "add_cli_args"), "engine", dests)
    known = {r["key"] for r in rows} | set(tree.fields("FrontendArgs"))
    for name, stmt in dests.items():
        if name not in known:
            kind, choices, optional = kind_of(tree, stmt.annotation, name)
            if name in NESTED:
                kind = "nested"
            default, bounds = default_and_bounds(tree, stmt.value)
            rows.append(row(name, "engine", [], kind, choices, optional, default, bounds))
    return rows


def frontend_rows(tree):
    source = ast.parse((tree.root / "entrypoints/launchers/cli_args.py").read_text())
    rows = [r for r in cli_rows(tree, function_of(source.body, "make_arg_parser"), "frontend", {}) if r["key"] != "model_tag"]
    jsons = {"default_chat_template_kwargs", "allowed_origins", "allowed_methods", "allowed_headers"}
    for name, stmt in tree.fields("FrontendArgs").items():
        kind, choices, optional = kind_of(tree, stmt.annotation, name)
        default, bounds = default_and_bounds(tree, stmt.value)
        if name in jsons:
            kind = "json"
        if name == "middleware":
            kind = "str"
        rows.append(row(name, "frontend", ["--" + name.replace("_", "-")], kind, choices, optional, default, bounds))
    return rows


def refuse_unlisted(tree, annotation, key):
    """No object of named keys is left out of NESTED."""
    owners = [h[1] for h in hints(tree, annotation) if h[0] == "dataclass"]
    if any(owner.endswith("Config") for owner in owners) and key not in NESTED:
        raise SystemExit(f"{key} has the keys of {', '.join(owners)}, which NESTED does not list")


def plain_list(tree, annotation):
    """Whether the items of a list are words or whole numbers."""
    items = next(h[1] for h in hints(tree, annotation) if h[0] == "list")
    return not {h[0] for h in items} & {"float", "list", "dict"}


def nested_rows(tree):
    rows = []
    for prefix, owner in NESTED.items():
        for name, stmt in tree.fields(owner).items():
            key = f"{prefix}.{name}"
            kind, choices, optional = kind_of(tree, stmt.annotation, name)
            if key in NESTED:
                kind = "nested"
            elif key not in SET_BY_UPSTREAM:
                refuse_unlisted(tree, stmt.annotation, key)
            if name.endswith("_backend") and kind == "choice" and prefix == "kernel_config":
                kind = "choice_folded"
            if kind == "int_human_or_auto":
                kind = "int"
            if kind == "strs" and not plain_list(tree, stmt.annotation):
                kind = "list"
            default, bounds = default_and_bounds(tree, stmt.value)
            rows.append(row(key, prefix, [], kind, choices, optional or default == "null", default, bounds))
    return rows


def env_kind(name, node):
    """(type, choices, default) of one entry of upstream's environment_variables."""
    text = ast.unparse(node)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("env_with_choices", "env_set_with_choices"):
        arguments = [a for a in node.args] + [k.value for k in node.keywords if k.arg in ("default", "choices")]
        default, choices = ast.literal_eval(arguments[1]), ast.literal_eval(arguments[2])
        folded = "case_sensitive=False" in text
        kind = "strs" if "env_set" in text else ("choice_nocase" if folded else "choice")
        return kind, choices, json.dumps(default)
    got = re.search(r"os\.(?:getenv|environ\.get)\('%s'(?:, (.*?))?\)" % name, text)
    default = "null"
    if got and got.group(1):
        try:
            default = json.dumps(ast.literal_eval(got.group(1)))
        except (ValueError, SyntaxError):
            default = "derived"
    elif not got:
        default = "derived"
    if "maybe_convert_bool" in text:
        return "bool_int", None, default
    if re.search(r"bool\(int\(os", text):
        default = default if default != "derived" else ('"1"' if text.endswith("else True") else default)
        return "bool_int", None, default
    if "in ('1', 'true')" in text or "in ('true', '1')" in text:
        return "bool_word", None, default
    if re.search(r"== '1'$", text):
        return "bool_one", None, default
    if re.match(r"lambda: int\(", text):
        return "int", None, default
    if re.match(r"lambda: float\(", text):
        return "float", None, default
    return "str", None, default


def env_rows(tree):
    source = ast.parse((tree.root / "envs.py").read_text())
    table = next(
        n.value for n in source.body
        if isinstance(n, ast.AnnAssign) and n.target.id == "environment_variables"
    )
    rows = []
    for key, value in zip(table.keys, table.values):
        kind, choices, default = env_kind(key.value, value)
        rows.append(row(key.value, "env", [], kind, choices, False, default, {}))
    return rows


def foreign_rows(status):
    """Variables of other libraries: they have no upstream table, so status.toml declares them."""
    return [
        row(name, "foreign", [], "str", None, False, "null", {})
        for group in status["group"] for name in group.get("foreign", [])
    ]


def apply_status(rows, status):
    reasons, covered = [], {}
    for group in status["group"]:
        if group["status"] not in ("modelled", "inert", "not_modelled"):
            raise SystemExit(f"status.toml: unknown status {group['status']!r}")
        if group["reason"] not in reasons:
            reasons.append(group["reason"])
        for pattern in group.get("fields", []) + group.get("foreign", []):
            hit = [r for r in rows if r["key"] == pattern] or (
                [r for r in rows if fnmatch.fnmatchcase(r["key"], pattern)] if "*" in pattern else []
            )
            exact = "*" not in pattern
            if not hit:
                raise SystemExit(f"status.toml: {pattern!r} covers no field of this release")
            for r in hit:
                before = covered.get(r["key"])
                if before is not None and before[0] == exact:
                    raise SystemExit(f"status.toml: {r['key']} is covered twice")
                if before is None or exact:
                    covered[r["key"]] = (exact, group)
    for r in rows:
        if r["type"] == "nested":
            covered.setdefault(r["key"], (True, {"status": "nested", "reason": NESTED_REASON}))
    reasons.append(NESTED_REASON)
    missing = [r["key"] for r in rows if r["key"] not in covered]
    if missing:
        raise SystemExit("status.toml gives no status to: " + ", ".join(missing))
    for r in rows:
        group = covered[r["key"]][1]
        r["status"] = group["status"]
        if "values" in group:
            r["values"] = group["values"]
        r["reason"] = reasons.index(group["reason"])
    return reasons


def apply_estimates(rows, status):
    """Gives fields their estimation rules, where these are not what their status says, and returns the rules."""
    by_key, rules = {r["key"]: r for r in rows}, []
    grouped = [
        {"rule": g["estimate"], "because": g["because"], "fields": g["fields"]} for g in status["group"] if "estimate" in g
    ]
    for entry in grouped + status["estimate"]:
        rule = {k: entry[k] for k in ("rule", "value", "because", "preserves", "valid_when") if k in entry}
        wanted = {"unset": {"rule", "because"}, "stand_in": {"rule", "because", "value", "preserves", "valid_when"}}.get(rule["rule"])
        if set(rule) != wanted:
            raise SystemExit(f"status.toml: the estimation rule {rule} states {sorted(rule)}, it must state {sorted(wanted or ())}")
        if rule not in rules:
            rules.append(rule)
        for key in [k for clause in rule.get("valid_when", []) for k in clause]:
            if key not in by_key:
                raise SystemExit(f"status.toml: an estimation rule holds where {key} has a value, which this release lacks")
        for pattern in entry["fields"]:
            hit = [r for r in rows if fnmatch.fnmatchcase(r["key"], pattern)]
            if not hit:
                raise SystemExit(f"status.toml: an estimation rule is for {pattern!r}, which covers no field of this release")
            for r in hit:
                if "estimate" in r and rules[r["estimate"]] != rule:
                    raise SystemExit(f"status.toml: {r['key']} has two estimation rules")
                r["estimate"] = rules.index(rule)
    return rules


def apply_code(rows, status):
    """Marks the fields that can name code."""
    by_key = {r["key"]: r for r in rows}
    for entry in status["code"]:
        if entry["names"] not in ("any", "path"):
            raise SystemExit(f"status.toml: code is named by {entry['names']!r}")
        for key in entry["fields"]:
            if key not in by_key:
                raise SystemExit(f"status.toml: {key} is said to name code, and this release lacks it")
            by_key[key]["code"] = entry["names"]
    unmarked = [
        r["key"] for r in rows
        if re.search(r"(_cls|_plugin|_plugins|_class_overrides|_processors|_module_path|PLUGINS)$", r["key"]) and "code" not in r
    ]
    if unmarked:
        raise SystemExit("status.toml does not say how these name code: " + ", ".join(unmarked))


def check_formerly(rows, formerly):
    keys = {r["key"] for r in rows}
    flags = {f for r in rows for f in r.get("flags", [])}
    for entry in formerly["row"]:
        for need in ("old", "from", "seen", "reason", "becomes"):
            if need not in entry:
                raise SystemExit(f"formerly.toml: {entry.get('old')} has no {need!r}")
        for key in [*entry.get("to", {}), *entry.get("beside", {})]:
            if key not in keys:
                raise SystemExit(f"formerly.toml: {entry['old']} points at {key}, which this release lacks")
        spelled = entry["old"].split("=")[0]
        if spelled in keys | flags and "=" not in entry["old"]:
            raise SystemExit(f"formerly.toml: {entry['old']} still exists in this release")
    rows_of = {entry["old"] for entry in formerly["row"]}
    gone = [flag for entry in formerly["gone"] for flag in entry["flags"]]
    for flag in gone:
        if flag in flags or flag in rows_of or gone.count(flag) > 1:
            raise SystemExit(f"formerly.toml: {flag} is no flag that is gone, or stands there twice")


def variant(key):
    return "".join(part.capitalize() for part in re.split(r"[._]", key) if part)


def setting_rs(rows):
    modelled = [r["key"] for r in rows if r["status"] == "modelled"]
    lines = [
        "//! The modelled settings, one variant per row of `data/fields.json` whose status is `modelled`.",
        "//! Objects whose keys are settings of their own have no variant.",
        "//! Generated by `tools/fields.py`; never edited. Rows of other statuses have no variant, so no code can read them.",
        "",
        "/// A setting of the modelled release that changes a decision or a price.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]",
        "pub enum Setting {",
    ]
    for key in modelled:
        lines += [f"    /// `{key}`", f"    {variant(key)},"]
    lines += ["}", "", "impl Setting {", "    /// Every modelled setting, in the order of the field table.", "    pub const ALL: &'static [Setting] = &["]
    lines += [f"        Setting::{variant(key)}," for key in modelled]
    lines += ["    ];", "", "    /// The upstream name of each setting, in the order of [`Setting::ALL`].", "    pub const KEYS: &'static [&'static str] = &["]
    lines += [f'        "{key}",' for key in modelled]
    lines += ["    ];", "", "    /// The setting's upstream name.", "    pub fn key(self) -> &'static str {", "        Self::KEYS[self as usize]", "    }", "}", ""]
    return "\n".join(lines)


def fields_json(rows, reasons, estimates, formerly, classes):
    def compact(value):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=True)

    # The reader borrows every text but defaults from the embedded file, which only texts without escapes allow.
    for r in rows + formerly["row"] + formerly["gone"] + estimates:
        if "\\" in compact({k: v for k, v in r.items() if k != "default"}):
            raise SystemExit(f"a text of {r.get('key', r.get('old', r.get('flags')))} needs an escape in JSON")
    rules = ",\n".join(compact(r) for r in estimates)
    body = ",\n".join(compact(r) for r in rows)
    old = ",\n".join(compact(r) for r in formerly["row"])
    if "\\" in compact(reasons):
        raise SystemExit("a reason needs an escape in JSON")
    parts = {"reasons": ",\n".join(compact(r) for r in reasons), "estimates": rules, "fields": body, "formerly": old}
    parts["gone"] = ",\n".join(compact(r) for r in formerly["gone"])
    parts["classes"] = ",\n".join(compact(c) for c in classes)
    return "{" + ",\n".join(f'"{name}":[\n{lines}\n]' for name, lines in parts.items()) + "}\n"


def check_release(wheel):
    """The wheel is of the release that upstream.toml pins."""
    pinned = tomllib.loads((HERE.parent / "upstream.toml").read_text())["vllm"]["release"]
    found = [p.name.removeprefix("vllm-").removesuffix(".dist-info") for p in wheel.glob("vllm-*.dist-info")]
    if found != [pinned]:
        raise SystemExit(f"upstream.toml pins vLLM {pinned}; {wheel} holds {', '.join(found) or 'no vLLM'}")


def main(argv):
    if len(argv) not in (2, 3) or (len(argv) == 3 and argv[2] != "--check"):
        raise SystemExit(__doc__)
    check_release(pathlib.Path(argv[1]))
    tree = Tree(pathlib.Path(argv[1]))
    status = tomllib.loads((DATA / "status.toml").read_text())
    formerly = tomllib.loads((DATA / "formerly.toml").read_text())
    rows = engine_rows(tree) + frontend_rows(tree) + nested_rows(tree) + env_rows(tree) + foreign_rows(status)
    keys = [r["key"] for r in rows]
    twice = sorted({k for k in keys if keys.count(k) > 1})
    if twice:
        raise SystemExit("two rows of one name: " + ", ".join(twice))
    reasons = apply_status(rows, status)
    estimates = apply_estimates(rows, status)
    apply_code(rows, status)
    check_formerly(rows, formerly)
    classes = config_classes(tree, NESTED, set(keys))
    wanted = {DATA / "fields.json": fields_json(rows, reasons, estimates, formerly, classes), SETTING_RS: setting_rs(rows)}
    if len(argv) == 3:
        stale = [p.name for p, text in wanted.items() if not p.exists() or p.read_text() != text]
        if stale:
            raise SystemExit("out of date, run fields.py: " + ", ".join(stale))
    else:
        for path, text in wanted.items():
            path.write_text(text)
    by_status = {s: sum(r["status"] == s for r in rows) for s in ("modelled", "inert", "not_modelled")}
    total = sum(len(c["fields"]) for c in classes)
    print(f"{len(rows)} fields: {by_status}; {len(formerly['row'])} former spellings; {total} fields of {len(classes)} classes")


if __name__ == "__main__":
    main(sys.argv)
