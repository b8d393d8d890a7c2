"""Trials in AlgoPerf's logs: finds their folders by study, and reads their files. Any file may be missing."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from results import bounds
from results.aliases import Fields, Strings
from results.bad_input import first_line
from results.durable import Folder
from results.importers import algoperf_workloads, untrusted
from results.importers.untrusted import ImportWarnings, Unusable

EVALUATIONS, METADATA, FLAGS, METAPARAMETERS = (
    "eval_measurements.csv",
    "meta_data_0.json",
    "flags_0.json",
    "hparams.json",
)
FILES = frozenset((EVALUATIONS, METADATA, FLAGS, METAPARAMETERS, "measurements.csv"))
CSV_BYTES = 64 << 20
_SECONDS = "accumulated_submission_time"
_OF_HIGHER_IS_BETTER = ("accuracy", "ssim", "mean_average_precision", "bleu")
_TRIAL = re.compile(r"trial_(\d{1,6})")
_STUDY = re.compile(r"study_?(\d+)")
_WORKLOAD = re.compile(r"(.+)_(jax|pytorch)")
EXTERNAL = "external_tuning"
_RULESETS = (EXTERNAL, "self_tuning")


class Evaluations(NamedTuple):
    """Evaluations of a trial.

    Attributes:
      step: steps, int64[evaluations], increasing from 0.
      source: source columns by name, float64[evaluations], with null if the source has no value.
    """

    step: np.ndarray
    source: Mapping[str, pa.Array]

    @property
    def errors(self) -> dict[str, pa.Array]:
        """Returns the metrics as errors, under our names."""
        by_name = {}
        for column, name in algoperf_workloads.COLUMNS.items():
            if column in self.source and name not in by_name:
                by_name[name] = algoperf_workloads.errors(column, self.source[column])
        return by_name


class LoggedTrial(NamedTuple):
    """A trial as described by its folder.

    Attributes:
      folder: the trial's folder.
      number: the number in the folder name.
      evaluations: evaluations, or None if the file is missing or invalid.
      metadata, flags, metaparameters: contents of the JSON files. Empty if a file is missing or invalid.
      faults: descriptions of missing or invalid files, each in a few words.
    """

    folder: Folder
    number: int
    evaluations: Evaluations | None
    metadata: Fields
    flags: Fields
    metaparameters: Fields
    faults: Strings

    @property
    def seed(self) -> int | None:
        """Returns the seed in the source. Its 32 bits may be written as a negative number."""
        value = untrusted.int_or_none(self.metadata.get("rng_seed"), -(2**31), 2**32 - 1)
        return None if value is None else value % 2**32

    @property
    def seconds(self) -> float | None:
        """Returns the seconds that the submission itself used until the last evaluation."""
        if self.evaluations is None or _SECONDS not in self.evaluations.source:
            return None
        return untrusted.number(self.evaluations.source[_SECONDS][-1].as_py())


def read(folder: Folder, number: int, names: Sequence[str], root: Folder) -> LoggedTrial:
    """Reads a trial.

    Args:
      folder: the trial's folder.
      number: the trial's number.
      names: names of the trial's files.
      root: root of the imported tree.
    """
    faults = []
    content: dict[str, Fields] = {}
    for name in (METADATA, FLAGS, METAPARAMETERS):
        content[name] = {}
        try:
            if name in names:
                content[name] = untrusted.read_json(folder / name, root)
            elif name == METADATA:
                raise Unusable("is missing")
        except Unusable as error:
            faults.append(f"{name} {error}")
    if len(content[METAPARAMETERS]) > untrusted.MOST_METAPARAMETERS:
        faults.append(f"{METAPARAMETERS} has more than {untrusted.MOST_METAPARAMETERS} names")
        content[METAPARAMETERS] = {}
    evaluations = None
    try:
        if EVALUATIONS not in names:
            raise Unusable("is missing")
        evaluations = parse_evaluations(untrusted.read_bytes(folder / EVALUATIONS, root, CSV_BYTES))
    except Unusable as error:
        faults.append(f"{EVALUATIONS} {error}")
    metadata, flags, metaparameters = content.values()
    return LoggedTrial(folder, number, evaluations, metadata, flags, metaparameters, tuple(faults))


def parse_evaluations(data: bytes) -> Evaluations:
    """Parses the evaluations in a CSV file. Raises Unusable if there are none."""
    header = data.split(b"\n", 1)[0].decode("ascii", "replace").strip().split(",")
    metrics = [name for name in algoperf_workloads.COLUMNS if name in header]
    is_header = "global_step" in header and metrics and len(set(header)) == len(header)
    if not data.strip():
        raise Unusable("is empty")
    if not is_header:
        raise Unusable("has no header with global_step and a metric, each column once")
    if b"\n" not in data.strip():
        raise Unusable("holds no evaluation")
    names = ["global_step", *metrics, *({_SECONDS} & set(header))]
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.float64()), include_columns=names, null_values=[""]
    )
    try:
        table = pyarrow.csv.read_csv(bounds.csv_source(data), convert_options=convert).combine_chunks()
    except pa.ArrowException as error:
        raise Unusable(f"cannot be read ({untrusted.brief(first_line(error)[:36])})") from None
    step = table["global_step"].to_numpy()
    if not len(table):
        raise Unusable("holds no evaluation")
    if not np.all((step >= 0) & (step < 2**31) & (step == np.floor(step))):
        raise Unusable("has a global_step that is not an integer from 0 to 2147483647")
    if not np.all(np.diff(step) > 0):
        raise Unusable("has steps that do not increase")
    columns = {name: table[name].combine_chunks() for name in names[1:]}
    return Evaluations(step.astype(np.int64), columns)


def targets(metadata: Fields) -> dict[str, float]:
    """Returns the workload's targets, by source column, if the metadata contain them."""
    metric = metadata.get("workload.target_metric_name")
    values = {}
    for split in ("validation", "test"):
        value = untrusted.number(metadata.get(f"workload.{split}_target_value"))
        if isinstance(metric, str) and metric in algoperf_workloads.METRICS and value is not None:
            values[f"{split}/{metric}"] = value
    return values


