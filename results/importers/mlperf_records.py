"""Records of MLPerf's reference convergence points, as found in mlcommons/logging, and their benchmarks."""

import csv
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from results.aliases import Fields, StringMap
from results.durable import Folder
from results.importers import untrusted
from results.importers.untrusted import ImportWarnings, Unusable

ABOUT = ("Creator", "When", "Platform", "Precision")
MOST_RECORDS = 1000  # per file

_TO_CONVERGE = re.compile(r"(\w+) to converge", re.IGNORECASE)
_LONGEST = 2**31 - 1  # steps are int32


class Benchmark(NamedTuple):
    """A benchmark in ``mlperf_benchmarks.csv``. Its strings are part of plans, so changing them would rename studies.

    Attributes:
      dataset, model: our names. The source uses a single name for both.
      unit: unit of "Epochs to converge" in the source.
      unit_source: source of the unit.
      examples: training examples per epoch, or None if unknown.
      examples_source: source of ``examples``, or the reason why they are unknown.
      tokens: tokens per example, if the unit is tokens.
    """

    dataset: str
    model: str
    unit: str
    unit_source: str
    examples: int | None = None
    examples_source: str | None = None
    tokens: int | None = None


def _benchmarks() -> Iterator[tuple[str, Benchmark]]:
    with Path(__file__).with_name("mlperf_benchmarks.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            examples, tokens = (int(row[key]) if row[key] else None for key in ("examples", "tokens"))
            names = row["dataset"], row["model"]
            source = row["examples_source"] or None
            yield row["name"], Benchmark(*names, row["unit"], row["unit_source"], examples, source, tokens)


BENCHMARKS = dict(_benchmarks())
ALIASES = {"gnn": "rgat", "rnn_t": "rnnt", "sd": "stable_diffusion"}

_FIRST_SSD = re.compile(r"training_1\.[01]\.\d+")
_LONGEST_UNET3D = 10_000  # epochs; under the rules, a longer run has not converged


def canonical(name: str, release: str) -> str:
    """Returns a benchmark's canonical name, which may have changed between releases."""
    if name == "ssd" and not _FIRST_SSD.fullmatch(release):
        return "retinanet"  # since 5.0, the same records have this name
    return ALIASES.get(name, name)


def benchmark_of(name: str, release: str) -> Benchmark:
    """Returns the benchmark of a record. Unknown benchmarks have neither a unit nor examples."""
    word = untrusted.word(canonical(name, release), "unnamed")
    unknown = Benchmark(word, word, "unstated", "nothing tells the unit of a benchmark unknown to this software")
    return BENCHMARKS.get(canonical(name, release), unknown)


def unit_of(name: str, release: str, key: str, largest: float) -> tuple[str, str]:
    """Returns the unit of a record's numbers, and the source of that unit.

    Args:
      name, release: benchmark and release of the record.
      key: word before "to converge" in the record.
      largest: largest number in the record.
    """
    if key in ("samples", "tokens", "steps"):
        return key, "the record"
    benchmark = benchmark_of(name, release)
    if name == "sd":
        return "steps", "release 4.0.0 lists the same runs times the batch size, as samples"
    if benchmark is BENCHMARKS["unet3d"] and largest > _LONGEST_UNET3D:
        return "samples", f"more than {_LONGEST_UNET3D} epochs is not convergence under MLPerf's training rules"
    return benchmark.unit, benchmark.unit_source


class ReferencePoint(NamedTuple):
    """A record in a file.

    Attributes:
      place: release and name that identify the record in the source.
      release, benchmark: names in the source.
      batch_size: global batch size.
      metaparameters: plain data with numbers as float.
      values: training length of each run.
      unit, unit_source: unit of ``values``, and the source of that unit.
      about: creator, date, platform and precision, if recorded.
    """

    place: str
    release: str
    benchmark: str
    batch_size: int
    metaparameters: Fields
    values: tuple[Fraction, ...]
    unit: str
    unit_source: str
    about: StringMap

    @property
    def known(self) -> Benchmark:
        return benchmark_of(self.benchmark, self.release)

    @property
    def samples(self) -> tuple[Fraction, ...] | None:
        """Returns the number of training examples of each run, or None if the unit or epoch size is unknown."""
        benchmark = self.known
        scale = {"samples": 1, "steps": self.batch_size, "epochs": benchmark.examples or 0}.get(self.unit, 0)
        if self.unit == "tokens" and benchmark.tokens:
            return tuple(length / benchmark.tokens for length in self.values)
        return tuple(length * scale for length in self.values) if scale else None


def read(path: Folder, warnings: ImportWarnings) -> list[ReferencePoint]:
    """Reads all records in rcps_*.json files in a folder and its subfolders, oldest release first."""
    records = []
    for folder, names in untrusted.files(path, warnings):
        for file in (folder / name for name in names if name.startswith("rcps_") and name.endswith(".json")):
            try:
                content = untrusted.read_json(file, path)
                if not 0 < len(content) <= MOST_RECORDS:
                    raise Unusable(f"holds {len(content):,} records" if content else "holds no record")
            except Unusable as error:
                warnings.add(untrusted.display_path(file, path), error)
                continue
            for name, fields in content.items():
                try:
                    records.append(record(folder.name, name, fields))
                except Unusable as error:
                    warnings.add(f"{untrusted.display_path(file, path)}: {untrusted.brief(name)}", error)
    return sorted(records, key=lambda r: (_age(r.release), r.place))


def record(release: str, name: str, fields: object) -> ReferencePoint:
    """Parses a record. Raises Unusable if a required value is missing or has a wrong type."""
    if not isinstance(fields, dict):
        raise Unusable("is not an object")
    benchmark, batch_size = untrusted.text(fields.get("Benchmark"), 80), untrusted.int_or_none(fields.get("BS"), 1)
    metaparameters = fields.get("Hyperparams", {})
    keys = [key for key in fields if _TO_CONVERGE.fullmatch(key)]
    if benchmark is None:
        raise Unusable("does not name its Benchmark")
    if batch_size is None:
        raise Unusable(f"BS must be an integer, not {untrusted.brief(fields.get('BS'))}")
    if not isinstance(metaparameters, dict) or len(metaparameters) > untrusted.MOST_METAPARAMETERS:
        raise Unusable("Hyperparams is not an object, or too large")
    if len(keys) != 1:
        raise Unusable(f"has {len(keys)} entries `... to converge` instead of one")
    values = _values(fields[keys[0]])
    word = _TO_CONVERGE.fullmatch(keys[0])[1].lower()  # type: ignore[index]
    unit, source = unit_of(benchmark, release, word, float(max(values)))
    texts = {key.lower(): untrusted.text(fields.get(key)) for key in ABOUT}
    about = {key: value for key, value in texts.items() if value and value != "TBD"}
    plain = {key: _plain(value) for key, value in metaparameters.items()}
    point = ReferencePoint(
        f"{release}/{name[:100]}", release, benchmark, batch_size, plain, values, unit, source, about
    )
    if max(point.samples or [0]) / batch_size > _LONGEST:
        raise Unusable(f"trained for more than {_LONGEST:,} steps, if its numbers are {unit}")
    return point


def _values(values: object) -> tuple[Fraction, ...]:
    if not isinstance(values, list) or not values:
        raise Unusable("has no list of training lengths")
    for length in values:
        if not (untrusted.number(length) or 0) > 0:
            raise Unusable(f"has the training length {untrusted.brief(length)}, which is not a positive number")
    return tuple(Fraction(repr(length)) for length in values)


def _plain(value: object, depth: int = 0) -> Any:
    """Returns a metaparameter as plain data, with all numbers converted to float."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, list) and depth < 3 and len(value) <= untrusted.MOST_METAPARAMETERS:
        return [_plain(element, depth + 1) for element in value]
    numeric = untrusted.numeric(value)
    if numeric is None and not isinstance(value, str):
        raise Unusable(f"has a metaparameter of an unsupported type: {untrusted.brief(value)}")
    return untrusted.text(value, 400) if numeric is None else numeric


def _age(release: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,6}", release)[:3]), release
