"""Reads configurations into plans of kind ``cores``, and prepares the data of these plans."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from harness.processes import multihost, processors
from results.bad_input import BadInput, check_choice, nearest, number_of
from results.grouping import grouped
from results.plans.factorization import Factorization
from results.plans.search_space import SearchSpace
from sweeps.configured_study import ABSENT, DATA, DEVICES, Config, ConfiguredStudy, Say, ranges
from workloads import memory, ratings_sources
from workloads.factorization import fused, prepared
from workloads.factorization.ratings import Ratings, RatingsSource, halves

DEFAULT_TRIALS = 16  # trials per search
MOST_EMULATED = 64  # cores, because XLA's threads deadlock with several hundred
EVALUATED = 2  # minimum number of rows with held-out links
# Measured memory of training: the process, each link while routes are built, the tables and their copies.
BYTES, BYTES_PER_LINK, TABLES, COPIES = 500_000_000, 30, 4, 2
HUB_COPIES = 2  # copies of the matrices of split rows: measured 1.0 to 1.6 with 1 and 2 cores and all solvers


def read(config: Config) -> ConfiguredStudy[Factorization]:
    """Returns the study of a factorization's configuration, and its data source (registry name and options).

    Raises:
      BadInput: the configuration is invalid. Checks that would have to read the data are omitted.
    """
    ratings = config["ratings"]
    als = config["als"]
    absent = config.get(ABSENT, ())
    source = _ratings_source(ratings, data_needed=DATA not in absent)
    if config["launcher"]["name"] != "hosts" and DEVICES not in absent:  # hosts check this after connecting
        _check_cores(config["cores"])
    if als["kernel"] == "fused" and DEVICES not in absent:
        _check_fused()
    tuned = {name: als[name] for name in ("unobserved_weight", "norm_penalty")}
    space = SearchSpace.from_plan(ranges(tuned))
    trials = config["trials"]
    if trials is None:
        trials = 1 if all(len(ranged.values) == 1 for ranged in space.values()) else DEFAULT_TRIALS
    study = Factorization(
        dataset=source.name,
        dataset_version=_version(source, data_needed=DATA not in absent),
        dataset_options=ratings_sources.generated_from(ratings),
        space=space,
        seed=config["seed"],
        trials=trials,
        cores=config["cores"],
        **{name: als[name] for name in als if name not in tuned},
    )
    return ConfiguredStudy(study, dict(ratings))


def make_ready(studies: Iterable[ConfiguredStudy[Factorization]], say: Say) -> None:
    """Prepares the data sets of studies on disk.

    Args:
      studies: studies that will run.
      say: called with messages for the user about the data and emulated cores.

    Raises:
      BadInput: the data cannot be used or do not match a study.
    """
    by_data = grouped(studies, lambda configured: (configured.study.dataset, configured.study.dataset_version))
    lines = []
    for group in by_data.values():
        data = ratings_sources.source(group[0].source or {})
        ratings = prepared.load(data)
        lines += [f"{data.name}: {line}" for line in ratings.lines()]
        for configured in group:
            _check_size(configured.study, ratings)
            if configured.study.kernel == "fused":
                fused.library(configured.study.dim)
    emulated = sorted(
        {configured.study.cores for group in by_data.values() for configured in group if _is_emulated(configured.study)}
    )
    if emulated:
        cores = f"cores={','.join(map(str, emulated))} on {len(processors.physical_cores())} physical cores"
        lines.append(f"{cores} are emulated. Their times do not show the speed of real cores.")
    for line in lines:
        say(line)


def notes(studies: Sequence[Factorization]) -> list[str]:
    """Returns notes on the studies, for users who read their plans."""
    return ["a step of als is an epoch, and its studies run one after another"]


def examples(configured: ConfiguredStudy[Factorization]) -> float:
    """Returns the number of links in an epoch of a study, or infinity if unknown because the data are not prepared."""
    size = prepared.size(ratings_sources.source(configured.source or {}))
    return math.inf if size is None else float(size.links)


def _version(source: RatingsSource, *, data_needed: bool) -> str:
    """Returns the version of ratings, or a placeholder if the ratings are missing but their size is known."""
    try:
        return source.version()
    except BadInput:
        if data_needed or source.size() is None:
            raise
        return "not here"


def _ratings_source(ratings: Config, *, data_needed: bool) -> RatingsSource:
    check_choice("ratings", ratings["name"], ratings_sources.RATINGS)
    names = ratings_sources.options(ratings["name"])
    for key in ratings:
        if key != "name" and key not in names:
            raise BadInput(f"ratings.{key}: {ratings['name']} does not have this option; {nearest(key, names)}")
    try:
        source = ratings_sources.source(ratings)
    except BadInput as error:
        about_an_option = str(error).split()[0] in names
        raise BadInput(f"ratings.{error}" if about_an_option else str(error)) from None
    if data_needed or source.size() is None:
        prepared.check(source)
    return source


def _check_cores(cores: int | None) -> None:
    kind, devices = processors.accelerators()
    if devices and cores is not None and cores > devices:
        raise BadInput(f"cores={cores}: this machine has {devices} {kind} devices. Use at most cores={devices}.")
    physical = len(processors.physical_cores())
    limit = max(MOST_EMULATED, physical)
    if not devices and cores is not None and cores > limit:
        cores_here = number_of(physical, "physical core")
        raise BadInput(f"cores={cores}: this machine has {cores_here}. Use at most cores={limit}.")


def _check_fused() -> None:
    kind, devices = processors.accelerators()
    if devices:
        raise BadInput(f"als.kernel=fused is for CPUs, but this machine uses {kind}. Use als.kernel=xla.")
    fused.compiler()


def _is_emulated(study: Factorization) -> bool:
    return not processors.accelerators()[1] and _cores_here(study) > len(processors.physical_cores())


def _cores_here(study: Factorization) -> int:
    return -(-study.cores // multihost.place()[1])


def _check_size(study: Factorization, ratings: Ratings) -> None:
    """Raises BadInput if there are too few test rows, or if the tables are wider than the matrix or exceed memory."""
    rows = sum(map(len, halves(ratings.history, ratings.heldout).values()))
    if rows < EVALUATED:
        raise BadInput(
            f"{study.dataset} has a history and held-out links in only {number_of(rows, 'row')}. Half of these rows "
            f"are validation and half are test, so at least {EVALUATED} are needed."
        )
    sides = {"rows": ratings.train.row_count, "columns": ratings.train.column_count}
    smaller = min(sides, key=lambda side: sides[side])
    if study.dim > sides[smaller]:
        raise BadInput(
            f"als.dim={study.dim} is larger than the smaller side of {study.dataset}, {sides[smaller]:,} {smaller}. "
            f"Use at most als.dim={sides[smaller]}."
        )
    memory.require(*_memory_needed(study, ratings))


def _memory_needed(study: Factorization, ratings: Ratings) -> tuple[int, str, str]:
    """Returns a study's approximate peak memory, its description and a remedy, for ``memory.require``."""
    from workloads.factorization.training import GATHER_BYTES, hub_bytes  # imports JAX

    sides = ratings.train.row_count, ratings.train.column_count
    row = study.dim * np.dtype(np.float32 if study.table_dtype == "float32" else np.float16).itemsize
    copy = {"all_gather": max(sides) * row, "all_to_all": 0, "auto": min(max(sides) * row, GATHER_BYTES)}[study.gather]
    bytes_per_core = COPIES * copy + HUB_COPIES * hub_bytes(ratings, study)
    of_cores = _cores_here(study) * bytes_per_core if not processors.accelerators()[1] else 0
    needed = BYTES + TABLES * sum(sides) * row + of_cores + BYTES_PER_LINK * len(ratings.train.columns)
    task = f"factorizing {study.dataset} with als.dim={study.dim} on cores={study.cores}"
    return needed, task, "take a smaller als.dim, fewer cores or table_dtype=bfloat16"
