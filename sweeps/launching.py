"""Launchers: the ways to run the studies of a sweep, by their names in `conf/launcher`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from harness.run import Settings
from results.bad_input import BadInput, check_choice
from results.plans.plan import Plan
from sweeps import overrides
from sweeps.launchers import hosts, local, on_ray, slurm
from sweeps.launchers.launcher import Launch, Launcher, check_least, check_retries
from sweeps.run import StudyOutcome
from sweeps.schema import LauncherConfig


def _check_local(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> None:
    check_least(asked, workers=1)
    check_retries(asked)


def _local(asked: Mapping[str, Any], launch: Launch) -> list[StudyOutcome]:
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
    return len(local.slots(asked["workers"], settings.shards or 1))


def _cluster_at_once(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> int:
    return min(asked["at_once"] or len(studies), len(studies))


LAUNCHERS: dict[str, Launcher] = {
    "local": Launcher(_check_local, _local_at_once, _local),
    "hosts": Launcher(
        hosts.check, lambda asked, studies, settings: 1, hosts.run_all, hosts.watched, devices=hosts.devices
    ),
    "slurm": Launcher(slurm.check, _cluster_at_once, slurm.run_all, here=False, devices=slurm.devices),
    "ray": Launcher(on_ray.check, _cluster_at_once, on_ray.run_all, here=False, devices=on_ray.devices),
}


def check(asked: Mapping[str, Any], studies: Sequence[Plan], settings: Settings) -> None:
    """Raises BadInput if a launcher's configuration is invalid for some studies.

    Args:
      asked: the configuration ``launcher``.
      studies: the studies to run.
      settings: settings of the runs.
    """
    name = asked["name"]
    check_choice("launcher.name", name, tuple(LAUNCHERS))
    own = overrides.launcher_keys(name)
    for field in dataclasses.fields(LauncherConfig):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if field.name not in own and asked[field.name] != default:
            others = [f"launcher={each}" for each in LAUNCHERS if field.name in overrides.launcher_keys(each)]
            raise BadInput(f"launcher.{field.name} is for {' and '.join(others)}, not for launcher={name}")
    LAUNCHERS[name].check(asked, studies, settings)
