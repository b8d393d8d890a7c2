"""The protocol of a study: a schedule, ranges, a budget and evaluations, which replace those of its task.

``protocol=archive`` stands for a study's numbers in the imported archive of Shallue et al. (2018). These replace it
while a command line is composed, so plans and the words of single studies do not depend on the archive.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from results.bad_input import BadInput
from results.plans.search_space import Range, SearchSpace
from results.plans.study import check_int
from sweeps.configured_study import Config, ranges
from sweeps.quoting import Words, as_words, key_of

ARCHIVE = "archive"
_PRESETS = "shallue2018/"  # the rest of such a preset's name is the folder of its workload in the archive
_REPLACED = ("task.space", "optimizer.space", "task.budget", "task.schedule", "task.evaluation")  # starts of keys
_OWN = ("protocol", "archive.store", "archive.workload")
FIELDS = ("study", "train_steps", "space", "evaluations", "notes")
_WITHOUT_NOTES = {*FIELDS} - {"notes"}  # as written by earlier versions
_DECAY_STEPS, _DECAY = "learning_rate_decay_steps", "decay_fraction"
_END = "end_learning_rate_factor"


def lines(configs: Iterable[Config]) -> list[str]:
    """Returns lines for the user about budgets, evaluations and rules of the archive that are not used."""
    chosen = [config["protocol"] for config in configs if config.get("protocol") is not None]
    timed = [protocol for protocol in chosen if "time budget" in protocol.get("notes", ())]
    studies = {
        "a time budget in the archive, so the last step of its COMPLETE trials is the budget": [
            protocol["study"] for protocol in timed if protocol["train_steps"]
        ],
        "a time budget in the archive, so the budget in steps of the task is used": [
            protocol["study"] for protocol in chosen if not protocol["train_steps"]
        ],
        "no complete trial in the archive, so the evaluations of the task are used": [
            protocol["study"] for protocol in chosen if not protocol["evaluations"]
        ],
        "early_stopping in the archive, which is ignored: trials run to the end of their budget": [
            protocol["study"] for protocol in chosen if "early stopping" in protocol.get("notes", ())
        ],
    }
    return [f"{_count(names)} {text}" for text, names in studies.items() if names]


def read(value: object) -> Config | None:
    """Returns the numbers in the ``protocol`` key, or None if the key is not set.

    Raises:
      BadInput: the value is not a protocol.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping) or not _WITHOUT_NOTES <= {*value} <= {*FIELDS}:
        raise BadInput(f"protocol={value!r} is not a protocol. Use {ARCHIVE}, or a dict of {', '.join(FIELDS)}.")
    check_int("protocol.train_steps", value["train_steps"], 0)
    if not isinstance(value["space"], Mapping) or not isinstance(value["evaluations"], list):
        raise BadInput("protocol.space must be a dict of ranges, and protocol.evaluations a list of pairs")
    for pair in value["evaluations"]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadInput(f"protocol.evaluations must be pairs of a spacing and a last step, not {pair!r}")
        for number in pair:
            check_int("protocol.evaluations", number, 1)
    return value


def schedule_and_space(protocol: Config, budget_steps: int) -> tuple[str, dict[str, Any]]:
    """Returns the schedule and the search space of a protocol. Decay lengths become fractions of the budget.

    Args:
      protocol: as returned by ``read``.
      budget_steps: budget of a trial.
    """
    space = dict(ranges(protocol["space"]))
    decays = space.keys() & {_DECAY_STEPS, _END}
    if len(decays) == 1:
        raise BadInput(f"{protocol['study']} has a range of {min(decays)} in the archive, but not of {_other(decays)}")
    if decays:
        steps = SearchSpace.from_plan({_DECAY_STEPS: space.pop(_DECAY_STEPS)})[_DECAY_STEPS]
        space[_DECAY] = fraction_of(steps, budget_steps).plan()
    return "linear" if decays else "constant", space


