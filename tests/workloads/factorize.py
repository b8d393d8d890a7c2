"""A program: factorizes a small graph on several CPU devices, or as one of two processes, and saves both tables.

Run as `python factorize.py CORES GATHER KERNEL OUT [PROCESS ADDRESS]`; with a process, two of them share the cores.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np


def main(
    cores: int, gather: str, kernel: str, out: str, process: int | None = None, address: str | None = None
) -> None:
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    if process is None:
        jax.config.update("jax_num_cpu_devices", cores)
    else:
        jax.config.update("jax_num_cpu_devices", cores // 2)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, num_processes=2, process_id=process)
    from graphs import ratings, with_strangers

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
