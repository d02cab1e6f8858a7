"""Reads operator tables from the pinned wheel, and chip facts from the catalog.

The wheel is verified by SHA-256 before anything in it is read. Only Parquet tables below the
pinned root are opened; the end-to-end sample in the same wheel is never read.
"""

import hashlib
import io
import tomllib
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import yaml

HERE = Path(__file__).resolve().parent
PINS = tomllib.loads((HERE / "sources.toml").read_text())
PACKAGE = "aiconfigurator-core"


@dataclass(frozen=True)
class Table:
    """One operator table: named columns, latency in microseconds, and where it came from."""

    columns: dict
    source: str
    path: str
    sha256: str
    chip: str                # the chip it was measured on
    restated: tuple          # the release asked for, and the one this chip's table has

    def __getitem__(self, name):
        return self.columns[name]

    def __len__(self):
        return len(self.columns["latency_us"])

    def where(self, mask):
        columns = {name: values[mask] for name, values in self.columns.items()}
        return replace(self, columns=columns)

    def keys(self, names):
        """Each row's values in these columns, by which the same call is found in another table."""
        return list(zip(*(self.columns[name].tolist() for name in names)))

    def reason(self, text):
        """A reason written for the release the scripts ask for, in the words of this table's."""
        return text.replace(*self.restated)

    def cite(self):
        return {"source": self.source, "table": self.path, "sha256": self.sha256, "rows": len(self)}


class Wheel:
    """The operator database, read from inside its wheel."""

    def __init__(self, path):
        pin = PINS[PACKAGE]
        data = Path(path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest != pin["sha256"]:
            raise SystemExit(f"{path}: SHA-256 is {digest}, the pinned {pin['file']} has {pin['sha256']}")
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self._root = pin["root"]
        self._source = f"{PACKAGE}-{pin['version']}"
        self._cache = {}

    def table(self, chip, family, framework, name, time=None):
        """`family/framework/name` of one chip; `latency` (milliseconds there) becomes microseconds. `time` names the column of a table that holds
        microseconds already."""
        chip = PINS["stand_ins"].get(chip, {}).get(family, chip)
        software, release = framework.split("/")
        releases = PINS["releases"].get(chip, {})
        own = releases.get(f"{family}/{framework}/{name}", releases.get(f"{family}/{framework}", release))
        path = f"{PINS['chips'][chip]}/{family}/{software}/{own}/{name}"
        if (path, time) not in self._cache:
            raw = self._zip.read(f"{self._root}/{path}.parquet")
            data = parquet.read_table(io.BytesIO(raw))
            columns = {c: np.array(data[c].to_pylist()) for c in data.column_names}
            columns["latency_us"] = columns[time] if time else columns.pop("latency") * 1e3
            columns.setdefault("window_size", np.zeros(len(data), int))      # older attention tables have full attention alone
            self._cache[path, time] = Table(columns, self._source, path, hashlib.sha256(raw).hexdigest(), chip, (release, own))
        return self._cache[path, time]


def facts(chip):
    """What the catalog states of one chip: memory and link bandwidth (bytes per microsecond), second-level cache (bytes), peaks
    (operations per microsecond) by activation format, and whether its links are NVLink or those to the host."""
    document = yaml.safe_load((HERE.parent / "catalog" / "hardware" / f"{chip}.yaml").read_text())
    peak = {name: cited["value"] / 1e6 for name, cited in document["peak"].items()}
    link, host = document["link_bandwidth"]["value"] / 1e6, document["host_bandwidth"]["value"] / 1e6
    return {"bandwidth": document["memory_bandwidth"]["value"] / 1e6, "l2_cache": float(document["l2_cache"]["value"]), "peak": peak,
            "link": link, "wire": "pcie" if link <= host else "nvlink"}


# Share of the second-level cache that weights can stay in from one replay of a call to the next. Caches of chips with stacked memory are two halves, each of which
# keeps copies of what its own side reads of the other; one alone can be filled.
KEPT, WHOLE = 0.6, ("l40s", "rtx-pro-6000")


def replayed(chip, weights):
    """Microseconds that the memory would take over the weights (bytes) of calls that find them in that cache, replayed alone; 0 where they do not fit."""
    known = facts(chip)
    kept = (1.0 if chip in WHOLE else KEPT) * known["l2_cache"]
    return np.where(weights <= kept, weights / known["bandwidth"], 0.0)