def spacings(protocol: Config, budget_steps: int) -> tuple[tuple[int, int], ...]:
    """Returns the spacings between a protocol's evaluations. The last evaluation is at the end of the budget.

    After the last recorded step, evaluations continue at the widest recorded spacing.
    """
    pairs: list[tuple[int, int]] = []
    start = 0
    for spacing, recorded in protocol["evaluations"]:
        until = min(recorded, start + (budget_steps - start) // spacing * spacing)
        if until > start:
            pairs.append((spacing, until))
            start = until
        if until < recorded:
            break
    if pairs:
        widest = max(spacing for spacing, _ in pairs)
        if (length := (budget_steps - start) // widest * widest) > 0:
            pairs.append((widest, start + length))
            start += length
    if start < budget_steps and protocol["evaluations"]:
        pairs.append((budget_steps - start, budget_steps))
    return tuple(_merged(pairs))


def fraction_of(steps: Range, budget_steps: int) -> Range:
    """Converts the range of a number of steps to a range of fractions of the budget, with the same probabilities."""
    if steps.scale == "DISCRETE":
        return Range("DISCRETE", values=tuple(value / budget_steps for value in steps.values))
    if steps.scale == "REVERSE_LOG":
        raise BadInput(f"{_DECAY_STEPS} has scale REVERSE_LOG in the archive, which a number of steps cannot have")
    assert steps.low is not None and steps.high is not None
    is_whole = steps.scale == "INTEGER" or steps.denominator == 1
    return dataclasses.replace(
        steps,
        scale="LINEAR" if steps.scale == "INTEGER" else steps.scale,
        low=steps.low / budget_steps,
        high=steps.high / budget_steps,
        denominator=budget_steps if is_whole else None,
    )


def _merged(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merges consecutive pairs that have equal spacing."""
    return [(spacing, list(members)[-1][1]) for spacing, members in itertools.groupby(pairs, key=lambda pair: pair[0])]


def _other(decays: set[str]) -> str:
    return _END if _DECAY_STEPS in decays else _DECAY_STEPS


def _count(studies: Sequence[str]) -> str:
    return f"{studies[0]} has" if len(studies) == 1 else f"{len(studies)} studies, such as {studies[0]}, have"


def workload_words(preset: str) -> Words:
    """Returns the words that name the workload of a preset in the archive, or no words for other presets."""
    return (f"archive.workload={preset.removeprefix(_PRESETS)}",) if preset.startswith(_PRESETS) else ()


def check_words(words: Sequence[str]) -> None:
    """Raises BadInput if words set values that the archive's protocol would replace."""
    if f"protocol={ARCHIVE}" not in words:
        return
    for word in words:
        if key_of(word).startswith(_REPLACED):
            raise BadInput(f"{word} has no effect with protocol={ARCHIVE}, which takes this from the archive")


def with_numbers(config: Config, words: Words) -> tuple[dict[str, Any], Words]:
    """Returns the configuration and the words of a study, with ``protocol=archive`` replaced by the archive's numbers.

    Raises:
      BadInput: the archive was not imported, or it does not contain the study.
    """
    if config.get("protocol") != ARCHIVE:
        return dict(config), words
    from results.importers import shallue2018_protocol  # imports pyarrow, which other command lines do not need here

    store, workload = config["archive"]["store"], config["archive"]["workload"]
    if workload is None:
        raise BadInput(
            f"protocol={ARCHIVE} is for presets {_PRESETS}…. Without one, set archive.workload to a folder in the "
            "archive, such as mnist/fc_1024/sgd."
        )
    path = f"{workload}/{config['batch_size']}"
    recorded = shallue2018_protocol.read(store, path)
    numbers = {
        "study": path,
        "train_steps": recorded.train_steps,
        "space": recorded.space.plan(),
        "evaluations": [list(pair) for pair in recorded.spacings],
        "notes": list(recorded.notes),
    }
    kept = [word for word in words if key_of(word) not in _OWN]
    return {**config, "protocol": numbers}, (*kept, *as_words({"protocol": numbers}))
