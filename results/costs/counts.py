"""Counted costs of a study as plain numbers: work, memory and collectives."""

from typing import NamedTuple


class Work(NamedTuple):
    """The amount of work of a program.

    Attributes:
      flops: FLOPs of matmuls and convolutions, two per multiply-add.
      activation_bytes: bytes of activations that these operations read and write.
      score_bytes: the same for attention scores. These are the largest array in a batched matmul of two activations.
      weight_bytes: the same for weights and their gradients.
      other_bytes: memory traffic of other operations that compilers do not fuse.
      operations: number of operations. Operations in loops are multiplied by the trip count.
      state_bytes: bytes of parameters, moments and gradients that the optimizer reads and writes, if they are counted.
    """

    flops: float = 0  # counted exactly, as an int
    activation_bytes: float = 0.0
    score_bytes: float = 0.0
    weight_bytes: float = 0.0
    other_bytes: float = 0.0
    operations: float = 0.0
    state_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """Memory traffic of all operations that compilers do not fuse."""
        return self.activation_bytes + self.score_bytes + self.weight_bytes + self.other_bytes + self.state_bytes

    def times(self, count: float) -> "Work":
        """Returns the work of ``count`` repetitions."""
        return Work(*(count * amount for amount in self))

    def plus(self, other: "Work") -> "Work":
        """Returns the sum of this and other work."""
        return Work(*map(sum, zip(self, other, strict=True)))


class Exchange(NamedTuple):
    """Collectives of one type over given mesh axes in a step: count, bytes of whole arrays, and bytes on the wire."""

    operation: str
    axes: str
    times: float
    bytes: float
    wire_bytes: float


class Counts(NamedTuple):
    """Costs of a study, counted from shapes only. They describe one device's share of a step on ``devices`` devices.

    Attributes:
      step: work of one trial's step on one device.
      evaluation: work of one evaluation on one device.
      parameters: number of trained parameters on all devices.
      held_bytes: approximate peak memory of a device for one trial's share of a batch, including intermediate results.
      equations: number of operations in the text of all compiled programs, which determines the compile time.
      devices: number of devices that share a step. The other numbers are already divided by it.
      precision: matmul precision, float32 or bfloat16.
      least_bytes: approximate memory of a device if its share is processed in the largest possible number of
        microbatches.
      exchanges: collectives of a step, if they are counted.
      mesh: names and sizes of the mesh axes of these collectives.
      streamed: whether each lane reads a separate data stream. If so, the default is one lane.
      group: number of examples that are normalized together, which a batch is not split below.
      microbatches: number of parts in which a device processes its share.
    """

    step: Work
    evaluation: Work
    parameters: int
    held_bytes: float
    equations: int
    devices: int
    precision: str
    least_bytes: float
    exchanges: tuple[Exchange, ...] | None = None
    mesh: tuple[tuple[str, int], ...] = ()
    streamed: bool = False
    group: int = 1
    microbatches: int = 1


class Verdict(NamedTuple):
    """The compiler's verdict on a study for a topology.

    Attributes:
      fits: whether the study fits in memory, or missing if compilation did not finish.
      needed_bytes, device_bytes: memory needed on a device, including all arguments, and memory available to the
        compiler.
      flops: FLOPs of a step on a device.
      exchanges: collectives of a step.
      exchange_seconds: predicted seconds of these collectives.
      unknown_loops: number of loops with an unknown trip count, which are loops over steps. Each loop body is counted
        once.
      cycles: cycles of a step in the compiler's schedule, with loops multiplied by their trip counts, if
        the compiler reports them.
      lanes: number of trials on a device.
      shards: number of devices that share a step, if the engine partitions it.
      microbatches: number of parts in which a device processes its share.
      device_kind: JAX's name for the device.
      devices: number of devices in the slice.
      how: human-readable description of the lanes and the batch partition.
      processor_seconds: CPU seconds spent on compiling.
      why: the compiler's message if the study does not fit, or the reason why the verdict is unknown.
    """

    fits: bool | None
    needed_bytes: float | None = None
    device_bytes: float | None = None
    flops: float | None = None
    exchanges: tuple[Exchange, ...] = ()
    exchange_seconds: float | None = None
    unknown_loops: int = 0
    cycles: float | None = None
    lanes: int = 1
    shards: int = 1
    microbatches: int = 1
    device_kind: str = ""
    devices: int = 0
    how: str = ""
    processor_seconds: float = 0.0
    why: str = ""
