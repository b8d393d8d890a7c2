"""The request: a command line or studies read into plans, by kind, and what a store lacks of them."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import compile_cache, processors
from harness.run import STRATEGIES, Settings
from results import durable
from results.bad_input import BadInput, check_choice
from results.cli import say
from results.plans.kinds import of_kind
from results.plans.plan import Plan
from results.plans.study import digest as plain_digest
from results.plans.trial_request import largest_request
from results.storage import attempts
from sweeps import composition, launching, limits, overrides
from sweeps.configured_study import ABSENT, ConfiguredStudy
from sweeps.kind_configs import READERS
from sweeps.launchers.launcher import Launch, failed_too_often
from sweeps.limits import Bounds, Limits
from sweeps.run import StudyOutcome, StudyUpdate

_NAMED = 3  # studies in one line
# Keys of what is no property of a study.
OF_RUNS = (
    "store",
    "launcher",
    "limits",
    "mixed_backends",
    "yes",
    "notify",
    "ask_above_device_hours",
    *(field.name for field in dataclasses.fields(Settings)),
)


@dataclasses.dataclass(frozen=True)
class Request:
    """The request of a command line, checked as far as possible without compiling anything.

    Attributes:
      studies: with distinct names, in the order asked for.
      sources: what the data of a study are built from, by its name, where its plan does not say that: plain data for
        its runner, such as ``workloads.registry.ratings`` takes.
      settings: how each is run.
      store: the folder results go to.
      launcher: its name and what it takes; the local one with as many workers as the machine is good for.
      mixed_backends: whether a study may grow on another backend than it was measured on.
      ask_above_device_hours: predicted for the sweep, at which it is not begun; None: it is, whatever it costs.
      notify: the target of a ``sweeps.notify.Hook``.
      limits: of the sweep, and of each study.
      words: of the command lines that ask for one study each, by its name, without store and launcher; most studies
        have one, and those that are asked for in several ways as many.
    """

    studies: tuple[Plan, ...]
    sources: Mapping[str, Mapping[str, Any]]
    settings: Settings
    store: Path
    launcher: Mapping[str, Any]
    mixed_backends: bool = False
    ask_above_device_hours: float | None = None
    notify: str | None = None
    limits: tuple[Bounds, Bounds] = (Bounds(), Bounds())
    words: Mapping[str, tuple[tuple[str, ...], ...]] = dataclasses.field(default_factory=dict)


def request(line: overrides.CommandLine, *, absent: Sequence[str] = (), written: bool = True) -> Request:
    """Reads a command line into plans.

    Args:
      line: to be read.
      absent: what need not be there, as nothing is to be run: of ``configured_study.DATA`` and ``DEVICES``.
      written: whether the store is to be written to; else it may be a release.

    Raises:
      BadInput: for the first thing wrong with any study of the sweep.
    """
    points = composition.compose_points(line)
    configs = [point.config for point in points]
    first = configs[0]
    for key in OF_RUNS:
        if any(config[key] != first[key] for config in configs):
            raise BadInput(f"{key} applies to the whole sweep and cannot be swept over")
    configured = [READERS[config["kind"]].read(config | {ABSENT: absent}) for config in configs]
    named = first["store"] if line.store is None else line.store
    if not named.strip():
        raise BadInput("store= names no folder; give one, or store=. for this one")
    if first["notify"] is not None and not first["notify"].strip():
        raise BadInput("notify= names no command and no URL; give one, or notify=null for none")
    settings = Settings(*(first[field.name] for field in dataclasses.fields(Settings)))
    bounds = limits.of_configuration(first["limits"])
    if bounds[1].max_hours is not None:
        if settings.time_limit_seconds is not None:
            raise BadInput("limits.study.max_hours and time_limit_seconds are the same limit; give one of them")
        settings = dataclasses.replace(settings, time_limit_seconds=3600 * bounds[1].max_hours)
    asked = assemble(configured, durable.local(named), settings, first["launcher"], written=written)
    return dataclasses.replace(
        asked,
        mixed_backends=first["mixed_backends"],
        ask_above_device_hours=None if first["yes"] else first["ask_above_device_hours"],
        notify=first["notify"],
        limits=bounds,
        words=_words(asked.studies, configured, [point.words for point in points]),
    )


def _words(
    studies: Sequence[Plan], configured: Sequence[ConfiguredStudy[Any]], words: Sequence[tuple[str, ...]]
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The words that ask for each study; of several those that ask for all of it, where there are any."""
    by_plan: dict[str, dict[Any, tuple[str, ...]]] = {}  # and by request
    for (study, _), own in zip(configured, words, strict=True):
        by_plan.setdefault(study.plan_json, {})[study.request] = own
    return {
        study.name: (asked[study.request],) if study.request in asked else tuple(asked.values())
        for study in studies
        for asked in [by_plan[study.plan_json]]
    }


