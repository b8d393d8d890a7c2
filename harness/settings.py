"""Settings of a run: speed, and a limit of time."""

import dataclasses

STRATEGIES = ("map", "vmap")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a run. On a CPU only ``shards`` and ``microbatches`` change a number of a trial that finishes.

    Attributes:
      lanes: trials side by side; None chooses. Rounded up to a multiple of the devices they are divided over.
      lane_strategy: ``map``, ``vmap``, or ``auto``: map on a CPU, vmap elsewhere.
      time_limit_seconds: after which what is unfinished ends as INCOMPLETE(time_limit); None is no limit.
      part_seconds: how often trials that have finished are handed over while others go on.
      shards: devices that each batch is divided over; more than 1 change results within rounding. None: as few as
        memory allows.
      microbatches: parts that each shard of a batch is taken in, one after the other, to save memory; likewise.
      checkpoint_seconds: how often trials under way are saved, at most; None: only where the run is stopped. A run that
        goes on from there gives the same numbers.
      checkpoint_dir: folder or URL that they are saved in; None: beside the results of their study.
    """

    lanes: int | None = None
    lane_strategy: str = "auto"
    time_limit_seconds: float | None = None
    part_seconds: float = 15.0
    shards: int | None = None
    microbatches: int | None = None
    checkpoint_seconds: float | None = 60.0
    checkpoint_dir: str | None = None
