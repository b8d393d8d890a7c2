"""Batched lanes: what is computed against what was asked for, replaying trials of the release without training them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.run import Settings
from harness.runners import engine, program_choice
from harness.step.batch_partition import Division
from harness.step.programs import Programs
from harness.step.training import CALL_STEPS, Spans
from harness.trials import search
from results import store
from results.plans.batch_study import BatchStudy
from results.plans.kinds import of_kind
from workloads import registry

RELEASE = Path(__file__).parents[2] / "results" / "published"
BACKWARD = 2  # a step costs a forward pass and two more of the same size
MOST = {"digits": 1.7, "pydoc": 1.8}


class Replay:
    """Programs that train nothing: they count forward passes of one example, and answer with the release's metrics."""

    def __init__(self, study: BatchStudy):
        self.study = study
        tables = store.read(RELEASE, study.name, tables=("measurements",))
        rows = tables.measurements.sort_values(["trial", "step"])
        row = registry.dataset(study.dataset)
        self.metrics = registry.metrics(row)
        self.known = {
            (int(t), int(s)): np.array(m, np.float32)
            for t, s, m in zip(rows["trial"], rows["step"], rows[list(self.metrics)].to_numpy(), strict=True)
        }
        counts = {"train": row.train_examples or 0, "validation": row.evaluation_examples}
        self.evaluated = sum(min(row.evaluation_examples, counts[split]) for split in row.splits)
        everyone = search.draw(study, range(study.request.planned))
        self.ids = {trial.seed: trial.id for trial in everyone}
        self.lanes = self.computed = self.wanted = 0
        self.at: dict[int, tuple[int, int]] = {}  # by lane: seed, step

    def advance(self, carry: None, spans: Spans, upcoming: np.ndarray) -> None:
        """Counts a call: all lanes take as many steps as the one that takes most; those that start do so alone."""
        steps = spans.stop - spans.start
        assert steps.max() <= CALL_STEPS
        starts = int(np.sum((spans.start == 0) & (spans.stop > 0)))
        of_step = (1 + BACKWARD) * self.study.batch_size
        self.wanted += of_step * (int(steps.sum()) + starts)
        self.computed += of_step * (self.lanes * int(steps.max()) + starts)
        self.at |= {lane: (int(spans.seed[lane]), int(spans.stop[lane])) for lane in np.flatnonzero(steps)}

    def evaluate(self, carry: None, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The release's metrics of active lanes, which are evaluated alone; ones where a trial had been pruned."""
        self.wanted += self.evaluated * int(active.sum())
        self.computed += self.evaluated * int(active.sum())
        metrics = np.full((self.lanes, len(self.metrics)), np.nan, np.float32)
        finite = np.zeros(self.lanes, bool)
        for lane in np.flatnonzero(active):
            seed, step = self.at[int(lane)]
            metrics[lane] = self.known.get((self.ids[seed], step), np.ones(len(self.metrics)))
            finite[lane] = np.isfinite(metrics[lane]).all()
        return metrics, finite

    def programs(
        self, key: object, lanes: int, strategy: str, division: Division, source: Any
    ) -> tuple[Programs, bool]:
        """Stands in for ``programs_for``."""
        self.lanes = lanes
        functions = (self.advance, self.evaluate, lambda: None, lambda carry, lanes: carry)
        return Programs(*functions, (), self.metrics, lanes, strategy, division, CALL_STEPS, 0), True


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow, id="all")])
@pytest.mark.parametrize("dataset", MOST)
def test_batched_lanes_waste_little_of_the_release(dataset: str, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    studies = of_kind([commit.study for commit in store.catalogue(RELEASE)], "batch")
    whole_curves = [study for study in studies if study.dataset == dataset and study.pruning == "off"]
    computed = wanted = 0
    for study in whole_curves[::every]:
        replay = Replay(study)
        of_release = registry.DATASETS[dataset]._replace(version=lambda it=study: it.dataset_version)  # of any Python
        monkeypatch.setitem(registry.DATASETS, dataset, of_release)
        monkeypatch.setattr(program_choice, "programs_for", replay.programs)
        searching, planned = study.request.trials, study.request.planned
        confirming = search.draw(study, range(searching, planned))
        trials = search.draw(study, range(searching))
        record = engine.run(study, trials, Settings(lane_strategy="vmap"), confirming=lambda more=confirming: more)
        assert len(record.outcomes) == planned
        computed, wanted = computed + replay.computed, wanted + replay.wanted
    assert 1 < computed / wanted <= MOST[dataset]
