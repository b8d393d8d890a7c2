"""Importer for MLPerf's reference convergence points: how long runs with several seeds took to reach a quality target.

The source is `rcp_checker/<release>/rcps_<benchmark>.json` in mlcommons/logging (Apache-2.0). A record has a benchmark,
a batch size, manually set metaparameters, and one number per seed, which is called "Epochs to converge" regardless of
its unit. Each record becomes a study with one trial per seed. Each trial has one measurement: `validation_shortfall` 0
at the step at which the target was met. Numbers with an unknown unit or epoch size are kept without steps.

Releases repeat records of earlier ones, sometimes under other names (gnn is rgat, and the later ssd is retinanet).
Records form one study if their benchmarks, batch sizes and numbers are equal and their metaparameters do not contradict
each other. Lists of numbers also count as equal if one continues the other, or repeats it in another unit.
"""

import collections
import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from tqdm import tqdm

from results import store as stores
from results.aliases import Fields
from results.bad_input import BadInput, number_of
from results.durable import Folder, Location, location
from results.importers import mlperf_records, recording, untrusted
from results.importers.mlperf_records import ABOUT, ReferencePoint, read
from results.importers.recording import Content
from results.importers.untrusted import ImportWarnings
from results.located import located
from results.plans.recorded import SOURCE_LISTS, Recorded, same_runs
from results.plans.search_space import SearchSpace
from results.plans.study import digest
from results.printing import Report

SOURCE = "mlperf-rcp"
METRIC = "validation_shortfall"
LICENCE = "Apache-2.0"
CITATION = "MLCommons, reference convergence points, github.com/mlcommons/logging, mlperf_logging/rcp_checker"

_KEPT = "the stored values are kept (import into a new store to get the current ones)"
_OPTIMIZERS = "adagrad|adamw|adam|lamb|lars|muon|sgd"
_OF_OPTIMIZER = re.compile(rf"(?:opt_)?({_OPTIMIZERS})_(?:opt_)?\w+")


@located
def run(path: Folder, store: Location, *, report: Report) -> int:
    """Imports all releases under ``path``.

    Args:
      path: a release, or a folder of releases.
      store: the destination store.
      report: called with lines for the user.

    Returns:
      0, or 1 if there is nothing to import.
    """
    store = location(store)
    if not path.exists():
        raise BadInput(f"no folder at {path}. Name a copy of mlperf_logging/rcp_checker, or a release in it.")
    warnings = ImportWarnings()
    records = read(path, warnings)
    groups = merge(records)
    if not groups:
        report(f"error: nothing to import in {path}: no record of rcps_<benchmark>.json could be read")
        warnings.report(report, most=1)
        return 1
    stores.check_destination(store)
    contents = [
        content._replace(study=stores.with_stored_name(store, content.study)) for content in map(content, groups)
    ]
    stored = recording.from_source(stores.committed(store) if store.is_dir() else (), SOURCE)
    present, new = _split(contents, [study for study, _ in stored])
    progress = tqdm(present + new, "mlperf-rcp", unit="study", disable=None)
    saved = [recording.save(store, content) for content in progress]
    warnings.report(report)
    recording.report_changes(saved, report, source="the import", kept=_KEPT)
    for line in notes(groups, [content.study for content in contents]):
        report(line)
    older = len(contents) - len(saved)
    if older:
        report(
            f"{number_of(older, 'study')} stored from fewer or other releases (import into a new store to combine all)"
        )
    trials = sum(content.study.trials for content in new)
    report(
        f"{number_of(len(records), 'record')}: {number_of(len(groups), 'study')}, {len(new)} new "
        f"({number_of(trials, 'trial')}), {len(groups) - len(new)} already present; "
        f"{number_of(len(records) - len(groups), 'repeated record')}; {len(warnings.lines)} not usable"
    )
    return 0


def merge(records: Iterable[ReferencePoint]) -> list[list[ReferencePoint]]:
    """Groups equal records into studies. See the module docstring."""
    groups: dict[tuple[str, str, int], list[list[ReferencePoint]]] = {}
    for record in records:
        candidates = groups.setdefault((record.known.dataset, record.known.model, record.batch_size), [])
        for group in candidates:
            if all(_same(record, member) for member in group):
                group.append(record)
                break
        else:
            candidates.append([record])
    return [group for candidates in groups.values() for group in candidates]


def content(group: Sequence[ReferencePoint]) -> Content:
    """Returns the study for equal records. Uses the record with the most information about its runs."""
    main = max(group, key=lambda r: (r.samples is not None, r.unit != "epochs", len(r.values)))
    benchmark, samples, count = main.known, main.samples or (), len(main.values)
    metaparameters = {name: value for record in group for name, value in record.metaparameters.items()}
    epochs = max((list(record.values) for record in group if record.unit == "epochs"), key=len, default=[])
    if benchmark.examples:  # prefers epochs stated in the source
        epochs += [value / benchmark.examples for value in samples[len(epochs) :]]
    lists = _lists(group)
    trials = []
    for i in range(count):
        trial = {
            "trial": i,
            "status": "COMPLETE",
            "steps": math.ceil(samples[i] / main.batch_size) if samples else None,
            "epochs_to_converge": float(epochs[i]) if epochs else None,
            "samples_to_converge": float(samples[i]) if samples else None,
        }
        for name, value in metaparameters.items():
            number = untrusted.numeric(value)
            if number is not None and recording.may_be_column(name):
                trial[name] = number
        if len(lists) > 1:
            trial[SOURCE_LISTS] = float(sum(i < len(values) for values in lists))
        trials.append(trial)
    study = Recorded(
        SOURCE,
        benchmark.dataset,
        benchmark.model,
        optimizer(metaparameters),
        main.batch_size,
        SearchSpace({}),
        _details(group, main, metaparameters),
        count,
    )
    columns, met = recording.as_columns(trials), count if samples else 0
    measurements = {"trial": range(met), "step": columns["steps"][:met], METRIC: [0.0] * met}
    return Content(study, columns, measurements, {"device_kind": study.details["platform"]})