def assemble(
    configured: Sequence[ConfiguredStudy[Any]],
    folder: Path,
    settings: Settings,
    launcher: Mapping[str, Any],
    *,
    written: bool = True,
) -> Request:
    """The request for some studies, of which those of one plan become one.

    Args:
      configured: the studies.
      folder: of the store.
      settings: how each is run.
      launcher: the configuration of one, as of ``sweeps.schema.LauncherConfig``.
      written: as in ``request``.

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
    _check(settings)
    launching.check(launcher, tuple(studies.values()), settings)
    if written or not folder.is_dir() or store.released_commits(folder) is None:
        store.check_destination(folder)
    stored = {plan: store.with_stored_name(folder, study) for plan, study in studies.items()}
    of_name = {stored[plan].name: source for plan, source in sources.items()}
    return Request(tuple(stored.values()), of_name, settings, folder, launcher)


def digest(request: Request) -> str:
    """The hash of what is asked for: the studies, how they are run, and their limits; not where, nor the store."""
    studies = [[study.plan_json, list(study.request)] for study in request.studies]
    return plain_digest(
        {"studies": studies, "settings": dataclasses.asdict(request.settings), "limits": request.limits}
    )


class ToRun(NamedTuple):
    """The studies of a request that a store lacks something of.

    Attributes:
      studies: to be run, and be it only to be committed.
      missing: trials to be run, by the names of all studies of the request.
      stored: how many of the trials are stored already.
      left_out: studies that lack something, and failed as often as ``limits.study.max_failures`` allows.
    """

    studies: tuple[Plan, ...]
    missing: Mapping[str, int]
    stored: int
    left_out: tuple[Plan, ...] = ()


def to_run(request: Request) -> ToRun:
    """What the store of a request lacks of its studies.

    Raises:
      BadInput: some of a study were measured on another backend than the rest would be.
    """
    from results import store

    progress = {study.name: store.progress(request.store, study) for study in request.studies}
    missing = {name: each.to_run for name, each in progress.items()}
    # A run that was killed before its commit record has nothing to train, but still has to commit.
    lacking = tuple(s for s in request.studies if missing[s.name] or not progress[s.name].visible)
    planned = sum(study.request.planned for study in request.studies)
    stored = planned - sum(missing.values())
    left_out = tuple(study for study in lacking if _failed_too_often(request, study))
    missing |= {study.name: 0 for study in left_out}
    studies = tuple(study for study in lacking if study not in left_out)
    # Elsewhere the job of a study checks this where it runs.
    for study in studies if launching.LAUNCHERS[request.launcher["name"]].here and not request.mixed_backends else ():
        if 0 < missing[study.name] < study.request.planned:
            _check_backend(request.store, study)
    return ToRun(studies, missing, stored, left_out)


def _failed_too_often(request: Request, study: Plan) -> bool:
    """Whether as many attempts at a study failed as may; not while one waits or runs as a job of SLURM."""
    folder = request.store / study.name
    if not failed_too_often(folder, request.limits[1].max_failures):
        return False
    last = attempts.read(folder)[-1]
    return last.launcher != "slurm" or last.code is not None


def make_ready(request: Request, studies: Sequence[Plan], say: Callable[[str], None]) -> None:
    """Prepares the data of studies of a request; its store is left as it is.

    Raises:
      BadInput: for data that cannot be used.
    """
    for kind, reader in READERS.items():
        configured = [ConfiguredStudy(s, request.sources.get(s.name)) for s in of_kind(studies, kind)]
        for text in reader.data_lines(configured):
            say(text)
        reader.make_ready(configured, say)
    if studies and (why := compile_cache.obstacle()):
        say(f"compiled programs are not kept for the next run: {why}")


def record(request: Request, studies: Sequence[Plan]) -> None:
    """Records in the store of a request that studies are wanted."""
    from results import store

    for study in studies:
        store.ask(request.store, study)


def run(
    request: Request,
    studies: Sequence[Plan],
    on_progress: Callable[[StudyUpdate], None] = lambda update: None,
    on_wait: Callable[[], None] = lambda: None,
) -> list[StudyOutcome]:
    """Runs studies of a request by its launcher, within its limits; an outcome for each that began.

    Args:
      request: what is asked for.
      studies: of these.
      on_progress: told of everything that happens.
      on_wait: called every second in which nothing happens.
    """
    launcher = launching.LAUNCHERS[request.launcher["name"]]
    devices = {study.name: launcher.devices(request.launcher, study, request.settings) for study in studies}
    used = Limits(*request.limits, devices)
    launch = Launch(
        request.store, studies, request.settings, used, request.sources, request.words, on_progress, on_wait
    )
    outcomes = launcher.run_all(request.launcher, launch)
    if used.reached is not None:
        say(f"{used.reached} is reached")
    for line in _ended_early(request, used, [outcome.summary.study for outcome in outcomes]):
        say(line)
    return outcomes


def _ended_early(request: Request, used: Limits, names: Sequence[str]) -> Iterator[str]:
    """A line for each limit of the studies themselves, with those that reached it, of some that have ended."""
    from results import store

    by_limit: dict[str, list[str]] = {}
    for name, limit in used.ended.items():
        by_limit.setdefault(limit, []).append(name)
    seconds, hours = request.settings.time_limit_seconds, request.limits[1].max_hours
    if seconds is not None and used.reached is None:
        limit = f"time_limit_seconds={seconds:g}" if hours is None else f"limits.study.max_hours={hours:g}"
        plans = {study.name: study for study in request.studies}
        by_limit[limit] = [
            name
            for name in names
            if name not in used.ended and store.progress(request.store, plans[name]).ledger.time_limit
        ]
    for limit, own in by_limit.items():
        if own:
            more = f" and {len(own) - _NAMED} more" if len(own) > _NAMED else ""
            yield f"{limit} is reached by {', '.join(own[:_NAMED])}{more}"


def _check_backend(folder: Path, study: Plan) -> None:
    from results import store

    here, _ = processors.accelerators()
    if others := sorted(store.backends(folder, study.name) - {here}):
        raise BadInput(
            f"{study.name} was measured on {' and '.join(others)}, and this would go on with it on {here}, which "
            f"rounds otherwise; choose another store, or say mixed_backends=true"
        )


def _check(settings: Settings) -> None:
    limit, interval = settings.time_limit_seconds, settings.flush_seconds
    for key, count in ((key, getattr(settings, key)) for key in ("lanes", "shards", "microbatches")):
        if count is not None and count < 1:
            raise BadInput(f"{key} must be at least 1, not {count}")
    check_choice("lane_strategy", settings.lane_strategy, ("auto", *STRATEGIES))
    if limit is not None and not limit > 0:
        raise BadInput(f"time_limit_seconds must be above 0, not {limit:g}")
    if interval < 0:
        raise BadInput(f"flush_seconds must be at least 0, not {interval:g}")
    if settings.checkpoint_seconds is not None and not settings.checkpoint_seconds >= 0:
        raise BadInput(f"checkpoint_seconds must be at least 0, not {settings.checkpoint_seconds:g}")
    folder = None if settings.checkpoint_dir is None else durable.location(settings.checkpoint_dir)
    if isinstance(folder, Path):
        there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise BadInput(f"checkpoint_dir={settings.checkpoint_dir}: {there} is no folder that can be written to")
