"""Folders of AlgoPerf's logs: which of them is a trial, and of which study."""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from results.durable import Folder
from results.importers import algoperf_trials, untrusted
from results.importers.algoperf_trials import FLAGS
from results.importers.untrusted import ImportWarnings, Unusable

_TRIAL = re.compile(r"trial_(\d{1,6})")
_STUDY = re.compile(r"study_?(\d+)")
_WORKLOAD = re.compile(r"(.+)_(jax|pytorch)")
EXTERNAL = "external_tuning"
_RULESETS = (EXTERNAL, "self_tuning")


class Key(NamedTuple):
    """The key of a study in the logs."""

    leaderboard: str
    ruleset: str
    submission: str
    study: str
    workload: str
    framework: str


class TrialFolder(NamedTuple):
    """A trial's folder with the names of its files; ``misplaced`` if it lies outside a folder of its workload."""

    folder: Folder
    names: tuple[str, ...]
    number: int
    misplaced: bool


def places(path: Folder, warnings: ImportWarnings) -> dict[Key, list[TrialFolder]]:
    """The folders of trials under ``path`` by study, those in a folder of their workload first."""
    by_study: dict[Key, list[TrialFolder]] = {}
    for folder, names in untrusted.files(path, warnings):
        files = tuple(name for name in names if name in algoperf_trials.FILES)
        trial = _TRIAL.fullmatch(folder.name)
        if files and trial is None:
            warnings.add(untrusted.display_path(folder, path), f"holds {files[0]} but is not called trial_<n>")
        elif trial is not None:
            key, misplaced = _key(folder, files, path)
            by_study.setdefault(key, []).append(TrialFolder(folder, files, int(trial[1]), misplaced))
    return {key: sorted(members, key=lambda p: (p.misplaced, str(p.folder))) for key, members in by_study.items()}


def _key(folder: Folder, files: Iterable[str], root: Folder) -> tuple[Key, bool]:
    """The study a trial belongs to, and whether its workload is known only from its flags."""
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
