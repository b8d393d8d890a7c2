"""Provenance of a run: software, device and processors, as columns of the `studies` table."""

import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path

from harness import multihost, processors
from harness.costs import installed
from results.aliases import Json
from results.bad_input import BadInput

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "scikit-learn")
COMPILERS = ("libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin")  # from extras, if installed


def software() -> Json:
    """Returns columns with the versions of this software and of the packages it used. No device is needed."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES} | installed(COMPILERS)
    return {
        "code_version": importlib.metadata.version("scaling-limits"),
        "git_commit": _commit(),
        "python_version": platform.python_version(),
        "package_versions": json.dumps(versions),
        "physical_cores": len(processors.physical_cores()),
        "affinity": ",".join(map(str, processors.affinity())),
    }


def device(cores: int | None = None) -> Json:
    """Returns columns about the devices that were used: the first ``cores``, or all. Initializes JAX if necessary.

    Raises:
      BadInput: JAX finds no device.
    """
    import jax  # imported here because planning commands import this module

    try:
        devices = (jax.devices() if multihost.are_many() else jax.local_devices())[:cores]
    except (RuntimeError, AssertionError) as error:  # the latter has an empty message
        platforms = os.environ.get("JAX_PLATFORMS")
        request = f" on JAX_PLATFORMS={platforms}" if platforms else ""
        raise BadInput(f"JAX cannot start{request}: {str(error) or 'it found no such device'}") from None
    own = [each for each in devices if each.process_index == jax.process_index()]
    backend = jax.default_backend()
    return {
        "backend": backend,
        "device_kind": processors.model() if backend == "cpu" else devices[0].device_kind,
        "device_count": len(devices),
        "emulated": backend == "cpu" and len(own) > len(processors.physical_cores()),
    }


def _commit() -> str | None:
    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *args], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != Path(__file__).resolve().parent.parent:
            return None
        return git("rev-parse", "HEAD") + ("+dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
