"""The division of a batch over devices and over time. It does not need JAX."""

from typing import NamedTuple

from results.bad_input import BadInput


class Division(NamedTuple):
    """The division of a batch over ``shards`` devices. Each processes its part in ``microbatches``, one by one.

    A division changes the order of sums, so results agree within rounding; (1, 1) has the same order on every machine.
    """

    shards: int = 1
    microbatches: int = 1

    def examples(self, batch_size: int) -> int:
        """The number of examples of a batch that a shard takes. The last shard may have fewer."""
        return -(-batch_size // (self.shards * self.microbatches)) * self.microbatches


def divisions(
    batch_size: int, group: int, devices: int, shards: int | None = None, microbatches: int | None = None
) -> list[Division]:
    """The possible divisions of a batch, those closest to the defaults first.

    Args:
      batch_size: number of examples.
      group: as in Model.
      devices: number of devices of this process.
      shards, microbatches: required values. None allows any.

    Raises:
      BadInput: the required values are not possible.
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
