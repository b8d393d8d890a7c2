"""Python API, which defines studies by keyword arguments and returns their measurements as tables.

    import sweeps

    studies = sweeps.sweep(task="digits_fc", optimizer=["sgd", "nesterov"], batch_size=[16, 64], trials=8)
    tables = sweeps.measure(studies, "results/mine")

Keys and values are listed by `python -m sweeps --help`. Pass dotted keys as ``**{"task.budget.steps": 100}``. Scripts
and notebooks do not need a ``__main__`` guard, because workers are separate programs that do not run the script. To use
your own model, pass a function from a module: ``study(model=my_models.net)``, or ``model={"name": my_models.net,
"width": 64}`` with options. Workers import this function, so it cannot be defined in the script or the notebook. An
optimizer can be a dict of a name and of ranges or numbers that replace those of its file, such as
``optimizer={"name": "my_opt:LION", "space": {"b1": 0.9}}``. This
module imports others inside functions, so importing it is fast.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from results.aliases import Fields
from results.bad_input import BadInput, number_of
from results.durable import Location
from workloads import packages

if TYPE_CHECKING:
    from harness.run import Settings
    from results.store import Tables
    from sweeps.configured_study import ConfiguredStudy

Study: TypeAlias = "ConfiguredStudy[Any]"
_OPTIMIZER = "{'name': 'adam', 'space': {'b1': 0.9}}"


def study(**values: Any) -> Study:
    """Returns a validated study without running the study. Does not import JAX.

    Args:
      values: values by key, such as ``batch_size=64``: numbers, strings, booleans, None, lists and dicts.

    Raises:
      BadInput: the study is invalid. It is checked in the same way as on a command line.
    """
    if "experiment" in values:
        raise BadInput("experiment is the name of a sweep. Pass it to sweep().")
    axes = {key: [value] if isinstance(value, list | tuple) else value for key, value in values.items()}
    (configured,) = _read(axes, multirun=False)
    return configured


def sweep(**values: Any) -> list[Study]:
    """Returns the validated studies of a sweep without running the studies. Does not import JAX.

    Args:
      values: as in ``study``, except that a list or tuple is an axis, and each combination of values is a study. To
        pass a list as a value, wrap it in another list. ``experiment="quickstart"`` selects a preset, which other
        values override.

    Raises:
      BadInput: a study is invalid.
    """
    return _read(values, multirun=True)


def measure(
    studies: "Study | Iterable[Study]",
    store: Location,
    *,
    workers: int | None = None,
    settings: "Settings | None" = None,
    report: Callable[[str], None] = lambda line: None,
) -> "Tables":
    """Runs those trials that are missing from a store in worker processes, and returns the results of the studies.

    Args:
      studies: studies from ``study`` or ``sweep``.
      store: folder of the store. It is created if it does not exist.
      workers: number of processes. Defaults to one per physical core or accelerator.
      settings: settings of the run, such as the time limit.
      report: called with messages about the data.

    Returns:
      The pandas tables ``studies``, ``trials`` and ``measurements``, like those from ``results.store.read``.

    Raises:
      BadInput: the store is not writable, the store contains a different plan, or the data do not match a study.
      RuntimeError: some studies failed. The others are stored. If you repeat the call, it retries the failed studies.
    """
    import pandas as pd

    from harness.run import Settings
    from results import durable, store as stores
    from results.store import Tables
    from sweeps import planning
    from sweeps.configured_study import ConfiguredStudy
    from sweeps.schema import LauncherConfig

    configured = [studies] if isinstance(studies, ConfiguredStudy) else list(studies)
    if not configured:
        raise BadInput("measure() needs at least one study")
    launcher = dataclasses.asdict(LauncherConfig(workers=workers))
    request = planning.assemble(configured, durable.location(store), settings or Settings(), launcher)
    to_run = planning.to_run(request)
    if to_run.studies:
        planning.make_ready(request, to_run.studies, report)
        planning.record(request, to_run.studies)
        outcomes = planning.run(request, to_run.studies)
        failures = [outcome.failure for outcome in outcomes if outcome.failure]
        if failures:
            raise RuntimeError(f"{len(failures)} of {number_of(len(outcomes), 'study')} failed: {failures[0]}")
    tables = [stores.read(request.store, study.name) for study in request.studies]
    return Tables(*(pd.concat(parts, ignore_index=True) for parts in zip(*tables, strict=True)))


def _with_optimizer(values: Fields) -> Fields:
    """Returns values in which an optimizer given as a dict is replaced by its name and its ranges."""
    from sweeps.configured_study import RANGE_FIELDS

    optimizer = values.get("optimizer")
    if not isinstance(optimizer, dict):
        return values
    name, space = optimizer.get("name"), optimizer.get("space", {})
    if not isinstance(name, str) or not optimizer.keys() <= {"name", "space"}:
        raise BadInput(f"optimizer={optimizer!r} is not a dict of a name and a space, such as {_OPTIMIZER}")
    empty = dict.fromkeys(RANGE_FIELDS)  # a range replaces all fields of the one in the optimizer's file
    ranges = {f"++optimizer.space.{k}": empty | v if isinstance(v, dict) else v for k, v in space.items()}
    if packages.is_qualified(name):  # the configuration of sgd, which has only a range for the learning rate
        return {**values, "optimizer": "sgd", "optimizer.name": name, **ranges}
    return {**values, "optimizer": name, **ranges}


def _named(values: Fields) -> Fields:
    """Returns values in which models that are given as functions are replaced by their qualified names."""
    model = values.get("model")
    if callable(model):
        return {**values, "model": packages.name_of(model)}
    if isinstance(model, dict) and callable(model.get("name")):
        return {**values, "model": model | {"name": packages.name_of(model["name"])}}
    return values


def _read(values: Fields, *, multirun: bool) -> list[Study]:
    from sweeps import composition, overrides, quoting
    from sweeps.configured_study import OF_RUNS
    from sweeps.kind_configs import READERS

    texts = overrides.read_own(quoting.as_words(_with_optimizer(_named(values))))
    keys = [re.split(r"[.=]", text.lstrip("+"))[0] for text in texts]
    configs = composition.compose_all(overrides.CommandLine(texts, multirun))
    studies = [READERS[config["kind"]].read(config) for config in configs]
    for key in (key for key in keys if key in OF_RUNS):
        if any(key not in configured.study.identity_fields() for configured in studies):
            raise BadInput(f"{key} is a setting of runs, not of studies. Pass it to measure().")
    return studies
