"""A program: layouts of a step on eight emulated devices, as the runner of layouts counts and runs them.

    python -m tests.harness.laid MODEL BATCH LENGTH random COUNT SEED
    python -m tests.harness.laid MODEL BATCH LENGTH given 'MESH|LAYOUT|STRICT' ...

Prints as JSON, a line for each: mesh, layout, and the row of its last step, with all losses.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator

import numpy as np

from analysis.measured_layouts import predicted
from harness.run import Record
from harness.runners import layouts
from results.plans.layout import LayoutStudy
from results.plans.search_space import SearchSpace
from results.plans.study import Trial
from workloads.layouts.shapes import SHAPES

MESHES = ("a:8", "a:2;b:4", "a:4;b:2", "a:2;b:2;c:2", "a:1;b:8")


def drawn(count: int, seed: int, axes: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Meshes, and layouts of up to four axes, many of which cannot be."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        mesh = str(rng.choice(MESHES))
        names = rng.choice(axes, size=rng.integers(0, 5), replace=False)
        own = [pair.split(":")[0] for pair in mesh.split(";")]
        yield mesh, ";".join(f"{name}:{rng.choice(own)}" for name in names), True


def main(model: str, batch: str, length: str, how: str, *words: str) -> None:
    """Prints what was found."""
    shape, records = SHAPES[model], list[Record]()
    axes = list(shape.sizes(int(batch), int(length)))
    given = (word.split("|") for word in words)
    each = (
        drawn(int(words[0]), int(words[1]), axes) if how == "random" else ((m, s, t == "strict") for m, s, t in given)
    )
    for mesh, layout, strict in each:
        study = LayoutStudy(
            model,
            dataclasses.asdict(shape),
            int(batch),
            int(length),
            mesh,
            layout,
            strict,
            8,
            "cpu-emulated",
            "v5p",
            "float32",
            "none",
            2,
            SearchSpace({}),
            0,
            1,
        )
        layouts.run(study, [Trial(0, 5, {})], None, lambda progress: None, records.append)
        metrics = records[-1].metrics
        row = {name: values[-1] for name, values in metrics.items() if name != "train_loss"}
        if row["refusal"] is None:
            row |= predicted(study, row)
        losses = [float(loss) for loss in metrics.get("train_loss", ())]
        print(json.dumps({"mesh": mesh, "layout": layout, "losses": losses, **row}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
