"""Trials in AlgoPerf's logs: finds their folders by study, and reads their files. Any file may be missing."""

import contextlib
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from results.aliases import Fields, Strings
from results.durable import Folder
from results.importers import algoperf_workloads, csv_text, untrusted
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
_OF_HIGHER_IS_BETTER = ("/accuracy", "/ssim", "/mean_average_precision", "/bleu")
_TRIAL = re.compile(r"trial_(\d{1,6})")
_STUDY = re.compile(r"study_?(\d+)")
_WORKLOAD = re.compile(r"(.+)_(jax|pytorch)")
EXTERNAL = "external_tuning"
_RULESETS = (EXTERNAL, "self_tuning")


class LoggedTrial(NamedTuple):
    """A trial as described by its folder.

    Attributes:
      folder: the trial's folder.
      number: the number in the folder name.
      evaluations: evaluations, or None if the file is missing or invalid. See ``parse_evaluations``.
      metadata, flags, metaparameters: contents of the JSON files. Empty if a file is missing or invalid.
      faults: descriptions of missing or invalid files, each in a few words.
    """

    folder: Folder
    number: int
    evaluations: pa.Table | None
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
    def last(self) -> Fields:
        """Returns the step, metrics and seconds of the last evaluation. Empty if there are no evaluations."""
        return {} if self.evaluations is None else self.evaluations.slice(len(self.evaluations) - 1).to_pylist()[0]

    @property
    def seconds(self) -> float | None:
        """Returns the seconds that the submission itself used until the last evaluation."""
        return untrusted.number(self.last.get(_SECONDS))


def read(folder: Folder, number: int, names: Sequence[str], root: Folder) -> LoggedTrial:
    """Reads a trial.

    Args:
      folder: the trial's folder.
      number: the trial's number.
      names: names of the trial's files.
      root: root of the imported tree.
    """
    faults, contents = [], {}
    for name in (METADATA, FLAGS, METAPARAMETERS, EVALUATIONS):
        try:
            if name in names:
                contents[name] = _content(folder / name, root)
            elif name in (METADATA, EVALUATIONS):
                raise Unusable("is missing")
        except Unusable as error:
            faults.append(f"{name} {error}")
    metadata, flags, metaparameters = (contents.get(name, {}) for name in (METADATA, FLAGS, METAPARAMETERS))
    return LoggedTrial(folder, number, contents.get(EVALUATIONS), metadata, flags, metaparameters, tuple(faults))


def _content(path: Folder, root: Folder) -> pa.Table | Fields:
    if path.name == EVALUATIONS:
        return parse_evaluations(untrusted.read_bytes(path, root, CSV_BYTES))
    content = untrusted.read_json(path, root)
    if path.name == METAPARAMETERS and len(content) > untrusted.MOST_METAPARAMETERS:
        raise Unusable(f"has more than {untrusted.MOST_METAPARAMETERS} names")
    return content


def parse_evaluations(data: bytes) -> pa.Table:
    """Parses the evaluations in a CSV file. Raises Unusable if there are none.

    Returns:
      The column step, int64, increasing from 0, and source columns, float64, with null if the source has no value.
    """
    header = data.split(b"\n", 1)[0].decode("ascii", "replace").strip().split(",")
    metrics = [name for name in algoperf_workloads.COLUMNS if name in header]
    is_header = "global_step" in header and metrics and len(set(header)) == len(header)
    if not data.strip():
        raise Unusable("is empty")
    if not is_header:
        raise Unusable("has no header with global_step and a metric, each column once")
    names = ["global_step", *metrics, *({_SECONDS} & set(header))]
    table = csv_text.read(
        data, column_types=dict.fromkeys(names, pa.float64()), include_columns=names, null_values=[""]
    )
    if not len(table):
        raise Unusable("holds no evaluation")
    step = csv_text.as_steps(table["global_step"].to_numpy(), "global_step")
    if not np.all(np.diff(step) > 0):
        raise Unusable("has steps that do not increase")
    return table.set_column(0, "step", pa.array(step))


