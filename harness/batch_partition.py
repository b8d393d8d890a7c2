"""How a batch is divided over devices, and over time; known without JAX."""

from typing import NamedTuple

from results.bad_input import BadInput


class Division(NamedTuple):
    """How a batch is divided: over ``shards`` devices, each of which takes its share in ``microbatches``, one by one.

    Neither changes a result beyond the rounding of sums in another order; (1, 1) has one order on every machine.
    """

    shards: int = 1
    microbatches: int = 1

    def examples(self, batch_size: int) -> int:
        """How many examples of a batch a shard takes; the last may have fewer."""
        return -(-batch_size // (self.shards * self.microbatches)) * self.microbatches


def divisions(
    batch_size: int, group: int, devices: int, shards: int | None = None, microbatches: int | None = None
) -> list[Division]:
    """The divisions of a batch that there can be, those that change least first.

    Args:
      batch_size: examples.
      group: as in Model.
      devices: of this process.
      shards, microbatches: told ones; None for any.

    Raises:
      BadInput: those told cannot be.
    """
    if batch_size % group:
        raise BadInput(f"batch_size={batch_size} is no multiple of the {group} examples that are normalized together")
    over = [shards] if shards else [s for s in range(1, devices + 1) if devices % s == 0 and s <= batch_size]
    first, rest = [microbatches or 1], [1 << i for i in range(1, batch_size.bit_length())]
    found = [Division(s, first[0]) for s in over]
    if microbatches is None:
        found += [Division(over[-1], m) for m in rest if over[-1] * m <= batch_size]
    whole = [division for division in found if _keeps_groups(batch_size, group, division)]
    if not whole:
        told = " ".join(f"{name}={n}" for name, n in (("shards", shards), ("microbatches", microbatches)) if n)
        raise BadInput(f"{told} cut the {group} examples that are normalized together; use fewer")
    return whole


def _keeps_groups(batch_size: int, group: int, division: Division) -> bool:
    if group == 1:
        return True
    part, rest = divmod(batch_size, division.shards * division.microbatches)
    return rest == 0 and (part % group == 0 or (division.microbatches == 1 and group % part == 0))
