"""Partitions a batch across devices (shards) and over time (microbatches). This module does not import JAX."""

import math
from typing import Any, NamedTuple

from harness.run import Settings
from results.bad_input import BadInput
from workloads.workload import DATA

TRIAL = "trial"  # mesh axis that trials are divided over
Pairs = tuple[tuple[str, Any], ...]


class Division(NamedTuple):
    """A partition of a batch. Each of ``shards`` devices processes its shard in ``microbatches`` parts, one by one.

    The partition determines the order of summation, so the results of different partitions agree only up to rounding.
    With one shard and one microbatch, the order is the same on every machine.

    Attributes:
      shards: size of the mesh axis ``data``.
      microbatches: number of parts of each shard.
      mesh: names and sizes of additional mesh axes, across which parameters and activations are sharded.
      layout: pairs of a tensor axis and the mesh axis that it is sharded across. Other tensor axes are not sharded.
    """

    shards: int = 1
    microbatches: int = 1
    mesh: Pairs = ()
    layout: Pairs = ()

    @property
    def devices(self) -> int:
        """Returns the number of devices that a trial runs on."""
        return self.shards * math.prod(size for _, size in self.mesh)

    @property
    def mesh_text(self) -> str:
        """Returns the mesh as text, such as ``data:2 model:4``."""
        over_data = () if self.mesh and self.shards == 1 else ((DATA, self.shards),)
        return ";".join(f"{name}:{size}" for name, size in (*over_data, *self.mesh))

    @property
    def layout_text(self) -> str:
        """Returns the layout as text, such as ``embed:data mlp:model``."""
        return ";".join(f"{name}:{axis}" for name, axis in self.layout)

    def examples(self, batch_size: int) -> int:
        """Returns the number of examples per shard. The last shard may have fewer."""
        return -(-batch_size // (self.shards * self.microbatches)) * self.microbatches


class Request(NamedTuple):
    """A requested partition, with the attributes of ``Division``. A value of None allows any value."""

    shards: int | None = None
    microbatches: int | None = None
    mesh: Pairs = ()
    layout: Pairs = ()

    @property
    def devices(self) -> int:
        """Returns the minimum number of devices that a trial runs on."""
        return self.least.devices

    @property
    def least(self) -> Division:
        """Returns the partition with the smallest allowed values."""
        return Division(self.shards or 1, self.microbatches or 1, self.mesh, self.layout)


def requested(shards: int | None, microbatches: int | None, mesh: str | None, layout: str | None) -> Request:
    """Parses a requested partition. The axes of the layout are checked only when the model is compiled.

    Raises:
      BadInput: the mesh or the layout is invalid, or the mesh contradicts ``shards``.
    """
    if mesh is None:
        if layout:
            raise BadInput(f"layout={layout} needs a mesh, such as mesh=data:4")
        return Request(shards, microbatches)
    from workloads.layouts import notation, shapes

    sizes = dict(notation.read_mesh(mesh))
    names = list(sizes)
    over_data = sizes.pop(DATA, 1)
    if shards not in (None, over_data):
        raise BadInput(f"shards={shards} contradicts mesh={mesh}, which divides batches over {over_data} devices")
    if TRIAL in sizes:
        raise BadInput(f"mesh={mesh}: the axis {TRIAL} is used for trials. Choose another name.")
    pairs = notation.read_pairs(shapes.layout_text(layout or ""), names)
    if pairs.pop("batch", DATA) != DATA:
        raise BadInput(f"layout={layout}: batches are divided over the mesh axis {DATA}")
    return Request(over_data, microbatches, tuple(sizes.items()), tuple(sorted(pairs.items())))


def of_settings(settings: Settings) -> Request:
    """Returns the partition requested by the settings of a run. Raises BadInput if it is invalid."""
    return requested(settings.shards, settings.microbatches, settings.mesh, settings.layout)


def divisions(batch_size: int, group: int, devices: int, asked: Request) -> list[Division]:
    """Returns the valid partitions of a batch, starting with the one closest to the defaults.

    Args:
      batch_size: number of examples in the batch.
      group: number of examples that are normalized together, as in ``Model``.
      devices: number of devices available to this process.
      asked: requested values.

    Raises:
      BadInput: a partition with the requested values does not exist.
    """
    if batch_size % group:
        raise BadInput(f"batch_size={batch_size} is not a multiple of the {group} examples normalized together")
    smallest = asked.least
    if asked.shards:
        over = [asked.shards]
    else:
        over = [s for s in range(1, devices + 1) if devices % s == 0 and s <= batch_size]
    candidates = [smallest._replace(shards=s) for s in over]
    if asked.microbatches is None:
        counts = [1 << i for i in range(1, batch_size.bit_length())]
        candidates += [smallest._replace(shards=over[-1], microbatches=m) for m in counts if over[-1] * m <= batch_size]
    possible = [division for division in candidates if _keeps_groups(batch_size, group, division)]
    if not possible:
        numbers = (("shards", asked.shards), ("microbatches", asked.microbatches))
        given = " ".join(f"{name}={n}" for name, n in numbers if n)
        raise BadInput(f"{given} would split the {group} examples that are normalized together. Use smaller values.")
    return possible


def _keeps_groups(batch_size: int, group: int, division: Division) -> bool:
    if group == 1:
        return True
    part, remainder = divmod(batch_size, division.shards * division.microbatches)
    return remainder == 0 and (part % group == 0 or (division.microbatches == 1 and group % part == 0))
