"""The request: a command line read into plans, by kind."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.settings import STRATEGIES, Settings
from results.bad_input import BadInput, check_choice
from results.plans.plan import Plan
from results.plans.trial_request import largest_request
from sweeps import composition, overrides
from sweeps.readers import READERS


@dataclasses.dataclass(frozen=True)
class Request:
    """The request of a command line, checked as far as possible without compiling anything.

    Attributes:
      studies: with distinct names, in the order asked for.
      sources: what the data of a study are built from, by its name, where its plan does not say that: plain data for
        its runner, such as ``workloads.registry.ratings`` takes.
      settings: how each is run.
      store: the folder results go to.
      workers: of the local launcher; None leaves it to the machine.
    """

    studies: tuple[Plan, ...]
    sources: Mapping[str, Mapping[str, Any]]
    settings: Settings
    store: Path
    workers: int | None


def request(line: overrides.CommandLine) -> Request:
    """Reads a command line into plans.

    Raises:
      BadInput: for the first thing wrong with any study of the sweep.
    """
    configs = composition.compose_all(line)
    from results import durable, store  # once the line has been read

    first = configs[0]
    for key in ("store", "launcher", "lanes", "lane_strategy", "part_seconds", "time_limit_seconds"):
        if any(config[key] != first[key] for config in configs):
            raise BadInput(f"{key} applies to the whole sweep and cannot be swept over")
    studies: dict[str, Plan] = {}  # by their plans
    sources: dict[str, Mapping[str, Any]] = {}
    for config in configs:
        study, source = READERS[config["kind"]].read(config)
        if source is not None:
            sources[study.plan_json] = source
        earlier = studies.get(study.plan_json)
        studies[study.plan_json] = (
            study if earlier is None else earlier.with_request(largest_request([earlier.request, study.request]))
        )
    named = first["store"] if line.store is None else line.store
    if not named.strip():
        raise BadInput("store= names no folder; give one, or store=. for this one")
    folder = durable.local(named)
    store.check_destination(folder)
    stored = {plan: store.with_stored_name(folder, study) for plan, study in studies.items()}
    workers = _positive("launcher.workers", first["launcher"])
    of_name = {stored[plan].name: source for plan, source in sources.items()}
    return Request(tuple(stored.values()), of_name, _settings(first), folder, workers)


def _settings(config: Mapping[str, Any]) -> Settings:
    check_choice("lane_strategy", config["lane_strategy"], ("auto", *STRATEGIES))
    limit, interval = config["time_limit_seconds"], config["part_seconds"]
    if limit is not None and not limit > 0:
        raise BadInput(f"time_limit_seconds must be above 0, not {limit:g}")
    if interval < 0:
        raise BadInput(f"part_seconds must be at least 0, not {interval:g}")
    return Settings(_positive("lanes", config), config["lane_strategy"], limit, interval)


def _positive(key: str, config: Mapping[str, Any]) -> int | None:
    value = config[key.rsplit(".", 1)[-1]]
    if value is not None and value < 1:
        raise BadInput(f"{key} must be at least 1, not {value}")
    return value
