"""Empty stand-ins for the GPU libraries torch links to, so that it imports on a machine without a GPU.

PyPI has no x86-64 torch without CUDA, and its CUDA libraries weigh 2.7 GB. The oracle never calls one of
them; the dynamic loader only has to find their names and versioned symbols. Upstream's own compiled modules are
served too, so that `weights.py` can register their operations. Usage: cuda_stubs.py SITE_PACKAGES
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

GPU_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
GPU_SYMBOL = re.compile(r"(cu|nv|nccl|__cuda)")


def readelf(flag: str, path: Path) -> list[str]:
    command = ["readelf", flag, "-W", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def needed_libraries(path: Path) -> set[str]:
    found = (re.search(r"\(NEEDED\).*\[(.+?)\]", line) for line in readelf("-d", path))
    return {match[1] for match in found if match}


def version_owners(path: Path) -> dict[str, str]:
    """Version node -> the library that must define it."""
    owners: dict[str, str] = {}
    library = ""
    for line in readelf("-V", path):
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags.*Version: \d+", line):
            owners[match[1]] = library
    return owners


def undefined_symbols(path: Path) -> list[tuple[str, str]]:
    """(symbol, version or the empty string) for each undefined dynamic symbol."""
    symbols = []
    for line in readelf("--dyn-syms", path):
        fields = line.split()
        if len(fields) >= 8 and fields[6] == "UND":
            name, _, version = fields[7].partition("@")
            symbols.append((name, version))
    return symbols


def build(library: str, versions: dict[str, set[str]], unversioned: set[str], out: Path) -> None:
    named = sorted({name for names in versions.values() for name in names})
    source = out / "stub.c"
    if named:
        source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in named))
    else:
        weak = "__attribute__((weak)) void *{}(void) {{ return 0; }}\n"
        source.write_text("".join(weak.format(name) for name in sorted(unversioned)))
    command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", "-O0", f"-Wl,-soname,{library}"]
    if versions:
        script = out / "stub.map"
        nodes = (f"{node} {{ global: {'; '.join(sorted(names))}; }};" for node, names in sorted(versions.items()))
        script.write_text("\n".join(nodes) + "\n")
        command.append(f"-Wl,--version-script={script}")
    unfinished = out / f"{library}.new"
    subprocess.run([*command, "-o", str(unfinished), str(source)], check=True)
    unfinished.replace(out / library)


def main(site_packages: str) -> None:
    site = Path(site_packages)
    out = site / "nvidia" / "stub" / "lib"
    out.mkdir(parents=True, exist_ok=True)
    objects = sorted([*(site / "torch" / "lib").glob("*.so*"), *(site / "vllm").rglob("*.so")])
    present = {path.name for path in objects}
    wanted = {name for path in objects for name in needed_libraries(path)} - present
    wanted = {name for name in wanted if GPU_LIBRARY.match(name)}
    versions: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    unversioned: set[str] = set()
    for path in objects:
        owners = version_owners(path)
        for name, version in undefined_symbols(path):
            if version and owners.get(version) in wanted:
                versions[owners[version]][version].add(name)
            elif not version and GPU_SYMBOL.match(name):
                unversioned.add(name)
    for library in sorted(wanted):
        build(library, dict(versions.get(library, {})), unversioned, out)
    print(f"{len(wanted)} stand-in libraries in {out}")


if __name__ == "__main__":
    main(sys.argv[1])