def optimizer(metaparameters: Fields) -> str:
    """Returns the optimizer's name from the value or the prefix of a metaparameter, or else "unstated"."""
    for name in ("opt_name", "optimizer"):
        if isinstance(word := metaparameters.get(name), str) and re.fullmatch(r"[A-Za-z][\w.+-]{0,40}", word):
            return word.lower()
    prefixes = {match[1] for name in metaparameters if (match := _OF_OPTIMIZER.fullmatch(name))}
    return "+".join(sorted(prefixes)) or "unstated"


def _lists(group: Sequence[ReferencePoint]) -> list[tuple[Fraction, ...]]:
    """Returns the distinct source lists that a study combines."""
    return [values for _, values in dict.fromkeys((record.unit, record.values) for record in group)]


def notes(groups: Sequence[Sequence[ReferencePoint]], studies: Sequence[Recorded]) -> list[str]:
    """Returns notes for the user about studies without steps, runs that were kept twice, and combined lists.

    Args:
      groups: groups of equal records.
      studies: the study of each group.
    """
    reasons = collections.Counter[str]()
    for *_, record in groups:
        benchmark = record.known
        if record.samples is None and record.unit == "epochs":
            size = f"an epoch's size {benchmark.examples_source}"
            reasons[f"{benchmark.dataset}, {benchmark.model}: kept without steps: {size}"] += 1
        elif record.samples is None:
            reasons[f"{benchmark.model}: kept without steps: {record.unit_source}"] += 1
    lines = [f"{line} ({number_of(count, 'study')})" for line, count in reasons.items()]
    repeats = same_runs(studies)
    if repeats:
        lines.append(
            f"{len(repeats)} lists are kept twice, because their metaparameters contradict each other: "
            + "; ".join(" and ".join(names) for names in repeats)
        )
    joined = [study.name for group, study in zip(groups, studies, strict=True) if len(_lists(group)) > 1]
    if joined:
        lines.append(
            f"{number_of(len(joined), 'study')} joined from lists that continue each other or differ in unit: "
            + "; ".join(joined)
        )
    return lines


def _split(contents: Sequence[Content], stored: Sequence[Recorded]) -> tuple[list[Content], list[Content]]:
    """Splits studies into those already stored from the same records, and those without a stored record."""
    plans = {study.plan_json for study in stored}
    places = {place for study in stored for place in study.details.get("records", ())}
    present = [content for content in contents if content.study.plan_json in plans]
    unstored = [content for content in contents if content.study.plan_json not in plans]
    return present, [content for content in unstored if places.isdisjoint(content.study.details["records"])]


def _details(group: Sequence[ReferencePoint], record: ReferencePoint, metaparameters: Fields) -> Fields:
    benchmark = record.known
    about = {
        key: next((r.about[key] for r in reversed(group) if key in r.about), None) for key in map(str.lower, ABOUT)
    }
    # These strings are part of the plan, so a change would rename the studies.
    rule = "samples over the batch size, rounded up to whole steps"
    if record.unit == "epochs" and record.samples:
        rule += "; whether the source drops an epoch's last, smaller batch is not stated: up to a step per epoch"
    return {
        "benchmark": mlperf_records.canonical(record.benchmark, record.release),
        "names": sorted({r.benchmark for r in group}),
        "releases": list(dict.fromkeys(r.release for r in group)),
        "records": [r.place for r in group],
        **about,
        "metaparameters": dict(metaparameters),
        "target": "the benchmark's own quality target, which the source does not state",
        "unit": record.unit,
        "unit_source": record.unit_source,
        "training_examples": benchmark.examples,
        "training_examples_source": benchmark.examples_source,
        "steps": rule if record.samples else "not known",
        "evaluation_samples": _spacing(record),
        "runs": digest({"unit": record.unit, "values": [str(value) for value in record.values]})[:16],
        "licence": LICENCE,
        "citation": CITATION,
    }


def _spacing(record: ReferencePoint) -> float | None:
    """Returns the largest evaluation interval (in samples) that is consistent with all runs, or None if unknown."""
    samples = record.samples
    if samples is None or len(set(samples)) < 2:
        return None
    scale = math.lcm(*(count.denominator for count in samples))
    spacing = Fraction(math.gcd(*(int(count * scale) for count in samples)), scale)
    return float(spacing) if spacing >= record.batch_size else None


def _same(first: ReferencePoint, second: ReferencePoint) -> bool:
    """Returns whether two records with equal benchmark and batch size have equal runs and compatible metaparameters."""
    shared = first.metaparameters.keys() & second.metaparameters.keys()
    if any(first.metaparameters[name] != second.metaparameters[name] for name in shared):
        return False
    if len(shared) < min(len(first.metaparameters), len(second.metaparameters)):
        return False
    a, b = (first.samples, second.samples) if first.samples and second.samples else (first.values, second.values)
    if (first.samples is None) == (second.samples is None) and all(x == y for x, y in zip(a, b, strict=False)):
        return first.samples is not None or first.unit == second.unit
    if first.unit == second.unit or len(a) != len(b) or len(set(a)) < 3:
        return False
    return len({x / y for x, y in zip(first.values, second.values, strict=True)}) == 1
