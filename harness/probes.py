"""Probes: what ``python -m harness.probe`` measured of kinds of devices on this machine, and the rates that follow.

Imports no JAX.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.predictions import Rates
from results import durable
from results.bad_input import BadInput
from workloads import caches

FORMAT = 1
FACTOR = 3.0  # by which a prediction from a probe may be off either way: programs are not made of products alone


def place(device_kind: str) -> Path:
    """The file of the probe of a kind of device."""
    digest = hashlib.sha256(f"{FORMAT} {device_kind}".encode()).hexdigest()[:16]
    return caches.folder("probes") / f"{digest}.json"


def write(device_kind: str, found: Mapping[str, Any]) -> Path:
    """Keeps what a probe of a kind of device found; returns where."""
    file = place(device_kind)
    durable.make_folder(file.parent)
    durable.replace(file, json.dumps({"device_kind": device_kind, **found}, indent=1).encode())
    return file


def read(device_kind: str) -> dict[str, Any] | None:
    """What a probe of a kind of device found; None if there was none."""
    try:
        found = json.loads(place(device_kind).read_text())
    except (BadInput, OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("device_kind") == device_kind else None


def rates(device_kind: str, precision: str) -> Rates | None:
    """Rates of a kind of device by its probe, for products of a precision; None without one."""
    found = read(device_kind)
    if found is None:
        return None
    own = found["rates"].get(precision)
    return None if own is None else Rates(**own, factor=FACTOR, source=f"a probe of {device_kind}")
