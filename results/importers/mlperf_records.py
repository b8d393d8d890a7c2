"""The records of MLPerf's reference convergence points, as the files of mlcommons/logging hold them."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from results.durable import Folder
from results.importers import mlperf_benchmarks, untrusted
from results.importers.mlperf_benchmarks import Benchmark, Unit
from results.importers.untrusted import ImportWarnings, Unusable

ABOUT = ("Creator", "When", "Platform", "Precision")
MOST_RECORDS = 1000  # in a file

_TO_CONVERGE = re.compile(r"(\w+) to converge", re.IGNORECASE)
_LONGEST = 2**31 - 1  # steps are int32


class ReferencePoint(NamedTuple):
    """A record of a file.

    Attributes:
      place: release and name, to be found again.
      release, benchmark: as the source names them.
      batch_size: global.
      metaparameters: plain data, numbers as float.
      values: how far each run trained.
      unit, unit_source: of ``values``, and where that is written.
      about: creator, when, platform and precision, as far as told.
    """

    place: str
    release: str
    benchmark: str
    batch_size: int
    metaparameters: Mapping[str, Any]
    values: tuple[Fraction, ...]
    unit: Unit
    unit_source: str
    about: Mapping[str, str]

    @property
    def known(self) -> Benchmark:
        return mlperf_benchmarks.benchmark(self.benchmark, self.release)

    @property
    def samples(self) -> tuple[Fraction, ...] | None:
        """Examples each run trained on; None where the unit or the size of an epoch is not known."""
        known = self.known
        scale = {"samples": 1, "steps": self.batch_size, "epochs": known.examples or 0}.get(self.unit, 0)
        if self.unit == "tokens" and known.tokens:
            return tuple(value / known.tokens for value in self.values)
        return tuple(value * scale for value in self.values) if scale else None


def read(path: Folder, warnings: ImportWarnings) -> list[ReferencePoint]:
    """All records of all files called rcps_*.json at and under a folder, oldest release first."""
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
    """A record from its JSON; Unusable, with the reason, if something it needs is missing or of the wrong kind."""
    if not isinstance(fields, dict):
        raise Unusable("is no object")
    benchmark, batch_size = untrusted.text(fields.get("Benchmark"), 80), untrusted.whole(fields.get("BS"), 1)
    metaparameters = fields.get("Hyperparams", {})
    keys = [key for key in fields if _TO_CONVERGE.fullmatch(key)]
    if benchmark is None:
        raise Unusable("does not name its Benchmark")
    if batch_size is None:
        raise Unusable(f"BS must be a whole number, not {untrusted.brief(fields.get('BS'))}")
    if not isinstance(metaparameters, dict) or len(metaparameters) > untrusted.MOST_METAPARAMETERS:
        raise Unusable("Hyperparams is not an object, or too large")
    if len(keys) != 1:
        raise Unusable(f"must say once how far it trained to converge, and says so {len(keys)} times")
    values = _values(fields[keys[0]])
    word = _TO_CONVERGE.fullmatch(keys[0])[1].lower()  # type: ignore[index]
    unit, source = mlperf_benchmarks.unit(benchmark, release, word, float(max(values)))
    texts = {key.lower(): untrusted.text(fields.get(key)) for key in ABOUT}
    about = {key: value for key, value in texts.items() if value and value != "TBD"}
    plain = {key: _plain(value) for key, value in metaparameters.items()}
    point = ReferencePoint(
        f"{release}/{name[:100]}", release, benchmark, batch_size, plain, values, unit, source, about
    )
    if max(point.samples or [0]) / batch_size > _LONGEST:
        raise Unusable(f"trained for more than {_LONGEST:,} steps if its numbers are {unit}")
    return point


def _values(values: object) -> tuple[Fraction, ...]:
    if not isinstance(values, list) or not values:
        raise Unusable("has no list of how far it trained")
    for value in values:
        if not (untrusted.number(value) or 0) > 0:
            raise Unusable(f"trained until {untrusted.brief(value)}, which is not a positive number")
    return tuple(Fraction(repr(value)) for value in values)


def _plain(value: object, depth: int = 0) -> Any:
    """A metaparameter as plain data, numbers as float however they are written."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, list) and depth < 3 and len(value) <= untrusted.MOST_METAPARAMETERS:
        return [_plain(each, depth + 1) for each in value]
    numeric = untrusted.numeric(value)
    if numeric is None and not isinstance(value, str):
        raise Unusable(f"has a metaparameter of an unknown kind, {untrusted.brief(value)}")
    return untrusted.text(value, 400) if numeric is None else numeric


def _age(release: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,6}", release)[:3]), release
