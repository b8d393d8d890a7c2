"""The launchers, by name in `conf/launcher`. A launcher is a way to run the studies of a sweep."""

import dataclasses

from harness.run import Settings
from results.bad_input import BadInput, check_choice
from sweeps import choices
from sweeps.configured_study import Config, Studies
from sweeps.launchers import hosts, local, on_ray, slurm
from sweeps.launchers.launcher import Launcher
from sweeps.schema import LauncherConfig

LAUNCHERS = {
    "local": Launcher(local.check, local.run_all),
    "hosts": Launcher(
        hosts.check,
        hosts.run_all,
        hosts.watched,
        devices=hosts.devices,
        leads=hosts.leads,
    ),
    "slurm": Launcher(slurm.check, slurm.run_all, here=False, devices=slurm.devices),
    "ray": Launcher(on_ray.check, on_ray.run_all, here=False, devices=on_ray.devices),
}


def check(asked: Config, studies: Studies, settings: Settings) -> None:
    """Raises BadInput if a launcher's configuration is invalid for some studies.

    Args:
      asked: configuration of the launcher.
      studies: studies to run.
      settings: settings of the runs.
    """
    name = asked["name"]
    check_choice("launcher.name", name, tuple(LAUNCHERS))
    keys = choices.launcher_keys(name)
    for field in dataclasses.fields(LauncherConfig):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if field.name not in keys and asked[field.name] != default:
            launchers = [
                f"launcher={launcher}" for launcher in LAUNCHERS if field.name in choices.launcher_keys(launcher)
            ]
            raise BadInput(f"launcher.{field.name} is for {' and '.join(launchers)}, not for launcher={name}")
    LAUNCHERS[name].check(asked, studies, settings)
