"""A program: steps of random decoders, compiled in random layouts for eight emulated devices.

    python -m tests.harness.compiled_layouts COUNT SEED

Prints as JSON, a line for each: shape, batch, length, mesh, layout, and the counts of the compiled step.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator

import jax
import numpy as np

from harness.runners import layouts
from harness.runners.layouts import LaidOutStudy
from results.plans.layout import LayoutStudy
from results.plans.search_space import SearchSpace
from workloads.layouts.notation import Refused
from workloads.layouts.shapes import Shape

MESHES = ("a:2", "a:4", "a:8", "a:1;b:8", "a:2;b:4", "a:4;b:2", "a:2;b:2;c:2")


def drawn(seed: int) -> Iterator[LayoutStudy]:
    """Random decoders on random meshes, in layouts of one to four axes."""
    rng = np.random.default_rng(seed)

    def choice(*values: int) -> int:
        return int(rng.choice(values))

    while True:
        shape = Shape(
            choice(2, 4), choice(32, 64), choice(4, 8), choice(8, 16), choice(64, 128), choice(64, 256),
            gated=rng.random() < 0.5, tied=rng.random() < 0.5,
        )  # fmt: skip
        mesh = str(rng.choice(MESHES))
        own = [pair.split(":")[0] for pair in mesh.split(";")]
        names = rng.choice(list(shape.sizes(1, 1)), size=rng.integers(1, 5), replace=False)
        layout = ";".join(f"{name}:{rng.choice(own)}" for name in names)
        devices = int(np.prod([int(pair.split(":")[1]) for pair in mesh.split(";")]))
        yield LayoutStudy(
            "random", dataclasses.asdict(shape), choice(8, 16), choice(16, 32), mesh, layout, True, devices,
            "cpu-emulated", "v5p", "float32", "none", 1, SearchSpace({}), 0, 1,
        )  # fmt: skip


def valid(seed: int) -> Iterator[LaidOutStudy]:
    """Those of the drawn studies whose layout is accepted."""
    for study in drawn(seed):
        try:
            yield layouts.laid(study, None)
        except Refused:
            continue


def main(count: str, seed: str) -> None:
    """Prints the counts."""
    for _, one in zip(range(int(count)), valid(int(seed)), strict=False):
        study = one.study
        step = one.on(jax.devices())
        program = step.lowered(study.batch_size).compile(compiler_options=dict(layouts.UNHURRIED))
        row = layouts.accounts(one, program)
        own = {
            "shape": study.model_options,
            "batch": study.batch_size,
            "length": study.length,
            "mesh": dict(one.mesh),
            "layout": dict(one.layout),
        }
        print(json.dumps(own | {name: row[name] for name in COUNTED}), flush=True)


COUNTED = ("executed_flops", "argument_bytes", "temporary_bytes", "wire_bytes", "collectives")

if __name__ == "__main__":
    main(*sys.argv[1:])
