"""Factorizations: from a composed configuration to plans of kind ``cores``, and their data made ready."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from harness import multihost, processors
from results.bad_input import BadInput, check_choice, nearest, number_of
from results.plans.factorization import Factorization
from results.plans.search_space import SearchSpace
from sweeps.configured_study import ABSENT, DATA, DEVICES, ConfiguredStudy, ranges
from workloads import memory, registry
from workloads.factorization import fused, prepared
from workloads.factorization.ratings import Ratings, RatingsSource, halves

DEFAULT_TRIALS = 16  # of a search
MOST_EMULATED = 64  # cores; with several hundred, XLA's threads wait for each other for ever
EVALUATED = 2  # rows with held-out links, at least
# Memory of a training, as measured: of itself, of a link while its routes are made, and of tables and their copies.
BYTES, BYTES_PER_LINK, TABLES, COPIES = 500_000_000, 30, 4, 2
HUB_COPIES = 2  # of the matrices of rows that are split: 1.0 to 1.6 measured, with 1 core and 2, by any solver


def read(config: Mapping[str, Any]) -> ConfiguredStudy[Factorization]:
    """The study of a configuration that factorizes, and its ratings: their name in the registry and its options.

    Raises:
      BadInput: for anything wrong with it that can be told without reading the data.
    """
    ratings, als = config["ratings"], config["als"]
    absent = config.get(ABSENT, ())
    source = _ratings_source(ratings, data_needed=DATA not in absent)
    if config["launcher"]["name"] != "hosts" and DEVICES not in absent:  # whose devices are counted when all have come
        _check_cores(config["cores"])
    if als["kernel"] == "fused" and DEVICES not in absent:
        _check_fused()
    tuned = {name: als[name] for name in ("unobserved_weight", "norm_penalty")}
    space = SearchSpace.from_plan(ranges(tuned))
    fixed = all(len(ranged.values) == 1 for ranged in space.values())
    study = Factorization(
        dataset=source.name,
        dataset_version=_version(source, data_needed=DATA not in absent),
        dataset_options=registry.generated_from(ratings),
        space=space,
        seed=config["seed"],
        trials=(1 if fixed else DEFAULT_TRIALS) if config["trials"] is None else config["trials"],
        cores=config["cores"],
        **{name: als[name] for name in als if name not in tuned},
    )
    return ConfiguredStudy(study, dict(ratings))


def make_ready(studies: Iterable[ConfiguredStudy[Factorization]], say: Callable[[str], None]) -> None:
    """Prepares the data of all studies on disk, once each.

    Args:
      studies: any.
      say: takes lines for the user about the data, and about emulated cores.

    Raises:
      BadInput: for data that cannot be used, and studies that do not go with theirs.
    """
    by_data: dict[tuple[str, str], list[ConfiguredStudy[Factorization]]] = {}
    for one in studies:
        by_data.setdefault((one.study.dataset, one.study.dataset_version), []).append(one)
    lines: list[str] = []
    for group in by_data.values():
        data = registry.ratings(group[0].source or {})
        ratings = prepared.load(data)
        lines += [f"{data.name}: {line}" for line in ratings.lines()]
        for one in group:
            _check_size(one.study, ratings)
            if one.study.kernel == "fused":
                fused.library(one.study.dim)
    emulated = sorted({one.study.cores for group in by_data.values() for one in group if _is_emulated(one.study)})
    if emulated:
        what = f"cores={','.join(map(str, emulated))} on {len(processors.physical_cores())} physical cores"
        lines.append(f"{what} are emulated: times will say nothing about speed")
    for line in lines:
        say(line)


def notes(studies: Sequence[Factorization]) -> list[str]:
    """Notes for a reader of their plans."""
    return ["a step of als is an epoch; its studies run one after the other"]


def links(one: ConfiguredStudy[Factorization]) -> float:
    """How many links an epoch of a study goes over; infinity where nobody knows without preparing the data."""
    size = prepared.size(registry.ratings(one.source or {}))
    return math.inf if size is None else float(size.links)


def _version(source: RatingsSource, *, data_needed: bool) -> str:
    """The version of ratings; of those that are not here, but whose size is known, a name that none has."""
    try:
        return source.version()
    except BadInput:
        if data_needed or source.size() is None:
            raise
        return "not here"


def _ratings_source(ratings: Mapping[str, Any], *, data_needed: bool) -> RatingsSource:
    check_choice("ratings", ratings["name"], registry.RATINGS)
    known = registry.ratings_options(ratings["name"])
    for key in ratings:
        if key != "name" and key not in known:
            raise BadInput(f"ratings.{key}: {ratings['name']} takes no such option; {nearest(key, known)}")
    try:
        source = registry.ratings(ratings)
    except BadInput as error:
        about_an_option = str(error).split()[0] in known
        raise BadInput(f"ratings.{error}" if about_an_option else str(error)) from None
    if data_needed or source.size() is None:
        prepared.check(source)
    return source


def _check_cores(cores: int | None) -> None:
    kind, devices = processors.accelerators()
    if devices and cores is not None and cores > devices:
        raise BadInput(f"cores={cores}: this machine shows {devices} {kind} devices; at most cores={devices}")
    physical = len(processors.physical_cores())
    most = max(MOST_EMULATED, physical)
    if not devices and cores is not None and cores > most:
        raise BadInput(f"cores={cores}: this machine has {number_of(physical, 'physical core')}; at most cores={most}")


def _check_fused() -> None:
    kind, devices = processors.accelerators()
    if devices:
        raise BadInput(f"als.kernel=fused is for CPUs, and this machine computes on {kind}; use als.kernel=xla")
    fused.compiler()


def _is_emulated(study: Factorization) -> bool:
    return not processors.accelerators()[1] and _cores_here(study) > len(processors.physical_cores())


def _cores_here(study: Factorization) -> int:
    return -(-study.cores // multihost.place()[1])


def _check_size(study: Factorization, ratings: Ratings) -> None:
    """Raises BadInput if there is nothing to test with, tables are wider than the matrix, or do not fit in memory."""
    rows = sum(map(len, halves(ratings.history, ratings.heldout).values()))
    if rows < EVALUATED:
        raise BadInput(
            f"{study.dataset} has a history and held-out links in only {rows} row{'s' * (rows != 1)}; half of such "
            f"rows are validation and half are test, so there must be {EVALUATED} or more"
        )
    sides = {"rows": ratings.train.row_count, "columns": ratings.train.column_count}
    smaller = min(sides, key=lambda side: sides[side])
    if study.dim > sides[smaller]:
        raise BadInput(
            f"als.dim={study.dim} is larger than the smaller side of {study.dataset}, {sides[smaller]:,} {smaller}; "
            f"at most als.dim={sides[smaller]}"
        )
    memory.require(*_memory_needed(study, ratings))


def _memory_needed(study: Factorization, ratings: Ratings) -> tuple[int, str, str]:
    """The memory a study takes at its peak, about, in words for ``memory.require``."""
    from workloads.factorization.training import GATHER_BYTES, hub_bytes

    sides = ratings.train.row_count, ratings.train.column_count
    row = study.dim * np.dtype(np.float32 if study.table_dtype == "float32" else np.float16).itemsize
    copy = {"all_gather": max(sides) * row, "all_to_all": 0, "auto": min(max(sides) * row, GATHER_BYTES)}[study.gather]
    bytes_per_core = COPIES * copy + HUB_COPIES * hub_bytes(ratings, study)  # by every core meanwhile
    of_cores = _cores_here(study) * bytes_per_core if not processors.accelerators()[1] else 0
    needed = BYTES + TABLES * sum(sides) * row + of_cores + BYTES_PER_LINK * len(ratings.train.columns)
    what = f"factorizing {study.dataset} with als.dim={study.dim} on cores={study.cores}"
    return needed, what, "take a smaller als.dim, fewer cores or table_dtype=bfloat16"
