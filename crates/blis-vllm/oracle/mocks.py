"""The only door through which the harness writes into upstream's modules, and the audit that nothing else did.

`patch` refuses a site that mocks.json does not list. `audit` looks twice for writes that did not come through it: at
the sources of this folder, for an assignment to a name imported from upstream or a call of `setattr`; and at every
loaded vllm module and class, for functions, classes or objects of this folder. What it leaves out: a write into an
instance of an upstream class (the harness makes one, the table of attention layers that loading a model would fill).
"""

import ast
import base64
import fnmatch
import hashlib
import csv
import functools
import importlib
import json
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFEST = json.loads((HERE / "mocks.json").read_text())
LISTED = [row["site"] for row in MANIFEST["replacements"]]
LISTED += [row["site"] for row in MANIFEST["observers"] if row["site"].startswith("vllm.")]
SOURCES = {path.name for path in HERE.glob("*.py")}
_applied: set[str] = set()
_stand_ins: list[type] = []
_values: list[object] = []  # what was put in place; other modules may hold the same object under an imported name


def _is_listed(site: str) -> bool:
    # A site such as sys.modules[...] holds brackets, which fnmatch would read as a character class.
    return any(site == pattern or ("*" in pattern and fnmatch.fnmatchcase(site, pattern)) for pattern in LISTED)


def _owner(path: str) -> object:
    """The module or class that a dotted path names."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            owner = getattr(owner, name)
        return owner
    raise LookupError(path)


def patch(site: str, value: object) -> object:
    """Replace what `site` names by `value`; returns what was there."""
    if not _is_listed(site):
        raise PermissionError(f"{site} is not listed in mocks.json: the oracle may not replace it")
    _applied.add(site)
    _values.append(value)
    if site.startswith("sys.modules["):
        name = site.removeprefix("sys.modules[").removesuffix("]")
        before = sys.modules.get(name)
        sys.modules[name] = value
        return before
    path, _, attribute = site.rpartition(".")
    owner = _owner(path)
    before = getattr(owner, attribute)
    setattr(owner, attribute, value)
    return before


def stand_in(site: str, kind: type) -> None:
    """Let upstream hold `kind` and its instances, which it takes from what the listed `site` offers it to import."""
    if site not in [row["site"] for row in MANIFEST["subclasses"]]:
        raise PermissionError(f"{site} is not listed in mocks.json")
    _stand_ins.append(kind)


@functools.cache
def _is_ours(filename: str) -> bool:
    path = Path(filename)
    return path.name in SOURCES and path.resolve().parent == HERE


def _comes_from_here(value: object) -> bool:
    if any(value is known for known in _values):
        return False
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if any(value is kind or type(value) is kind for kind in _stand_ins):
        return False
    if isinstance(value, types.FunctionType):
        return _is_ours(value.__code__.co_filename)
    if isinstance(value, types.ModuleType):
        return False
    owner = value if isinstance(value, type) else type(value)
    module = sys.modules.get(owner.__module__)
    return _is_ours(getattr(module, "__file__", None) or "")


def _root(node: ast.expr) -> str | None:
    """The name at the start of a chain such as `a.b[c].d`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def writes(source: str, filename: str) -> list[str]:
    """Places in a source that write into upstream without `patch`."""
    tree = ast.parse(source)
    upstream = {"sys"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or node.names[0].name
            if module.split(".")[0] in ("vllm", "torch"):
                upstream |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    found = []
    for node in ast.walk(tree):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)) and _root(target) in upstream:
                found.append(f"{filename}:{node.lineno}")
        if isinstance(node, ast.Call) and _root(node.func) in ("setattr", "delattr"):
            found.append(f"{filename}:{node.lineno}")
    return found


@functools.cache
def written_here() -> tuple[str, ...]:
    """Places in the sources of this folder that write into upstream; looked for once for all recordings of a process."""
    sources = [path for path in sorted(HERE.glob("*.py")) if path.name != Path(__file__).name]
    return tuple(place for path in sources for place in writes(path.read_text(), path.name))


def audit() -> None:
    """Fail if anything of this folder sits in a vllm module or class without having gone through `patch`."""
    stray = list(written_here())
    for name, module in list(sys.modules.items()):
        if not name.startswith("vllm") or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            site = f"{name}.{attribute}"
            if _comes_from_here(value) and site not in _applied:
                stray.append(site)
            if isinstance(value, type) and value.__module__ == name:
                for member, inner in list(vars(value).items()):
                    inner_site = f"{name}.{value.__name__}.{member}"
                    if _comes_from_here(inner) and inner_site not in _applied:
                        stray.append(inner_site)
    if stray:
        raise PermissionError(f"written into upstream without a line in mocks.json: {', '.join(sorted(stray))}")


def verify_wheel() -> int:
    """Check every Python file of the installed vllm package against its wheel's RECORD; returns how many."""
    import vllm

    site = Path(vllm.__file__).resolve().parent.parent
    (record,) = site.glob("vllm-*.dist-info/RECORD")
    checked = 0
    for path, digest, _ in csv.reader(record.read_text().splitlines()):
        if not (path.startswith("vllm/") and path.endswith(".py")):
            continue
        algorithm, _, expected = digest.partition("=")
        found = hashlib.new(algorithm, (site / path).read_bytes()).digest()
        if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != expected:
            raise PermissionError(f"{path} differs from the released wheel")
        checked += 1
    return checked
