"""Descriptions of studies, beside their answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.study import METRICS, Target

METRIC_TYPES = {"float": pa.float32(), "double": pa.float64()}  # by Arrow's names for them
_METRICS = frozenset(METRICS)


class StudyDescription(NamedTuple):
    """The description of a study in tables of answers.

    Attributes:
      study: its name.
      kind: of ``results.plans.kinds.KINDS``.
      source: who published it; None if it was measured here.
      dataset, model, optimizer, batch_size: as tables show them; factorizations have no batches.
      targets: its own, pairs of metric and value.
      stop: what ends its trials, see ``results.plans.plan.Plan``.
      metrics: that it measured, with Arrow's names of their types.
      rows: number of its measurements.
      complete, infeasible, incomplete: numbers of trials of the search.
      seconds_per_epoch: of the newest run that measured it; None where there is none, or devices were emulated.
    """

    study: str
    source: str | None
    dataset: str
    model: str
    optimizer: str
    batch_size: int | None
    targets: Sequence[tuple[str, float]]
    metrics: Mapping[str, str]
    rows: int
    complete: int
    infeasible: int
    incomplete: int
    seconds_per_epoch: float | None
    kind: str
    stop: str = "target"

    @property
    def is_plain(self) -> bool:
        """Whether all fields have the types they must, wherever they were read."""
        counts = (self.batch_size or 0, self.rows, self.complete, self.infeasible, self.incomplete)
        texts = (self.study, self.kind, self.stop, self.source or "", self.dataset, self.model, self.optimizer)
        return (
            {*map(type, texts)} == {str}
            and self.kind in KINDS
            and {*map(type, counts)} == {int}
            and 0 <= min(counts) <= max(counts) < 2**31
            and self.metrics.keys() <= _METRICS
            and {*self.metrics.values()} <= METRIC_TYPES.keys()
            and all(Target(*own) for own in self.targets)
            and isinstance(self.seconds_per_epoch, float | None)
        )

    def record(self) -> dict[str, Any]:
        """Plain data, without ``stop`` where trials end at their targets, as all did once."""
        content = self._asdict()
        return content if self.stop != "target" else {name: content[name] for name in content if name != "stop"}


def of_study(
    study: Plan, studies: pa.Table, trials: pa.Table, metrics: Mapping[str, str], rows: int
) -> StudyDescription:
    """The description of a study in tables of answers.

    Args:
      study: the plan.
      studies, trials: its merged tables.
      metrics, rows: of its table of measurements.
    """
    endings = zip(trials["role"].to_pylist(), trials["status"].to_pylist(), strict=True)
    status = [status for role, status in endings if role == "search"]
    runs = studies.select(["seconds_per_epoch", "emulated"]).to_pylist()
    timed = [run for run in runs if run["seconds_per_epoch"] is not None]
    return StudyDescription(
        study=study.name,
        kind=study.kind,
        source=study.source,
        dataset=study.dataset,
        model=study.model_label,
        optimizer=study.optimizer,
        batch_size=study.batch_size,
        targets=[(target.metric, target.value) for target in study.targets],
        metrics={name: kind for name, kind in metrics.items() if name in _METRICS},
        rows=rows,
        complete=status.count("COMPLETE"),
        infeasible=status.count("INFEASIBLE"),
        incomplete=status.count("INCOMPLETE"),
        stop=study.stop,
        seconds_per_epoch=timed[-1]["seconds_per_epoch"] if timed and not timed[-1]["emulated"] else None,
    )
