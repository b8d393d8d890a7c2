"""Charts of factorizations: seconds per epoch against cores, and recall by solver, number format and metaparameters."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from analysis import text
from analysis.cores import core_counts, measured_factorizations
from analysis.cores.core_counts import CoreCurve
from analysis.cores.measured_factorizations import SPLITS, MeasuredFactorization
from analysis.figures import recall_figures, scaling_figures
from analysis.plotting import labels, ticks
from analysis.plotting.ticks import Ends
from analysis.report import charts
from analysis.report.charts import Json, LegendChart
from results.grouping import grouped

APART = 5.0  # the axis of seconds is logarithmic if the slowest curve takes over this multiple of the fastest


def core_charts(studies: Sequence[MeasuredFactorization]) -> list[LegendChart]:
    """Returns all charts of these factorizations."""
    return [*over_cores(studies), *over_seconds(studies), *over_formats(studies), *over_trials(studies)]


def notes(studies: Sequence[MeasuredFactorization]) -> list[str]:
    """Returns notes on all charts, one sentence each."""
    words = measured_factorizations.notes(studies)
    if studies and not _curves(studies):
        words.append("no factorization was timed on two numbers of real cores, so scaling over cores is not measured")
    return list(map(text.sentence, words))


def _curves(studies: Sequence[MeasuredFactorization]) -> list[CoreCurve]:
    return [curve for curve in core_counts.curves(studies) if len(curve.members) >= scaling_figures.FEWEST]


def over_cores(studies: Sequence[MeasuredFactorization]) -> Iterator[LegendChart]:
    """Yields charts of seconds per epoch against cores, one per data size and device. Emulated cores are omitted."""
    alike = grouped(_curves(studies), lambda curve: (labels.size(curve.representative), curve.representative.device))
    for (size, device), curves in alike.items():
        names = labels.distinguish([curve.representative for curve in curves], always=2)
        named = list(zip(names, curves, strict=True))
        mark_of = charts.assign_marks(names)
        points = [row for name, curve in named for row in _timed(name, curve)]
        fits = [row for name, curve in named for row in _law(name, curve)]
        across = ticks.limits([row["x"] for row in points], 0.4, 0.4, least=2)
        up = ticks.limits([row[end] for row in points for end in ("low", "high")], 0.6, 0.5)
        dataset = curves[0].representative.study.dataset
        yield LegendChart(
            f"Seconds per epoch on {device or 'an unknown device'}",
            text.joined(dataset, size, "medians, with the middle half of the epochs"),
            mark_of,
            {
                "spec": charts.cores(mark_of, across, up),
                "always": {"points": points, "fits": fits, "perfect": [_ideal(curve, across) for curve in curves]},
            },
            [member for curve in curves for member in curve.members],
            [f"{name}: {_verdict(curve)}" for name, curve in named],
        )


def over_seconds(studies: Sequence[MeasuredFactorization]) -> Iterator[LegendChart]:
    """Yields charts of recall against solve time, with one series per solver."""
    for group in recall_figures.by_solver(studies):
        first = group[0]
        cores = labels.span([first.study.cores], "core")
        title = f"Solvers: d = {first.study.dim}, {labels.formats(first)}, {cores}"
        yield _courses(title, group, [labels.solver(factorization) for factorization in group], True)


def over_formats(studies: Sequence[MeasuredFactorization]) -> Iterator[LegendChart]:
    """Yields charts of recall against epochs, with one series per number format."""
    for group in recall_figures.by_format(studies):
        first = group[0]
        norms = first.study.space["norm_penalty"].values
        ridge = f", λ = {norms[0]:g}" if len(norms) == 1 else ""
        title = f"Number formats: d = {first.study.dim}, {labels.solver(first)}{ridge}"
        yield _courses(title, group, [labels.formats(factorization) for factorization in group], False)


def over_trials(studies: Sequence[MeasuredFactorization]) -> Iterator[LegendChart]:
    """Yields charts of recall in the plane of unobserved weight and norm penalty."""
    for members in recall_figures.by_trial(studies):
        first = members[0]  # the trials are the same for all core counts
        last, rows, split = first.last, [], SPLITS[first.chosen_by]
        for trial, row in first.trials.iterrows():
            point = {"x": float(row["unobserved_weight"]), "y": float(row["norm_penalty"])}
            diverged = row["status"] == "INFEASIBLE"
            recall = float(last[first.chosen_by].get(trial, np.nan))
            if not diverged and not np.isfinite(recall):
                continue
            end = "diverged" if diverged else f"Recall@20 of {split}: {recall:.4f}"
            lines = [
                f"trial {trial}",
                f"α: {point['x']:.3g}",
                f"λ: {point['y']:.3g}",
                end,
                f"study: {first.study.name}",
            ]
            rows.append(
                point
                | {"label": "\n".join(lines), "best": int(trial == first.chosen)}
                | ({"diverged": 1} if diverged else {"recall": recall})
            )
        spaces = (first.study.space["unobserved_weight"], first.study.space["norm_penalty"])
        log = tuple(space.scale not in ("LINEAR", "INTEGER") for space in spaces)
        conclusions = []
        if first.chosen is not None:
            best = first.last.loc[first.chosen]
            conclusions.append(
                f"Best of {len(first.trials)} trials: {recall_figures.recalls(first, 'Recall@20')}, at unobserved "
                f"weight α = {best['unobserved_weight']:.2g} and norm penalty λ = {best['norm_penalty']:.2g} (ringed)."
            )
        yield LegendChart(
            f"Tuning: d = {first.study.dim}, {labels.solver(first)}",
            text.joined(first.study.dataset, labels.size(first), labels.span([first.study.epochs], "epoch")),
            {},
            {
                "spec": charts.plane("unobserved weight α", "norm penalty λ", (log[0], log[1]), f"Recall@20, {split}"),
                "always": {"points": rows},
            },
            members,
            conclusions,
        )


def _courses(title: str, group: Sequence[MeasuredFactorization], names: Sequence[str], timed: bool) -> LegendChart:
    """Returns the recall of one trial, the best member's best trial, for each member of ``group``."""
    best = recall_figures.best_of(group)
    trial, mark_of = recall_figures.trial_of(best), charts.assign_marks(names)
    rows: list[Json] = []
    conclusions: list[str] = []
    for factorization, name in zip(group, names, strict=True):
        epochs = factorization.epochs_of(trial)
        across = epochs["elapsed"] if timed else epochs["epoch"]
        for x, recall, epoch in zip(across, epochs["recall_20"], epochs["epoch"], strict=True):
            if np.isfinite(x) and np.isfinite(recall):
                seconds = [f"seconds of solving: {text.number(x)}"] if timed else []
                lines = [
                    name,
                    f"epoch: {epoch}",
                    f"Recall@20: {recall:.4f}",
                    *seconds,
                    f"study: {factorization.study.name}",
                ]
                rows.append({"series": name, "x": float(f"{x:.5g}"), "y": float(recall), "label": "\n".join(lines)})
        if factorization.trials["status"].get(trial) == "INFEASIBLE":
            last = epochs["epoch"].iloc[-1] if len(epochs) else factorization.study.epochs
            conclusions.append(f"{name}: diverged by epoch {last}.")
        elif len(epochs):
            pace = f"{text.number(float(epochs['seconds'].median()))} s per epoch, " if timed else ""
            conclusions.append(f"{name}: {pace}Recall@20 {epochs['recall_20'].iloc[-1]:.4f} after the last epoch.")
    lasts = [max(row["x"] for row in rows if row["series"] == name) for name in {row["series"] for row in rows}]
    log = timed and bool(lasts) and max(lasts) > APART * min(lasts) > 0
    row = best.trials.loc[trial]
    choice = f"α = {row['unobserved_weight']:.2g}, λ = {row['norm_penalty']:.2g}"
    spec = charts.courses(mark_of, "seconds of solving" if timed else "epoch", log)
    goal = text.joined(best.study.dataset, labels.size(best), choice)
    return LegendChart(title, goal, mark_of, {"spec": spec, "always": {"points": rows}}, group, conclusions)


