"""Records the provenance of a run: software, device and processors, as columns of the `studies` table."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.processes import multihost, processors
from results.aliases import Json
from results.bad_input import BadInput

ROOT = Path(__file__).resolve().parents[2]  # of the checkout
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "scikit-learn")
TABLES = (".csv", ".toml")  # constants that are not in Python code
COMPILERS = ("libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin")  # from extras, if installed


def software() -> Json:
    """Returns columns with the versions of this software and of the packages it uses. No device is needed."""
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
    """Returns columns about the devices in use: the first ``cores`` devices, or all. May initialize JAX.

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
    local_devices = [local for local in devices if local.process_index == jax.process_index()]
    backend = jax.default_backend()
    return {
        "backend": backend,
        "device_kind": processors.model() if backend == "cpu" else devices[0].device_kind,
        "device_count": len(devices),
        "emulated": backend == "cpu" and len(local_devices) > len(processors.physical_cores()),
    }


def installed(names: Sequence[str]) -> dict[str, str]:
    """Returns the versions of the packages that are installed."""
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def code_hash(folders: Sequence[str]) -> str:
    """Returns a hash of all Python code, and of the tables next to it, in the given folders of this project."""
    digest = hashlib.sha256()
    for folder in folders:
        code = list((ROOT / folder).rglob("*.py"))
        tables = [file for place in {file.parent for file in code} for file in place.iterdir() if file.suffix in TABLES]
        for path in sorted(code + tables):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _commit() -> str | None:
    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != ROOT:
            return None
        return git("rev-parse", "HEAD") + ("+dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
