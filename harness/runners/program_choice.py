"""Chooses the number of lanes and the batch partition of a study, so that its programs fit in memory."""

import math
import time

import numpy as np

from harness.run import Settings, Source
from harness.step import layout_choices, mesh, shardings
from harness.step.batch_partition import Division, divisions, of_settings
from harness.step.programs import Programs, default_strategy, programs_for, workload_of
from harness.step.programs_key import programs_key
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from workloads import memory
from workloads.workload import Workload

DEFAULT_LANES = 32


def programs_in_memory(study: BatchStudy, settings: Settings, trials: int, source: Source) -> tuple[Programs, float]:
    """Returns programs of a study that fit in memory, and the seconds that this call spent on compiling.

    More lanes and fewer parts per batch are preferred.

    Raises:
      BadInput: a batch does not fit in memory under any allowed partition.
    """
    began = time.perf_counter()
    key = programs_key(study)
    strategy = default_strategy() if settings.lane_strategy == "auto" else settings.lane_strategy
    workload = workload_of(key, source)
    ways = candidates(study, settings, trials, workload, len(mesh.devices()), strategy)
    shardings.check(workload, ways[0][1], study.batch_size)
    free = mesh.device_bytes()
    _check_resident(study, workload, free)
    needed = 0
    per_share = 0.0
    is_new = False
    for lanes, division in ways:
        share = lanes * division.examples(study.batch_size) / division.microbatches / mesh.groups(division)
        if free is not None and per_share * share > free:
            continue
        programs, was_built = programs_for(key, lanes, strategy, division, source)
        is_new |= was_built
        needed = programs.bytes
        per_share = programs.bytes / share
        if free is None or needed <= free or len(ways) == 1:
            return programs, time.perf_counter() - began if is_new else 0.0
    _, division = ways[-1]
    named = layout_choices.choices(workload, study.batch_size, division, needed, free or 0)
    suggestion = "such as " + " or ".join(named) if named else "with shards"
    raise BadInput(
        f"batch_size={study.batch_size} of {study.dataset} needs {memory.size_text(needed)} of memory on each device, "
        f"which has {memory.size_text(free or 0)}. Divide each trial over more devices, {suggestion}."
    )


def _check_resident(study: BatchStudy, workload: Workload, free: int | None) -> None:
    """Raises BadInput before compilation if the resident training data do not fit on a device."""
    train = None if workload.feed or workload.draw else workload.shapes.train
    size = sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in train or ())
    if free is not None and size > free:
        raise BadInput(
            f"{study.dataset} keeps {memory.size_text(size)} of training data on each device, which has "
            f"{memory.size_text(free)}. Train on devices with more memory."
        )


def candidates(
    study: BatchStudy, settings: Settings, trials: int, workload: Workload, devices: int, strategy: str
) -> list[tuple[int, Division]]:
    """Returns the numbers of lanes and batch partitions to try: first with fewer lanes, then with finer partitions."""
    lanes = _lane_count(settings, strategy, trials, streamed=workload.feed is not None)
    asked = of_settings(settings)
    ways = divisions(study.batch_size, workload.group, devices, asked)
    counts = [lanes]
    if not settings.lanes:
        counts = [-(-lanes // (1 << i)) for i in range(lanes.bit_length() + 1)]
    pairs: dict[tuple[int, Division], None] = {}  # in order
    for count, division in [(count, ways[0]) for count in counts] + [(counts[-1], way) for way in ways[1:]]:
        groups = max(1, devices // division.devices)
        pairs[-(-count // groups) * groups, division] = None
    return list(pairs)


def _lane_count(settings: Settings, strategy: str, trials: int, *, streamed: bool) -> int:
    """Returns the number of lanes. A batched lane costs the same whether or not it holds a trial.

    For streamed data, each lane reads a separate stream, so the default is one lane per device group.
    """
    if settings.lanes is None and streamed:
        return 1
    if settings.lanes is not None or strategy == "map":
        return settings.lanes or DEFAULT_LANES
    return min(DEFAULT_LANES, 1 << (trials - 1).bit_length())  # rounded up: each number of lanes needs own programs