def _verdict(curve: CoreCurve) -> str:
    """Returns the verdict on a curve over cores as one paragraph."""
    return re.sub(r"\n(?=[A-Z])", ". ", scaling_figures.verdict(curve)).replace("\n", " ")


def _timed(name: str, curve: CoreCurve) -> Iterator[Json]:
    for member, middle in zip(curve.members, curve.seconds.tolist(), strict=True):
        low, high = np.quantile(member.seconds, (0.25, 0.75)).tolist()
        count = labels.span([len(member.seconds)], "epoch")
        spread = f"median of {count}, middle half {text.number(low)} … {text.number(high)}"
        lines = [
            name,
            f"cores: {member.study.cores}",
            f"seconds per epoch: {text.number(middle)}, {spread}",
            f"Recall@20: {member.result('recall_20'):.4f}",
            f"study: {member.study.name}",
        ]
        point = {"x": member.study.cores, "y": middle, "low": low, "high": high}
        yield {"series": name, "label": "\n".join(lines)} | {k: float(f"{v:.5g}") for k, v in point.items()}


def _law(name: str, curve: CoreCurve) -> Iterator[Json]:
    if curve.fit:
        across = np.geomspace(curve.cores[0], curve.cores[-1], 41)
        for x, y in zip(across.tolist(), curve.fit.seconds(across).tolist(), strict=True):
            yield {"series": name, "x": float(f"{x:.5g}"), "y": float(f"{y:.5g}")}


def _ideal(curve: CoreCurve, across: Ends) -> Json:
    return charts.constant_product(float(curve.seconds[0] * curve.cores[0]), across)
