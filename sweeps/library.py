"""The library: studies by plain arguments, and their measurements as tables, without a command line.

    import sweeps

    studies = sweeps.sweep(task="digits_fc", optimizer=["sgd", "nesterov"], batch_size=[16, 64], trials=8)
    tables = sweeps.measure(studies, "results/mine")

Keys and values are those of `python -m sweeps --help`; dotted ones are given as ``**{"task.budget.steps": 100}``.
Neither scripts nor notebooks need a ``__main__`` guard: workers are programs of their own, and run nothing of the
script. So they know the models, optimizers and kinds of study of this package, and none that a script registers.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from results.bad_input import BadInput, number_of

if TYPE_CHECKING:
    from harness.run import Settings
    from results.storage.commits import Tables
    from sweeps.configured_study import ConfiguredStudy

Study: TypeAlias = "ConfiguredStudy[Any]"


def study(**values: Any) -> Study:
    """One study, checked but not run; imports no JAX.

    Args:
      values: by key: numbers, texts, truth values, None, lists and dicts, such as ``batch_size=64``.

    Raises:
      BadInput: for anything wrong with it, as a command line would be refused.
    """
    if "experiment" in values:
        raise BadInput("experiment names a sweep; give it to sweep()")
    axes = {key: [value] if isinstance(value, list | tuple) else value for key, value in values.items()}
    (one,) = _read(axes, multirun=False)
    return one


def sweep(**values: Any) -> list[Study]:
    """The studies of a sweep, checked but not run; imports no JAX.

    Args:
      values: as of ``study``, but a list or tuple is an axis: a study is made for every combination. A value that is a
        list is a list in a list. ``experiment="quickstart"`` takes the sweep of a preset, and other values change it.

    Raises:
      BadInput: for anything wrong with any of them.
    """
    return _read(values, multirun=True)


def measure(
    studies: "Study | Iterable[Study]",
    store: str | Path,
    *,
    workers: int | None = None,
    settings: "Settings | None" = None,
    report: Callable[[str], None] = lambda line: None,
) -> "Tables":
    """Runs what a store lacks of some studies, in worker processes, and returns all that it then holds of them.

    Args:
      studies: of ``study`` or ``sweep``.
      store: its folder, made if it is not there.
      workers: how many processes; None: one per physical core or accelerator.
      settings: of speed, and the limit of time.
      report: takes lines about the data.

    Returns:
      The tables ``studies``, ``trials`` and ``measurements``, in pandas, as of ``results.store.read``.

    Raises:
      BadInput: the store cannot be written or holds another plan, or data are not what a study needs.
      RuntimeError: studies failed; the others are stored, and the same call tries these again.
    """
    import pandas as pd

    from harness.run import Settings
    from results import durable
    from results import store as stores
    from results.storage.commits import Tables
    from sweeps import planning
    from sweeps.configured_study import ConfiguredStudy
    from sweeps.schema import LauncherConfig

    configured = [studies] if isinstance(studies, ConfiguredStudy) else list(studies)
    if not configured:
        raise BadInput("there is no study to measure")
    launcher = dataclasses.asdict(LauncherConfig(workers=workers))
    request = planning.assemble(configured, durable.local(store), settings or Settings(), launcher)
    to_run = planning.to_run(request)
    if to_run.studies:
        planning.make_ready(request, to_run.studies, report)
        planning.record(request, to_run.studies)
        outcomes = planning.run(request, to_run.studies)
        failures = [outcome.failure for outcome in outcomes if outcome.failure]
        if failures:
            raise RuntimeError(f"{len(failures)} of {number_of(len(outcomes), 'study')} failed: {failures[0]}")
    tables = [stores.read(request.store, one.name) for one in request.studies]
    return Tables(*(pd.concat(parts, ignore_index=True) for parts in zip(*tables, strict=True)))


def _read(values: Mapping[str, Any], *, multirun: bool) -> list[Study]:
    from sweeps import composition, overrides, planning
    from sweeps.kind_configs import READERS
    from sweeps.overrides import CommandLine

    texts = overrides.as_words(values)
    for text in texts:
        if (key := re.split(r"[.=]", text.lstrip("+"))[0]) in planning.OF_RUNS:
            raise BadInput(f"{key} says how studies are run, not what they are; give it to measure()")
    configs = composition.compose_all(CommandLine(texts, multirun))
    return [READERS[config["kind"]].read(config) for config in configs]
