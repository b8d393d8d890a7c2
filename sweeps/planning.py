"""Turns command lines or studies into requests, finds missing trials, and runs them."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.compiled import compile_cache
from harness.processes import processors
from harness.run import STRATEGIES, Settings
from results import durable, store
from results.aliases import Callback
from results.bad_input import BadInput, check_choice, first_few
from results.durable import Folder
from results.grouping import grouped
from results.plans.kinds import of_kind
from results.plans.plan import Plan
from results.plans.study import digest as plain_digest
from results.plans.trial_request import largest_request
from results.printing import say
from results.storage import attempts
from sweeps import composition, launching, limits, overrides, tuning_protocol
from sweeps.configured_study import ABSENT, OF_RUNS, Config, ConfiguredStudy, Say, Studies
from sweeps.kind_configs import READERS
from sweeps.launchers.launcher import Launch, check_least, failed_too_often
from sweeps.limits import Bounds, Limits
from sweeps.quoting import Words, as_words, key_of
from sweeps.study_run import StudyOutcome, StudyUpdate

_NAMED = 3  # maximum number of studies named in a line


@dataclasses.dataclass(frozen=True)
class Request:
    """The request of a command line, validated as far as possible without compiling.

    Attributes:
      studies: requested studies, with distinct names, in the requested order.
      sources: data sources by study name, for plans that do not contain them. They are plain data for the runner, as in
        ``workloads.ratings_sources.source``.
      settings: settings of each run.
      store: folder of the results.
      launcher: configuration of the launcher, including its name.
      mixed_backends: whether a study may be resumed on a different backend from the one it was measured on.
      ask_above_device_hours: predicted device-hours above which the sweep does not start, or None for no limit.
      limits: limits of the sweep and of each study.
      words: the command line that requests only a single study, by study name, without store and launcher.
    """

    studies: tuple[Plan, ...]
    sources: Mapping[str, Config]
    settings: Settings
    store: Folder
    launcher: Config
    mixed_backends: bool = False
    ask_above_device_hours: float | None = None
    limits: tuple[Bounds, Bounds] = (limits.NONE, limits.NONE)
    words: Mapping[str, Words] = dataclasses.field(default_factory=dict)


def request(line: overrides.CommandLine, *, absent: Sequence[str] = (), written: bool = True) -> Request:
    """Reads a command line into plans.

    Args:
      line: parsed command line.
      absent: requirements that are not checked because studies will not run: ``configured_study.DATA`` and ``DEVICES``.
      written: whether the store will be written to. If not, it may be a release.

    Raises:
      BadInput: a study of the sweep is invalid.
    """
    points = composition.compose_points(line)
    configs = [point.config for point in points]
    first = configs[0]
    configured = [READERS[config["kind"]].read(config | {ABSENT: absent}) for config in configs]
    for text in tuning_protocol.lines(configs):
        say(text)
    planned = {name for study in configured for name in study.study.identity_fields()}  # such as the mesh of a layout
    for key in OF_RUNS:
        if key not in planned and any(config[key] != first[key] for config in configs):
            raise BadInput(f"{key} applies to the whole sweep and cannot be swept over")
    named = first["store"] if line.store is None else line.store
    if not named.strip():
        raise BadInput("store= is empty. Set a folder, or store=. for this one.")
    names = [field.name for field in dataclasses.fields(Settings) if field.name not in planned]
    settings = Settings(**{name: first[name] for name in names})
    bounds = limits.of_configuration(first["limits"])
    if bounds[1].max_hours is not None:
        if settings.time_limit_seconds is not None:
            raise BadInput("limits.study.max_hours and time_limit_seconds are the same limit. Set one of them.")
        settings = dataclasses.replace(settings, time_limit_seconds=3600 * bounds[1].max_hours)
    asked = assemble(configured, durable.location(named), settings, first["launcher"], written=written)
    return dataclasses.replace(
        asked,
        mixed_backends=first["mixed_backends"],
        ask_above_device_hours=None if first["yes"] else first["ask_above_device_hours"],
        limits=bounds,
        words=_words(asked.studies, configured, [point.words for point in points]),
    )


def _words(studies: Studies, configured: Sequence[ConfiguredStudy[Any]], words: Sequence[Words]) -> dict[str, Words]:
    """Returns the words that request each study with all of its trials."""
    by_plan: dict[str, dict[Any, Words]] = {}  # by plan and request
    for (study, _), line in zip(configured, words, strict=True):
        by_plan.setdefault(study.plan_json, {})[study.request] = line
    lines = {}
    for study in studies:
        asked = by_plan[study.plan_json]
        if study.request not in asked:  # requested in several ways
            fields = study.request_fields(study.request)
            kept = (word for word in next(iter(asked.values())) if key_of(word) not in fields)
            asked[study.request] = (*kept, *as_words(fields))
        lines[study.name] = asked[study.request]
    return lines


def assemble(
    configured: Sequence[ConfiguredStudy[Any]],
    folder: Folder,
    settings: Settings,
    launcher: Config,
    *,
    written: bool = True,
) -> Request:
    """Returns a request for the given studies. Studies with equal plans are merged.

    Args:
      configured: studies to request.
      folder: folder of the store.
      settings: settings of each run.
      launcher: configuration of the launcher, as in ``sweeps.schema.LauncherConfig``.
      written: as in ``request``.

    Raises:
      BadInput: the settings are invalid, or the store is not writable or contains a different plan.
    """
    studies: dict[str, Plan] = {}  # by plan
    sources = {}
    for study, source in configured:
        if source is not None:
            sources[study.plan_json] = source
        earlier = studies.get(study.plan_json)
        studies[study.plan_json] = (
            study if earlier is None else earlier.with_request(largest_request([earlier.request, study.request]))
        )
    _check(settings)
    launching.check(launcher, tuple(studies.values()), settings)
    files = durable.system(folder)
    if not (files.is_local or launching.LAUNCHERS[launcher["name"]].here):
        raise BadInput(
            f"store={folder}: launcher={launcher['name']} needs a folder that all nodes share. Use launcher=local or "
            "launcher=hosts for a store in a bucket."
        )
    if not launching.LAUNCHERS[launcher["name"]].leads(launcher):
        folder, stored = Path(os.devnull), studies
    else:
        stored = _stored(folder, studies, written=written)
    of_name = {stored[plan].name: source for plan, source in sources.items()}
    return Request(tuple(stored.values()), of_name, settings, folder, launcher)


def _stored(folder: Folder, studies: Mapping[str, Plan], *, written: bool) -> dict[str, Plan]:
    """Returns studies with their names in a store. Raises BadInput if the store cannot be used."""
    if written:
        store.check_destination(folder)
    with durable.system(folder).snapshot(folder):
        if not written and (not folder.is_dir() or store.released_commits(folder) is None):
            store.check_is_store(folder)
        return {plan: store.with_stored_name(folder, study) for plan, study in studies.items()}


def digest(request: Request) -> str:
    """Returns a hash of the studies, settings and limits of a request. The store and the launcher are excluded."""
    studies = [[study.plan_json, list(study.request)] for study in request.studies]
    bounds = [list(vars(limit).values()) for limit in request.limits]
    return plain_digest({"studies": studies, "settings": vars(request.settings), "limits": bounds})


class ToRun(NamedTuple):
    """The unfinished studies of a request.

    Attributes:
      studies: studies to run or commit.
      missing: number of trials to run, by name of the study, for all studies.
      stored: number of stored trials.
      left_out: unfinished studies that have reached ``limits.study.max_failures``.
    """

    studies: tuple[Plan, ...]
    missing: Mapping[str, int]
    stored: int
    left_out: tuple[Plan, ...] = ()


def to_run(request: Request) -> ToRun:
    """Returns the unfinished studies of a request.

    Raises:
      BadInput: a study was partly measured on another backend.
    """
    with durable.system(request.store).snapshot(request.store):
        return _to_run(request)


def _to_run(request: Request) -> ToRun:
    progress = {study.name: store.progress(request.store, study) for study in request.studies}
    missing = {name: state.to_run for name, state in progress.items()}
    # A run that was killed before its commit does not have trials left, but still has to commit.
    lacking = tuple(s for s in request.studies if missing[s.name] or not progress[s.name].visible)
    stored = sum(study.request.planned for study in request.studies) - sum(missing.values())
    left_out = tuple(study for study in lacking if _failed_too_often(request, study))
    missing |= {study.name: 0 for study in left_out}
    studies = tuple(study for study in lacking if study not in left_out)
    # On a cluster, the job of the study checks this.
    if launching.LAUNCHERS[request.launcher["name"]].here and not request.mixed_backends:
        for study in studies:
            if 0 < missing[study.name] < study.request.planned:
                _check_backend(request.store, study)
    return ToRun(studies, missing, stored, left_out)


def _failed_too_often(request: Request, study: Plan) -> bool:
    """Returns whether a study has reached its limit of failed attempts and does not have a SLURM job."""
    folder = request.store / study.name
    if not failed_too_often(folder, request.limits[1].max_failures):
        return False
    last = attempts.last(folder)
    return last is None or last.launcher != "slurm" or last.code is not None


def make_ready(request: Request, studies: Studies, say: Say) -> None:
    """Prepares the data of a request's studies without writing to the store.

    Raises:
      BadInput: the data cannot be used.
    """
    for kind, reader in READERS.items():
        configured = [ConfiguredStudy(s, request.sources.get(s.name)) for s in of_kind(studies, kind)]
        for text in reader.data_lines(configured):
            say(text)
        reader.make_ready(configured, say)
    if studies and (why := compile_cache.obstacle()):
        say(f"compiled programs are not cached: {why}")


def record(request: Request, studies: Studies) -> None:
    """Records the requested studies in the store."""
    with durable.system(request.store).snapshot(request.store):
        for study in studies:
            store.ask(request.store, study)


def run(
    request: Request,
    studies: Studies,
    on_progress: Callable[[StudyUpdate], None] = lambda update: None,
    on_wait: Callback = lambda: None,
) -> list[StudyOutcome]:
    """Runs studies of a request with its launcher and limits. Returns an outcome for each study that started.

    Args:
      request: request of the command.
      studies: studies to run.
      on_progress: called with every update.
      on_wait: called about every second while there are no updates.
    """
    launcher = launching.LAUNCHERS[request.launcher["name"]]
    devices = {study.name: launcher.devices(request.launcher, study, request.settings) for study in studies}
    used = Limits(*request.limits, devices)
    launch = Launch(
        request.store, studies, request.settings, used, request.sources, request.words, on_progress, on_wait
    )
    outcomes = launcher.run_all(request.launcher, launch)
    if used.reached is not None:
        say(f"reached {used.reached}")
    for line in _ended_early(request, used, [outcome.summary.study for outcome in outcomes]):
        say(line)
    return outcomes


def _ended_early(request: Request, used: Limits, names: Sequence[str]) -> Iterator[str]:
    """Yields a line for each per-study limit that was reached, with the studies that reached it."""
    by_limit = grouped(used.ended, lambda name: used.ended[name])
    seconds = request.settings.time_limit_seconds
    hours = request.limits[1].max_hours
    if seconds is not None and used.reached is None:
        limit = f"time_limit_seconds={seconds:g}" if hours is None else f"limits.study.max_hours={hours:g}"
        plans = {study.name: study for study in request.studies}
        by_limit[limit] = [
            name
            for name in names
            if name not in used.ended and store.progress(request.store, plans[name]).ledger.time_limit
        ]
    for limit, ended in by_limit.items():
        if ended:
            yield f"{limit} reached by {first_few(ended, _NAMED)}"


def _check_backend(folder: Folder, study: Plan) -> None:
    backend, _ = processors.accelerators()
    if backends := sorted(store.backends(folder, study.name) - {backend}):
        raise BadInput(
            f"{study.name} was measured on {' and '.join(backends)}, and {backend} rounds differently. Use another "
            "store, or mixed_backends=true."
        )


def _check(settings: Settings) -> None:
    check_least(vars(settings), "", lanes=1, shards=1, microbatches=1)
    check_choice("lane_strategy", settings.lane_strategy, ("auto", *STRATEGIES))
    limit = settings.time_limit_seconds
    if limit is not None and not limit > 0:
        raise BadInput(f"time_limit_seconds must be above 0, not {limit:g}")
    check_least(vars(settings), "", flush_seconds=0, checkpoint_seconds=0)
    folder = None if settings.checkpoint_dir is None else durable.location(settings.checkpoint_dir)
    if folder is not None and durable.system(folder).is_local:
        existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise BadInput(f"checkpoint_dir={settings.checkpoint_dir}: {existing} is not a writable folder")
