"""Devices that a plan requires and this machine does not have. Their rates come only from tables."""

from typing import NamedTuple

from harness.compiled import topologies
from harness.run import Settings
from harness.step.batch_partition import Request, divisions
from results.bad_input import BadInput, nearest, number_of
from results.costs.counts import Counts
from results.costs.hardware import ACCELERATORS, HARDWARE, backend_of, described, hardware_of


class AbsentDevices(NamedTuple):
    """Devices of one kind, as JAX counts devices.

    Attributes:
      row: name of the device in ``results.costs.hardware.HARDWARE``, with options for its links.
      number: number of devices.
    """

    row: str
    number: int

    @property
    def backend(self) -> str:
        """JAX's name of the backend."""
        return backend_of(self.row.partition(";")[0])

    @property
    def memory_bytes(self) -> float:
        """Bytes of memory of a device."""
        return HARDWARE[self.row.partition(";")[0]].memory_bytes

    @property
    def text(self) -> str:
        """The number and the name of the devices."""
        return f"{self.number:,} × {self.row}"


def read(device: str | None, devices: str | None, settings: Settings) -> AbsentDevices | None:
    """Returns the devices requested by ``device=NAME devices=N``, if they are requested. N defaults to 1.

    Raises:
      BadInput: the device is unknown, or the number of devices is invalid.
    """
    if device is None:
        if devices is not None:
            raise BadInput(f"devices={devices} needs a device, such as device=h100")
        return None
    name, *options = device.split(";")
    row = _row(name)
    if row is None:
        hint = nearest(name, ACCELERATORS)
        names = "" if "choices" in hint else f" choices: {', '.join(sorted(ACCELERATORS))}"
        raise BadInput(f"unknown device {name!r}; {hint}{names}")
    count = int(devices) if devices is not None and devices.isascii() and devices.isdigit() else 0
    if devices is None:
        count = settings.shards or 1
    if count < 1:
        raise BadInput(f"devices={devices} is not a number of devices. Use an integer of at least 1.")
    row = ";".join([row, *options])
    described(row)  # checks the options
    return _checked(row, count, settings)


def of_topology(topology: str, settings: Settings) -> AbsentDevices:
    """Returns the devices of a TPU slice. Raises BadInput if the slice does not exist."""
    count = topologies.count(topology)
    row = _row(topology.partition(":")[0])
    assert row is not None  # the table has all versions
    return _checked(row, count, settings)


def _row(name: str) -> str | None:
    return name if name in ACCELERATORS else hardware_of(f"TPU {name}")


def _checked(row: str, count: int, settings: Settings) -> AbsentDevices:
    if settings.mesh is not None:
        raise BadInput(
            "mesh= and layout= are predicted only by compiling, with topology= and the extra plan. Leave them out, or "
            "use shards=."
        )
    if settings.shards is not None and count % settings.shards:
        raise BadInput(f"{number_of(count, 'device')} cannot be divided into groups of shards={settings.shards}")
    return AbsentDevices(row, count)


def shards_of(devices: AbsentDevices, batch_size: int, counts: Counts) -> int | None:
    """Returns the number of devices that should share a step, given the counts for one device.

    This is the smallest number at which activations could fit, or the largest number that can share a step. Numbers
    divide the number of devices, and do not split examples that are normalized together. The result is None if the
    counted devices are enough, or the most.
    """
    if counts.held_bytes <= devices.memory_bytes or counts.devices >= devices.number:
        return None
    total_bytes = counts.held_bytes * counts.devices
    ways = divisions(batch_size, counts.group, devices.number, Request(microbatches=1))
    larger = [way.shards for way in ways if way.shards > counts.devices]
    return next((n for n in larger if total_bytes / n <= devices.memory_bytes), max(larger, default=None))
