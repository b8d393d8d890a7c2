"""A small graph for tests: two communities' worth of links, hubs, empty rows, and rows to be folded in.

As a program it factorizes the graph on several CPU devices, or as one of two processes, and saves both tables. Run as
`python graphs.py CORES GATHER KERNEL OUT [PROCESS ADDRESS]`; with a process, two of them share the cores.
"""

import sys

import numpy as np

from workloads.factorization.links import Links, Pairs
from workloads.factorization.ratings import Ratings


def from_pairs(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> tuple[Links, int]:
    """Links from pairs of ids, and how many were duplicates."""
    pairs = Pairs()
    pairs.add(rows, columns, "test")
    return pairs.links(shape)


def ratings(rows: int = 300, columns: int = 240, links: int = 6000, seed: int = 0) -> Ratings:
    """Power-law degrees over ten communities; the last tenth of the rows is held out of training."""
    rng = np.random.default_rng(seed)
    row = np.minimum((rng.pareto(1.0, links) * rows / 20).astype(np.int64), rows - 3)
    column = (row * 7 + 10 * np.minimum((rng.pareto(1.0, links) * 3).astype(np.int64), columns)) % (columns - 2)
    folded = row % 10 == 9
    train, merged = from_pairs(row[~folded], column[~folded], (rows, columns))
    own, _ = from_pairs(row[folded] // 10, column[folded], (rows // 10, columns))
    in_row = np.repeat(np.arange(own.row_count), own.lengths)
    hidden = rng.random(len(in_row)) < 0.3
    parts = [from_pairs(in_row[part], own.columns[part], (own.row_count, columns))[0] for part in (~hidden, hidden)]
    return Ratings(train, *parts, merged)


def with_strangers(data: Ratings) -> Ratings:
    """And two evaluation rows without a history, then two with one that no training row shares: nobody ranks for them.

    The histories of the last two are the last two columns of ``ratings``, which have no links in training.
    """
    unknown = data.history.column_count - np.array([2, 1])
    assert not np.isin(unknown, data.train.columns).any()

    def more(links: Links, lengths: list[int], columns: np.ndarray) -> Links:
        starts = np.concatenate([links.starts, links.starts[-1] + np.cumsum(lengths)])
        return Links(starts, np.concatenate([links.columns, columns]).astype(np.int32), links.column_count)

    history = more(data.history, [0, 0, 1, 1], unknown)
    return data._replace(history=history, heldout=more(data.heldout, [1, 1, 1, 1], np.array([3, 60, 7, 90])))


def dense(links: Links) -> np.ndarray:
    """The links as float64[rows, columns] of zeros and ones."""
    matrix = np.zeros((links.row_count, links.column_count))
    matrix[np.repeat(np.arange(links.row_count), links.lengths), links.columns] = 1
    return matrix


def main(
    cores: int, gather: str, kernel: str, out: str, process: int | None = None, address: str | None = None
) -> None:
    """Factorizes the graph and saves both tables."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    if process is None:
        jax.config.update("jax_num_cpu_devices", cores)
    else:
        jax.config.update("jax_num_cpu_devices", cores // 2)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, num_processes=2, process_id=process)
    from results.als import Als
    from workloads.factorization.half_epoch import AXIS, Weights
    from workloads.factorization.training import Training

    mesh = jax.make_mesh((cores,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    als = Als(dim=16, cg_steps=3, gather=gather, kernel=kernel, epochs=3)
    training = Training(with_strangers(ratings()), als, mesh, chunk_slots=128)
    weights = Weights(jnp.float32(0.01), jnp.float32(0.02))
    tables = training.start(seed=0)
    for _ in range(3):
        tables = training.column_half(training.row_half(tables, weights), weights)
    evaluated = training.evaluate(tables, weights)
    strangers = training.ranking(tables, weights)[-2:]
    rows, columns = training.in_order(tables)
    if not process:
        np.savez(out, rows=rows, columns=columns, strangers=strangers, **evaluated)


if __name__ == "__main__":
    first, second, third, fourth, *others = sys.argv[1:]
    main(int(first), second, third, fourth, *([int(others[0]), others[1]] if others else []))
