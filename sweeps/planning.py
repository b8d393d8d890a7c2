"""The request: a command line or studies read into plans, by kind, and what a store lacks of them."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import compile_cache, processors
from harness.hosts import Hosts
from harness.runners import RUNNERS
from harness.settings import STRATEGIES, Settings
from results import durable
from results.bad_input import BadInput, check_choice
from results.plans.kinds import of_kind
from results.plans.plan import Plan
from results.plans.trial_request import largest_request
from sweeps import composition, overrides
from sweeps.configured_study import ConfiguredStudy
from sweeps.readers import READERS

# Keys of what is no property of a study.
OF_RUNS = ("store", "launcher", "mixed_backends", *(field.name for field in dataclasses.fields(Settings)))


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
      mixed_backends: whether a study may grow on another backend than it was measured on.
      hosts: that run every study together; None: this machine alone.
    """

    studies: tuple[Plan, ...]
    sources: Mapping[str, Mapping[str, Any]]
    settings: Settings
    store: Path
    workers: int | None
    mixed_backends: bool = False
    hosts: Hosts | None = None


def request(line: overrides.CommandLine) -> Request:
    """Reads a command line into plans.

    Raises:
      BadInput: for the first thing wrong with any study of the sweep.
    """
    configs = composition.compose_all(line)
    first = configs[0]
    for key in OF_RUNS:
        if any(config[key] != first[key] for config in configs):
            raise BadInput(f"{key} applies to the whole sweep and cannot be swept over")
    configured = [READERS[config["kind"]].read(config) for config in configs]
    named = first["store"] if line.store is None else line.store
    if not named.strip():
        raise BadInput("store= names no folder; give one, or store=. for this one")
    settings = Settings(*(first[field.name] for field in dataclasses.fields(Settings)))
    launcher = first["launcher"]
    asked = assemble(configured, durable.local(named), settings, launcher["workers"])
    return dataclasses.replace(
        asked, mixed_backends=first["mixed_backends"], hosts=_hosts(launcher, asked.studies, settings)
    )


def _hosts(launcher: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> Hosts | None:
    check_choice("launcher.name", launcher["name"], ("local", "hosts"))
    if launcher["name"] == "local":
        return None
    if launcher["coordinator"] is None:
        raise BadInput("launcher=hosts needs launcher.coordinator=HOST:PORT of host 0, or auto in a cluster")
    keys = ("coordinator", "hosts", "host", "heartbeat_seconds")
    hosts = Hosts(*(launcher[key] for key in keys))
    for study in studies:
        if not RUNNERS[study.kind].over_hosts:
            raise BadInput(f"{study.name} runs on one host alone; use launcher=local")
        if RUNNERS[study.kind].saves_in_parts and settings.checkpoint_dir is None:
            raise BadInput(
                f"{study.name}: each host saves what its own cores hold; give checkpoint_dir=…, a folder or URL that "
                "all of them reach"
            )
    hosts.check()
    return hosts


def assemble(
    configured: Sequence[ConfiguredStudy[Any]], folder: Path, settings: Settings, workers: int | None
) -> Request:
    """The request for some studies, of which those of one plan become one.

    Args:
      configured: the studies.
      folder: of the store.
      settings: how each is run.
      workers: of the local launcher.

    Raises:
      BadInput: settings that cannot be, or a store that cannot be written to or holds another plan.
    """
    from results import store  # once the line has been read

    studies: dict[str, Plan] = {}  # by their plans
    sources: dict[str, Mapping[str, Any]] = {}
    for study, source in configured:
        if source is not None:
            sources[study.plan_json] = source
        earlier = studies.get(study.plan_json)
        studies[study.plan_json] = (
            study if earlier is None else earlier.with_request(largest_request([earlier.request, study.request]))
        )
    _check(settings, workers)
    store.check_destination(folder)
    stored = {plan: store.with_stored_name(folder, study) for plan, study in studies.items()}
    of_name = {stored[plan].name: source for plan, source in sources.items()}
    return Request(tuple(stored.values()), of_name, settings, folder, workers)


class ToRun(NamedTuple):
    """The studies of a request that a store lacks something of.

    Attributes:
      studies: to be run, and be it only to be committed.
      missing: trials to be run, by the names of all studies of the request.
      stored: how many of the trials are stored already.
    """

    studies: tuple[Plan, ...]
    missing: Mapping[str, int]
    stored: int


def to_run(request: Request) -> ToRun:
    """What the store of a request lacks of its studies.

    Raises:
      BadInput: some of a study were measured on another backend than the rest would be.
    """
    from results import store

    progress = {study.name: store.progress(request.store, study) for study in request.studies}
    missing = {name: each.to_run for name, each in progress.items()}
    # A run that was killed before its commit record has nothing to train, but still has to commit.
    studies = tuple(s for s in request.studies if missing[s.name] or not progress[s.name].visible)
    for study in studies if not request.mixed_backends else ():
        if 0 < missing[study.name] < study.request.planned:
            _check_backend(request.store, study)
    planned = sum(study.request.planned for study in request.studies)
    return ToRun(studies, missing, planned - sum(missing.values()))


def make_ready(request: Request, studies: Sequence[Plan], say: Callable[[str], None]) -> None:
    """Prepares the data of studies of a request, and records in the store that they are wanted.

    Raises:
      BadInput: for data that cannot be used.
    """
    from results import store

    for kind, reader in READERS.items():
        configured = [ConfiguredStudy(s, request.sources.get(s.name)) for s in of_kind(studies, kind)]
        for text in reader.data_lines(configured):
            say(text)
        reader.make_ready(configured, say)
    if studies and (why := compile_cache.obstacle()):
        say(f"compiled programs are not kept for the next run: {why}")
    for study in studies:
        store.ask(request.store, study)


def _check_backend(folder: Path, study: Plan) -> None:
    from results import store

    here, _ = processors.accelerators()
    earlier = set(store.read(folder, study.name, tables=("studies",)).studies["backend"].dropna())
    if others := sorted(earlier - {here}):
        raise BadInput(
            f"{study.name} was measured on {' and '.join(others)}, and this would go on with it on {here}, which "
            f"rounds otherwise; choose another store, or say mixed_backends=true"
        )


def _check(settings: Settings, workers: int | None) -> None:
    limit, interval = settings.time_limit_seconds, settings.part_seconds
    counts = {"launcher.workers": workers} | {
        key: getattr(settings, key) for key in ("lanes", "shards", "microbatches")
    }
    for key, count in counts.items():
        if count is not None and count < 1:
            raise BadInput(f"{key} must be at least 1, not {count}")
    check_choice("lane_strategy", settings.lane_strategy, ("auto", *STRATEGIES))
    if limit is not None and not limit > 0:
        raise BadInput(f"time_limit_seconds must be above 0, not {limit:g}")
    if interval < 0:
        raise BadInput(f"part_seconds must be at least 0, not {interval:g}")
    if settings.checkpoint_seconds is not None and not settings.checkpoint_seconds >= 0:
        raise BadInput(f"checkpoint_seconds must be at least 0, not {settings.checkpoint_seconds:g}")
    folder = None if settings.checkpoint_dir is None else durable.location(settings.checkpoint_dir)
    if isinstance(folder, Path):
        there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise BadInput(f"checkpoint_dir={settings.checkpoint_dir}: {there} is no folder that can be written to")
