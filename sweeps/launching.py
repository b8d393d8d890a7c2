"""The launchers, by name in `conf/launcher`. A launcher is a way to run the studies of a sweep."""

import dataclasses
from typing import Any

from harness.run import Settings
from results.bad_input import BadInput, check_choice
from results.lazy import lazy
from sweeps import choices
from sweeps.configured_study import Config, Studies
from sweeps.launchers.launcher import Launcher
from sweeps.schema import LauncherConfig


def _launcher(module: str, *names: str, **fields: Any) -> Launcher:
    """Returns the launcher in a module, which is imported when the launcher is first used."""
    functions: dict[str, Any] = {
        name: lazy(f"sweeps.launchers.{module}", name) for name in ("check", "run_all", *names)
    }
    return Launcher(**functions, **fields)


LAUNCHERS = {
    "local": _launcher("local"),
    "hosts": _launcher("hosts", "around", "devices", "leads"),
    "slurm": _launcher("slurm", "devices", here=False),
    "ray": _launcher("on_ray", "devices", here=False),
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
