"""Predicts the seconds of a training step from its terms, with a single set of fitted constants.

On a device, matmuls, memory traffic and communication partly overlap. On a torus, a step therefore takes longer than
any of the three, but less than their sum. On a switch, a step takes as long as the longest of the three: published
steps on GPUs do not show additional time for memory or for communication in a node. Communication between nodes
overlaps partly. ``benchmarks/step_model.py`` fits the constants
to published steps. ``docs/predictions.md`` lists all forms that were tried.

The terms of a decoder are derived from its shape and mesh. The terms of other programs are counted (see
``predictions``).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from results.bad_input import BadInput, check_choice
from results.costs import decoder_counts
from results.costs.decoder_counts import Decoder
from results.costs.hardware import HARDWARE, Hardware, peak

STATE_BYTES = 12  # bytes of a float32 parameter with both means of Adam
FAR_OVERLAP = 2.0  # like ``Constants.overlap``, for links between nodes of GPUs
NUMBER_BYTES = 2  # bytes of a weight, an activation or a gradient that is read or sent
# Mesh axes, each with its meaning in the model. Axes that run between slices start with dcn_.
AXES = {
    "data": "data",
    "fsdp": "fsdp",
    "fsdp_transpose": "fsdp",
    "tensor": "tensor",
    "context": "context",
    "expert": "expert",
    "pipeline": "pipeline",
}
BETWEEN = "between"  # the axis between slices
_COUNTS = ("length", "batch_size", "devices", "slices", "micro_batch", "virtual_stages")  # fields of a step
# All axes, starting with the one whose devices are closest to each other.
NEAREST_FIRST = ("tensor", "context", "expert", "fsdp", "data", "pipeline", BETWEEN)


class Step(NamedTuple):
    """A training step on a mesh.

    Attributes:
      decoder, length, batch_size: shape, tokens per sequence, and sequences in the global batch.
      row, devices, slices: name of the row in the hardware table, number of devices, and number of slices.
      mesh: sizes of the mesh axes: data, fsdp, tensor, context, expert and pipeline within a slice, and ``between``
        slices. The sizes multiply to ``devices``.
      precision: bf16 (or bfloat16), fp16, fp8 or int8. Attention always uses bf16 or fp16.
      kept: tensors that the backward pass does not recompute, from ``decoder_counts.NAMES``.
      micro_batch, virtual_stages: sequences per microbatch, and stages per device, if there are several pipeline
        stages.
      evaluated: number of sequences evaluated per training sequence, if the seconds include evaluations.
    """

    decoder: Decoder
    length: int
    batch_size: float
    row: str
    devices: int
    slices: int
    mesh: Mapping[str, int]
    precision: str
    kept: frozenset[str]
    micro_batch: int = 1
    virtual_stages: int = 1
    evaluated: float = 0.0


class Terms(NamedTuple):
    """The terms of a step, in seconds at the rates in the hardware table. Each is a number, or an array over steps.

    Attributes:
      products, attention: time of matmuls at the peak rate of the precision, and of attention at the peak rate of bf16.
      activations, weights: time of the memory traffic of each. Gathered weights are written and read, so their traffic
        counts twice. Scores of unblocked attention count like weights, because softmax reads and writes them again.
      links: time of communication over all directions of the torus, or into the switch.
      far: time of communication between the nodes of a switch.
      doublings: log2 of the number of slices.
      bubble: idle time of the pipeline, relative to the remaining time.
      switched: whether devices are on a switch. If so, the GPU constants apply.
    """

    products: Any
    attention: Any
    activations: Any
    weights: Any
    links: Any
    far: Any
    doublings: Any
    bubble: Any
    switched: Any


class Constants(NamedTuple):
    """The fitted constants.

    Attributes:
      products: fraction of the peak rate that matmuls reach on TPUs.
      attention: time of an attention operation, relative to a matmul operation.
      activations: number of times that the activations of matmuls pass through memory. Norms, positions and copies also
        read and write them.
      slices: relative increase in time per doubling of the number of slices.
      switched: fraction of the peak rate that matmuls reach on GPUs.
      overlap: exponent with which matmuls, memory and links are combined. With 1, they add up, and with infinity, they
        overlap fully. This constant is set by hand.
    """

    products: float
    attention: float
    activations: float
    slices: float
    switched: float
    overlap: float = 1.5


class Parts(NamedTuple):
    """Predicted seconds of a step and of its parts. Memory and links overlap with matmuls, so parts do not add up."""

    products: Any
    attention: Any
    memory: Any
    links: Any
    slices: Any
    bubble: Any
    step: Any


def check(step: Step) -> None:
    """Checks that a step can exist.

    Raises:
      BadInput: a device, precision, mesh axis or kept tensor is unknown, a size is not a positive number, or the sizes
        of the mesh do not multiply to the number of devices.
    """
    peak(step.row, step.precision)
    for axis in step.mesh:
        check_choice("mesh axis", axis, NEAREST_FIRST)
    for tensor in sorted(step.kept):
        check_choice("kept tensor", tensor, decoder_counts.NAMES)
    for name, count in {**step._asdict(), **step.mesh}.items():
        if name in (*_COUNTS, *step.mesh) and (not 1 <= count < math.inf or count != int(count)):
            raise BadInput(f"{name}={count} is not an integer of at least 1")
    size = math.prod(step.mesh.values())
    if size != step.devices:
        raise BadInput(f"mesh {dict(step.mesh)} has {size} devices, not {step.devices}. Use sizes that multiply to it.")


def terms(step: Step) -> Terms:
    """Returns the terms of a step.

    Raises:
      BadInput: the step cannot exist (see ``check``).
    """
    check(step)
    hardware, mesh = HARDWARE[step.row], step.mesh
    decoder, tensor, stages = step.decoder, mesh.get("tensor", 1), mesh.get("pipeline", 1)
    tokens = step.batch_size * step.length / step.devices
    products = decoder_counts.product_flops(decoder, step.kept)
    attention = decoder_counts.attention_passes(step.kept) * decoder_counts.attention_flops(decoder, step.length)
    traffic = decoder_counts.activation_traffic(decoder, tensor, step.kept) * tensor * tokens
    weights = decoder_counts.weight_traffic(decoder, tensor, mesh.get("expert", 1), step.kept) / stages
    bytes_each = NUMBER_BYTES / hardware.memory_bandwidth
    # An evaluation is a forward pass. It gathers weights once, where a step sends them and their gradients three times.
    with_evaluations = 1 + step.evaluated * 2 * decoder_counts.active_parameters(decoder) / products
    exchanged = 1 + step.evaluated / 3
    sent = sent_by_axis(step)
    return Terms(
        with_evaluations * tokens * products / peak(step.row, step.precision),
        with_evaluations * tokens * attention / hardware.flops,
        with_evaluations * traffic * bytes_each,
        with_evaluations * weights * bytes_each,
        exchanged * (sum(sent.values()) - sent[BETWEEN]) / (hardware.axes * hardware.link_bandwidth),
        exchanged * _far_seconds(hardware, mesh, sent),
        math.log2(step.slices),
        _bubble(step),
        hardware.axes == 1,
    )


def sent_by_axis(step: Step) -> dict[str, float]:
    """Returns the bytes that a device sends in a step, by mesh axis, with the best ring algorithm."""
    decoder, mesh = step.decoder, step.mesh
    fsdp, tensor, expert = (mesh.get(name, 1) for name in ("fsdp", "tensor", "expert"))
    stages, data, context, slices = (mesh.get(name, 1) for name in ("pipeline", "data", "context", BETWEEN))
    stored = decoder_counts.stored_parameters(decoder) / (tensor * stages * expert)
    gradients = 2 * 4 * stored / fsdp  # all-reduce of float32 gradients
    tokens = step.batch_size * step.length / step.devices
    stream = decoder.layers * tokens * decoder.width * NUMBER_BYTES
    # Two all-reduces in each pass, and one more if the attention's output is computed again.
    sums = 4 if "out" in step.kept else 5
    keys = decoder.layers * decoder.key_heads * decoder.head_width * NUMBER_BYTES * tokens
    return {
        # Weights are gathered for both passes, and their gradients are scattered.
        "fsdp": 3 * NUMBER_BYTES * stored * (fsdp - 1) / fsdp,
        "data": gradients * (data - 1) / data,
        BETWEEN: gradients * (slices - 1) / slices,
        "tensor": sums * 2 * (tensor - 1) * stream,
        "context": 3 * 2 * keys * (context - 1),
        "expert": 4 * decoder.active_experts * stream * (expert - 1) / expert,  # there and back, in both passes
    }


def _far_seconds(hardware: Hardware, mesh: Mapping[str, int], sent: Mapping[str, float]) -> float:
    """Returns the seconds of communication between nodes. Axes are placed in nodes in the order ``NEAREST_FIRST``.

    If an axis has n devices, with m of them in each node, the share (n/m − 1) / (n − 1) of the bytes that a device
    sends crosses nodes, because the devices of a node each send a part of the array. For experts, it is m times as
    much.
    """
    if hardware.node is None or hardware.far_bandwidth is None:
        return 0.0
    seconds, inner = 0.0, 1
    for axis in NEAREST_FIRST:
        size = mesh.get(axis, 1)
        node_devices = min(size, max(1, hardware.node // inner))
        if size > node_devices:
            share = (size / node_devices - 1) / (size - 1) * (node_devices if axis == "expert" else 1)
            seconds += share * sent.get(axis, 0.0) / hardware.far_bandwidth
        inner *= size
    return seconds


def held_bytes(step: Step) -> float:
    """Returns the bytes that a device holds in a step without offloading to the host and without microbatches.

    These are the float32 parameters with both Adam moments, the inputs of all blocks, and the kept tensors.
    """
    decoder, mesh = step.decoder, step.mesh
    ways = math.prod(mesh.get(name, 1) for name in ("fsdp", "tensor", "pipeline", "expert"))
    kept = [product.used * product.outer for product in decoder_counts.products(decoder) if product.name in step.kept]
    if decoder_counts.ATTENTION in step.kept:
        kept.append(decoder.layers * decoder.heads * decoder.head_width)
    tokens = step.batch_size * step.length / step.devices
    in_flight = min(1.0, mesh.get("pipeline", 1) / _microbatches(step)) if mesh.get("pipeline", 1) > 1 else 1.0
    activations = tokens * in_flight * (decoder.layers * decoder.width + sum(kept))
    return STATE_BYTES * decoder_counts.stored_parameters(decoder) / ways + NUMBER_BYTES * activations


def _microbatches(step: Step) -> float:
    """Returns the number of microbatches of a pipeline."""
    ways = math.prod(step.mesh.get(name, 1) for name in ("data", "fsdp", "between"))
    return step.batch_size / ways / step.micro_batch


def _bubble(step: Step) -> float:
    """Returns the idle time of a pipeline relative to its work: (stages − 1) / (microbatches × virtual stages)."""
    return (step.mesh.get("pipeline", 1) - 1) / (_microbatches(step) * step.virtual_stages)


def parts(of: Terms, constants: Constants) -> Parts:
    """Returns the predicted seconds of steps and of their parts."""
    reached = np.where(of.switched, constants.switched, constants.products)
    products, attention = of.products / reached, constants.attention * of.attention / reached
    memory = constants.activations * of.activations + 2 * of.weights
    power = constants.overlap
    overlapped = ((products + attention) ** power + memory**power + of.links**power) ** (1 / power)
    in_node = np.maximum(products + attention, memory)
    on_switch = np.maximum((in_node**FAR_OVERLAP + of.far**FAR_OVERLAP) ** (1 / FAR_OVERLAP), of.links)
    base = np.where(of.switched, on_switch, overlapped)
    slices, bubble = base * constants.slices * of.doublings, base * of.bubble
    return Parts(products, attention, memory, of.links, slices, bubble, base + slices + bubble)
