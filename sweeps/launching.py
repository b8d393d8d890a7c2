"""Launchers: the ways to run the studies of a sweep, by the names in `conf/launcher`; each is imported when used."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness import multihost
from harness.multihost import Hosts
from harness.run import Settings
from harness.runners import RUNNERS
from results.bad_input import BadInput, check_choice
from results.plans.plan import Plan
from sweeps.launchers.launcher import Launch, Launcher, devices_asked
from sweeps.run import StudyOutcome
from sweeps.schema import LauncherConfig


def _check_local(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> None:
    _at_least("workers", asked["workers"], 1)
    _check_tries(asked)


def _local(asked: Mapping[str, Any], launch: Launch) -> list[StudyOutcome]:
    from sweeps.launchers import local

    return local.run_all(
        launch.store,
        launch.studies,
        launch.settings,
        asked["workers"],
        launch.on_progress,
        launch.on_wait,
        sources=launch.sources,
        retries=asked["retries"],
        limits=launch.limits,
        silence_seconds=asked["silence_seconds"],
    )


def _local_at_once(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> int:
    from sweeps.launchers import local

    return len(local.slots(asked["workers"], settings.shards or 1))


def _hosts(asked: Mapping[str, Any]) -> Hosts:
    where, count, index = (asked[key] for key in ("coordinator", "hosts", "host"))
    return multihost.find(where, count, index, asked["heartbeat_seconds"], os.environ)


def _check_hosts(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> None:
    _hosts(asked)
    check_over_hosts(studies, settings)


def check_over_hosts(studies: Sequence[Plan], settings: Settings) -> None:
    """Raises BadInput for studies that several hosts cannot run together."""
    for study in studies:
        if not RUNNERS[study.kind].over_hosts:
            raise BadInput(f"{study.name} runs on one host alone; use launcher=local")
        if RUNNERS[study.kind].saves_in_parts and settings.checkpoint_dir is None:
            raise BadInput(
                f"{study.name}: each host saves what its own cores hold; give checkpoint_dir=…, a folder or URL that "
                "all of them reach"
            )


def _around_hosts(asked: Mapping[str, Any], command: str, run: Callable[[], int]) -> int:
    from sweeps.launchers.hosts import watched

    return watched(_hosts(asked), command, run)


def _devices_of_hosts(asked: Mapping[str, Any], study: Plan, settings: Settings) -> int:
    import jax

    return jax.device_count()  # those of all hosts, which have met before this is asked


def _on_hosts(asked: Mapping[str, Any], launch: Launch) -> list[StudyOutcome]:
    from sweeps.launchers.hosts import run_all

    return run_all(launch)


def _check_slurm(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> None:
    from sweeps.launchers import slurm

    _check_tries(asked)
    slurm.check(asked)
    if asked["nodes"] > 1:
        check_over_hosts(studies, settings)


def _devices_of_slurm(asked: Mapping[str, Any], study: Plan, settings: Settings) -> int:
    devices = devices_asked(asked, study, settings)
    if asked["nodes"] == 1:
        return devices
    return int(asked["nodes"] * ((devices if asked["gpus"] is None else asked["gpus"]) or 1))


def _slurm(asked: Mapping[str, Any], launch: Launch) -> list[StudyOutcome]:
    from sweeps.launchers import slurm

    return slurm.run_all(asked, launch)


def _check_ray(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> None:
    from sweeps.launchers import on_ray

    _check_tries(asked)
    on_ray.check(asked)


def _devices_of_ray(asked: Mapping[str, Any], study: Plan, settings: Settings) -> int:
    if asked["tpu_slice"] is None:
        return devices_asked(asked, study, settings)
    from harness import topologies

    return topologies.count(asked["tpu_slice"])


def _ray(asked: Mapping[str, Any], launch: Launch) -> list[StudyOutcome]:
    from sweeps.launchers import on_ray

    return on_ray.run_all(asked, launch)


def _all_at_once(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> int:
    return min(asked["at_once"] or len(studies), len(studies))


LAUNCHERS: dict[str, Launcher] = {
    "local": Launcher(("workers", "retries", "silence_seconds"), _check_local, _local_at_once, _local),
    "hosts": Launcher(
        ("coordinator", "hosts", "host", "heartbeat_seconds"),
        _check_hosts,
        lambda asked, studies, settings: 1,
        _on_hosts,
        _around_hosts,
        devices=_devices_of_hosts,
    ),
    "slurm": Launcher(
        (
            *("cpus", "gpus", "mem", "minutes", "partition", "nodes", "sbatch", "grace_seconds", "at_once", "retries"),
            *("silence_seconds", "poll_seconds", "wait"),
        ),
        _check_slurm,
        _all_at_once,
        _slurm,
        here=False,
        devices=_devices_of_slurm,
    ),
    "ray": Launcher(
        ("address", "cpus", "gpus", "resources", "tpu_slice", "at_once", "retries", "silence_seconds"),
        _check_ray,
        _all_at_once,
        _ray,
        here=False,
        devices=_devices_of_ray,
    ),
}


def check(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> None:
    """Raises BadInput for the configuration of a launcher with which some studies cannot be run.

    Args:
      asked: the configuration ``launcher``.
      studies: to be run.
      settings: how each is run.
    """
    name = asked["name"]
    check_choice("launcher.name", name, tuple(LAUNCHERS))
    for field in dataclasses.fields(LauncherConfig):
        if field.name == "name" or field.name in LAUNCHERS[name].keys:
            continue
        default = field.default_factory() if callable(field.default_factory) else field.default
        if asked[field.name] != default:
            fitting = [f"launcher={each}" for each, row in LAUNCHERS.items() if field.name in row.keys]
            raise BadInput(f"launcher.{field.name} is of {' and '.join(fitting)}, not of launcher={name}")
    LAUNCHERS[name].check(asked, studies, settings)


def _check_tries(asked: Mapping[str, Any]) -> None:
    _at_least("retries", asked["retries"], 0)
    if asked["silence_seconds"] is not None and not asked["silence_seconds"] > 0:
        raise BadInput(f"launcher.silence_seconds must be above 0, not {asked['silence_seconds']:g}")


def _at_least(key: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise BadInput(f"launcher.{key} must be at least {least}, not {value}")