def targets(metadata: Fields) -> dict[str, float]:
    """Returns the workload's targets, by source column, if the metadata contain them."""
    metric = metadata.get("workload.target_metric_name")
    values = {}
    for split in ("validation", "test"):
        value = untrusted.number(metadata.get(f"workload.{split}_target_value"))
        if isinstance(metric, str) and metric in algoperf_workloads.METRICS and value is not None:
            values[f"{split}/{metric}"] = value
    return values


def errors(evaluations: pa.Table) -> pa.Table:
    """Returns the steps of evaluations, int32, and their metrics as errors under our names."""
    columns = {"step": evaluations["step"].cast(pa.int32())}
    for column, name in algoperf_workloads.COLUMNS.items():
        if column in evaluations.column_names and name not in columns:
            columns[name] = algoperf_workloads.errors(column, evaluations[column])
    return pa.table(columns)


def outcome(trial: LoggedTrial) -> tuple[str, str | None]:
    """Returns a trial's status and reason. Trials are INFEASIBLE only if the last evaluation has NaN or infinity."""
    if trial.evaluations is None or METADATA in "".join(trial.faults):
        return "INCOMPLETE", "lost"
    last = trial.last
    metrics = [last[name] for name in last if name in algoperf_workloads.COLUMNS]
    if any(value is not None and not np.isfinite(value) for value in metrics):
        return "INFEASIBLE", None
    budget = untrusted.int_or_none(trial.flags.get("max_global_steps"), 1)
    budget = budget or untrusted.int_or_none(trial.metadata.get("workload.step_hint"), 1)
    goals = [_reached(trial.evaluations, *target) for target in targets(trial.metadata).items()]
    if (budget and last["step"] >= budget) or (goals and all(goals)):
        return "COMPLETE", None
    return "INCOMPLETE", "time_limit" if _is_out_of_time(trial, trial.evaluations) else "unstated"


def _reached(evaluations: pa.Table, column: str, target: float) -> bool:
    if column not in evaluations.column_names:
        return False
    values = evaluations[column].to_numpy()
    return bool(np.any(values >= target if column.endswith(_OF_HIGHER_IS_BETTER) else values <= target))


def _is_out_of_time(trial: LoggedTrial, evaluations: pa.Table) -> bool:
    """Returns whether the time limit was reached before the next evaluation, at the pace of the last one."""
    limit = untrusted.number(trial.metadata.get("workload.max_allowed_runtime_sec"))
    if limit is None or _SECONDS not in evaluations.column_names:
        return False
    before, last = np.append(0.0, evaluations[_SECONDS].to_numpy())[-2:]
    return bool(last + (last - before) >= limit)


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
    parts = list(folder.parts[:-1])
    workload = _WORKLOAD.fullmatch(parts[-1] if parts else "")
    if workload:
        name, framework = workload[1], workload[2]
        parts.pop()
    else:
        name, framework = _from_flags(folder, files, root)
    number = next((part for part in reversed(parts) if _STUDY.fullmatch(part)), "study_0")
    ruleset = next((part for part in reversed(parts) if part in _RULESETS), "unstated")
    names = [part for part in parts if not _STUDY.fullmatch(part) and part not in (ruleset, "logs")]
    leaderboard = next((part for part, child in reversed(list(pairwise(parts))) if child == "logs"), "unstated")
    return Key(leaderboard, ruleset, names[-1] if names else "unstated", number, name, framework), not workload


def _from_flags(folder: Folder, files: Iterable[str], root: Folder) -> tuple[str, str]:
    flags = {}
    if FLAGS in files:
        with contextlib.suppress(Unusable):
            flags = untrusted.read_json(folder / FLAGS, root)
    name, framework = (untrusted.text(flags.get(key), 60) or "unstated" for key in ("workload", "framework"))
    return name, framework
