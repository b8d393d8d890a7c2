"""Partitions a batch over devices (shards) and over time (microbatches). This module does not import JAX."""

from typing import NamedTuple

from results.bad_input import BadInput


class Division(NamedTuple):
    """A partition of a batch over ``shards`` devices. Each processes its shard in ``microbatches`` parts, one by one.

    The partition determines the order of summation, so results agree only up to rounding. With (1, 1), the order is the
    same on every machine.
    """

    shards: int = 1
    microbatches: int = 1

    def examples(self, batch_size: int) -> int:
        """Returns the number of examples per shard. The last shard may have fewer."""
        return -(-batch_size // (self.shards * self.microbatches)) * self.microbatches


def divisions(
    batch_size: int, group: int, devices: int, shards: int | None = None, microbatches: int | None = None
) -> list[Division]:
    """Returns the valid partitions of a batch, starting with those closest to the defaults.

    Args:
      batch_size: number of examples in the batch.
      group: number of examples that are normalized together, as in ``Model``.
      devices: number of devices available to this process.
      shards, microbatches: requested values. With None, any value is allowed.

    Raises:
      BadInput: the requested values are not possible.
    """
    if batch_size % group:
        raise BadInput(f"batch_size={batch_size} is not a multiple of the {group} examples normalized together")
    over = [shards] if shards else [s for s in range(1, devices + 1) if devices % s == 0 and s <= batch_size]
    found = [Division(s, microbatches or 1) for s in over]
    if microbatches is None:
        rest = [1 << i for i in range(1, batch_size.bit_length())]
        found += [Division(over[-1], m) for m in rest if over[-1] * m <= batch_size]
    possible = [division for division in found if _keeps_groups(batch_size, group, division)]
    if not possible:
        given = " ".join(f"{name}={n}" for name, n in (("shards", shards), ("microbatches", microbatches)) if n)
        raise BadInput(f"{given} would split the {group} examples that are normalized together. Use smaller values.")
    return possible


def _keeps_groups(batch_size: int, group: int, division: Division) -> bool:
    if group == 1:
        return True
    part, rest = divmod(batch_size, division.shards * division.microbatches)
    return rest == 0 and (part % group == 0 or (division.microbatches == 1 and group % part == 0))
