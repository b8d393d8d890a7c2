"""Replaces ``protocol=archive`` with a study's numbers in the imported archive of Shallue et al. (2018).

The replacement happens while a command line is composed, so plans and the words of single studies do not depend on the
archive.
"""

from collections.abc import Sequence
from typing import Any

from results.bad_input import BadInput
from sweeps.configured_study import Config
from sweeps.quoting import Words, as_words, key_of
from sweeps.tuning_protocol import ARCHIVE

_PRESETS = "shallue2018/"  # the rest of such a preset's name is the folder of its workload in the archive
_REPLACED = ("task.space", "optimizer.space", "task.budget", "task.schedule", "task.evaluation")  # starts of keys
_OWN = ("protocol", "archive.store", "archive.workload")


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