def outcome(trial: LoggedTrial) -> tuple[str, str | None]:
    """Returns a trial's status and reason. Trials are INFEASIBLE only if the last evaluation has NaN or infinity."""
    evaluations = trial.evaluations
    if evaluations is None or METADATA in "".join(trial.faults):
        return "INCOMPLETE", "lost"
    last = [evaluations.source[name][-1].as_py() for name in algoperf_workloads.COLUMNS if name in evaluations.source]
    if any(value is not None and not np.isfinite(value) for value in last):
        return "INFEASIBLE", None
    limits = targets(trial.metadata)
    budget = untrusted.int_or_none(trial.flags.get("max_global_steps"), 1)
    budget = budget or untrusted.int_or_none(trial.metadata.get("workload.step_hint"), 1)
    if budget and evaluations.step[-1] >= budget:
        return "COMPLETE", None
    if limits and all(_reached(evaluations, *target) for target in limits.items()):
        return "COMPLETE", None
    return "INCOMPLETE", "time_limit" if _out_of_time(trial, evaluations) else "unstated"


def _reached(evaluations: Evaluations, column: str, target: float) -> bool:
    if column not in evaluations.source:
        return False
    values = evaluations.source[column].to_numpy(zero_copy_only=False)
    higher = column.split("/")[1] in _OF_HIGHER_IS_BETTER
    return bool(np.any(values >= target if higher else values <= target))


def _out_of_time(trial: LoggedTrial, evaluations: Evaluations) -> bool:
    """Returns whether the time limit was reached before the next evaluation, at the pace of the last one."""
    limit = untrusted.number(trial.metadata.get("workload.max_allowed_runtime_sec"))
    if limit is None or _SECONDS not in evaluations.source:
        return False
    seconds = evaluations.source[_SECONDS].to_numpy(zero_copy_only=False)
    pace = seconds[-1] - (seconds[-2] if len(seconds) > 1 else 0.0)
    return bool(seconds[-1] + pace >= limit)


class Key(NamedTuple):
    """Identifies a study in the logs."""

    leaderboard: str
    ruleset: str
    submission: str
    study: str
    workload: str
    framework: str


class TrialFolder(NamedTuple):
    """A trial's folder and its file names. ``misplaced`` is true if the folder lies outside its workload's folder."""

    folder: Folder
    names: Strings
    number: int
    misplaced: bool


def places(path: Folder, warnings: ImportWarnings) -> dict[Key, list[TrialFolder]]:
    """Returns the trial folders under ``path``, by study. Folders outside a workload folder come last."""
    by_study: dict[Key, list[TrialFolder]] = {}
    for folder, names in untrusted.files(path, warnings):
        files = tuple(name for name in names if name in FILES)
        trial = _TRIAL.fullmatch(folder.name)
        if files and trial is None:
            warnings.add(untrusted.display_path(folder, path), f"holds {files[0]} but is not called trial_<n>")
        elif trial is not None:
            key, misplaced = _key(folder, files, path)
            by_study.setdefault(key, []).append(TrialFolder(folder, files, int(trial[1]), misplaced))
    return {key: sorted(members, key=lambda p: (p.misplaced, str(p.folder))) for key, members in by_study.items()}


def _key(folder: Folder, files: Iterable[str], root: Folder) -> tuple[Key, bool]:
    """Returns the key of a trial's study, and whether its workload is known only from the flags."""
    above = list(folder.parts[:-1])
    workload = _WORKLOAD.fullmatch(above[-1] if above else "")
    if workload:
        name, framework = workload[1], workload[2]
        above.pop()
    else:
        name, framework = _from_flags(folder, files, root)
    number = next((part for part in reversed(above) if _STUDY.fullmatch(part)), "study_0")
    ruleset = next((part for part in reversed(above) if part in _RULESETS), "unstated")
    others = [part for part in above if not _STUDY.fullmatch(part) and part not in (ruleset, "logs")]
    leaderboard = next((part for part, below in reversed(list(pairwise(above))) if below == "logs"), "unstated")
    return Key(leaderboard, ruleset, others[-1] if others else "unstated", number, name, framework), not workload


def _from_flags(folder: Folder, files: Iterable[str], root: Folder) -> tuple[str, str]:
    try:
        flags = untrusted.read_json(folder / FLAGS, root) if FLAGS in files else {}
    except Unusable:
        flags = {}
    name, framework = (untrusted.text(flags.get(key), 60) for key in ("workload", "framework"))
    return name or "unstated", framework or "unstated"
