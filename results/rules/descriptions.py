"""Descriptions of studies, which are printed next to the answers."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from results.aliases import Json, StringMap
from results.plans import plan_columns
from results.plans.kinds import KINDS
from results.plans.plan import Plan
from results.plans.study import METRICS, Target

METRIC_TYPES = {"float": pa.float32(), "double": pa.float64()}  # by Arrow type name
_METRICS = frozenset(METRICS)


class StudyDescription(NamedTuple):
    """The description of a study in tables of answers.

    Attributes:
      study: name of the study.
      source: source of a published study, or None if this software measured it.
      dataset, model, optimizer, batch_size: names and batch size in tables. Factorizations have no batch size.
      targets: the study's own targets, as pairs of metric and value.
      metrics: measured metrics, with Arrow's names for their types.
      rows: number of measurements.
      complete, infeasible, incomplete: number of search trials with each ending.
      seconds_per_epoch: seconds per epoch in the newest run that measured them. None if there is no such run, or if its
        devices were emulated.
      kind: a key of ``results.plans.kinds.KINDS``.
      stop: condition that ends trials (see ``results.plans.plan.Plan``).
    """

    study: str
    source: str | None
    dataset: str
    model: str
    optimizer: str
    batch_size: int | None
    targets: Sequence[tuple[str, float]]
    metrics: StringMap
    rows: int
    complete: int
    infeasible: int
    incomplete: int
    seconds_per_epoch: float | None
    kind: str
    stop: str = "target"

    @property
    def is_plain(self) -> bool:
        """Returns whether all fields have valid types and values. Descriptions may come from untrusted files."""
        size = 0 if self.batch_size is None else self.batch_size
        counts = (size, self.rows, self.complete, self.infeasible, self.incomplete)
        texts = (self.study, self.kind, self.stop, self.source or "", self.dataset, self.model, self.optimizer)
        return (
            {*map(type, texts)} == {str}
            and self.kind in KINDS
            and {*map(type, counts)} == {int}
            and 0 <= min(counts) <= max(counts) < 2**31
            and self.metrics.keys() <= _METRICS
            and {*self.metrics.values()} <= METRIC_TYPES.keys()
            and all(Target(*target) for target in self.targets)
            and isinstance(self.seconds_per_epoch, float | None)
        )

    def record(self) -> Json:
        """Returns plain data. The default ``stop`` is omitted, as it was by older software."""
        content = self._asdict()
        return content if self.stop != "target" else {name: content[name] for name in content if name != "stop"}


def of_study(study: Plan, studies: pa.Table, trials: pa.Table, metrics: StringMap, rows: int) -> StudyDescription:
    """Describes a study.

    Args:
      study: the plan.
      studies, trials: the study's merged tables.
      metrics: types of the metrics in the measurements table, by name.
      rows: number of rows in the measurements table.
    """
    endings = zip(trials["role"].to_pylist(), trials["status"].to_pylist(), strict=True)
    status = [status for role, status in endings if role == "search"]
    runs = studies.select(["seconds_per_epoch", "emulated"]).to_pylist()
    timed = [run for run in runs if run["seconds_per_epoch"] is not None]
    return StudyDescription(
        study=study.name,
        kind=study.kind,
        source=study.plan().get("source"),
        **plan_columns.names(study),
        targets=[(target.metric, target.value) for target in study.search.targets],
        metrics={name: kind for name, kind in metrics.items() if name in _METRICS},
        rows=rows,
        complete=status.count("COMPLETE"),
        infeasible=status.count("INFEASIBLE"),
        incomplete=status.count("INCOMPLETE"),
        stop=study.search.stop,
        seconds_per_epoch=timed[-1]["seconds_per_epoch"] if timed and not timed[-1]["emulated"] else None,
    )
