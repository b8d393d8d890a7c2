"""Figures by name, and how they become files."""

import contextlib
import io
import itertools
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis import curves, draw, fits, steps
from analysis.curves import Curve, Points
from analysis.fits import Judged
from results.bad_input import BadInput, check_choice

PNG_DPI = 200
WITHIN_AXES = 4  # more curves have their legend beside the axes
CHARACTERS_ACROSS = 88  # of the second line of title at its full size
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "scaling-limits",  # the same picture is the same file
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": draw.INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


class Fitted(NamedTuple):
    """A curve of the store with what its fit says."""

    curve: Curve
    judged: Judged


class Picture(NamedTuple):
    """A figure to be written; ``names`` become its file name."""

    names: tuple[str, ...]
    figure: Figure


class Skipped(NamedTuple):
    """Something that could not be drawn, and why."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Row(NamedTuple):
    """A figure of the registry: what draws it from all curves of a store, and what it shows."""

    pictures: Callable[[Sequence[Fitted]], Iterator[Picture | Skipped]]
    shows: str


def steps_to_target(found: Sequence[Fitted]) -> Iterator[Picture | Skipped]:
    """One picture per curve: its points, fit, band, regimes and critical batch size."""
    for curve, judged in found:
        points, style = judged.points, draw.STYLES[0]
        if not len(points.batch_size):
            yield Skipped(f"steps_to_target of {_workload(curve)}, {_sought(curve)}", _why_nothing(points))
            continue
        figure, ax = _axes(
            _workload(curve),
            _goal(curve, [points.trials], [curve.pruned], [curve.distinction]),
            strip=judged.fit is not None,
        )
        missed, budgets = curves.unreached(curve, points)
        draw.batch_size_axes(ax, [*points.batch_size, *missed], [*points.low.clip(0.5), *points.high, *budgets])
        draw.measured(ax, points, style, "measured")
        if missed:
            draw.not_reached(ax, missed, budgets, style)
        if judged.fit:
            draw.band(ax, judged.fit, style)
            draw.fitted(ax, judged.fit, style, "fit")
            draw.regime_spans(ax, judged.fit)
            draw.perfect_scaling(ax, judged.fit.e_min)
        else:
            draw.perfect_scaling(ax, float(points.batch_size[0] * (points.low[0] + points.high[0]) / 2))
        draw.critical_batch_size(ax, judged)
        _legend(ax)
        yield Picture((curve.dataset, curve.model, curve.optimizer, *_target(curve)), figure)


def optimizers(found: Sequence[Fitted]) -> Iterator[Picture | Skipped]:
    """One picture per data set, model and target: the curves of its optimizers with their fits."""
    groups: dict[tuple[str, ...], list[Fitted]] = {}
    for one in found:
        groups.setdefault((one.curve.dataset, one.curve.model, *_target(one.curve)), []).append(one)
    for names, group in groups.items():
        workload = f"{group[0].curve.dataset} · {group[0].curve.model}"
        what = f"optimizers of {workload}, {_sought(group[0].curve)}"
        drawn = [one for one in group if len(one.judged.points.batch_size)]
        if len({one.curve.optimizer for one in drawn}) < 2:
            yield Skipped(what, "fewer than two optimizers have a curve")
            continue
        for curve, judged in (one for one in group if not len(one.judged.points.batch_size)):
            yield Skipped(f"{curve.optimizer} among {what}", _why_nothing(judged.points))
        all_points = [one.judged.points for one in drawn]
        goal = _goal(drawn[0].curve, [p.trials for p in all_points], [one.curve.pruned for one in drawn], [])
        crowded = len(drawn) > WITHIN_AXES
        figure, ax = _axes(workload, goal, strip=False, beside=crowded)
        draw.batch_size_axes(
            ax,
            [size for points in all_points for size in points.batch_size],
            [s for points in all_points for s in (*points.low.clip(0.5), *points.high)],
        )
        legend = []
        for (curve, judged), style in zip(drawn, draw.styles(), strict=False):
            name = curve.optimizer + (f" ({curve.distinction})" if curve.distinction else "")
            legend.append(draw.entry(style, f"{name}: {draw.critical_in_words(judged)}"))
            draw.measured(ax, judged.points, style, None)
            if judged.fit:
                draw.fitted(ax, judged.fit, style, None)
                draw.knee(ax, judged, style)
        options: dict[str, Any] = {"frameon": True, "framealpha": 0.8, "edgecolor": "none", "alignment": "left"}
        options |= {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if crowded else {"loc": "best"}
        ax.legend(handles=legend, title="critical batch size (ring) [90 % interval]", **options)
        yield Picture(names, figure)


FIGURES = {
    "steps_to_target": Row(
        steps_to_target, "steps to target against batch size, one picture per curve, with its regimes"
    ),
    "optimizers": Row(optimizers, "the curves of all optimizers of a workload in one picture"),
}


def listing() -> str:
    """The names of all figures with what they show."""
    width = max(map(len, FIGURES)) + 2
    return "\n".join(f"{name:{width}}{row.shows}" for name, row in FIGURES.items())


def write_all(
    folder: Path,
    out: Path,
    report: Callable[[Path | Skipped], None],
    name: str | None = None,
    asked: tuple[str, float] | None = None,
) -> None:
    """Writes the figures (or the one called ``name``) of the store at ``folder`` into ``out``.

    Args:
      report: called with every file written and with everything that could not be drawn.
      asked: metric and value of a target other than the studies' own.

    Raises:
      BadInput: there is no such figure or store, or ``out`` cannot be written.
    """
    if name is not None:
        check_choice("figure", name, FIGURES)
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; name a folder")
    tables, target = steps.load(folder, asked)
    found = [Fitted(curve, fits.of_curve(curve)) for curve in curves.curves(tables, target)]
    taken: set[str] = set()
    with matplotlib.rc_context(SETTINGS):
        for figure_name in FIGURES if name is None else [name]:
            for made in FIGURES[figure_name].pictures(found):
                if isinstance(made, Skipped):
                    report(made)
                    continue
                stem = _free(_slug((figure_name, *made.names)), taken)
                for suffix in ("png", "svg"):
                    report(_write(out / f"{stem}.{suffix}", made.figure))


def _axes(title: str, goal: str, *, strip: bool, beside: bool = False) -> tuple[Figure, Axes]:
    """A figure with one pair of axes under two lines of title, with room for a strip of regimes or for words beside."""
    width = 9.0 if beside else 6.4
    figure = Figure(figsize=(width, 4.6))
    FigureCanvasAgg(figure)
    narrower = 6.4 / width
    ax = figure.add_axes((0.115 * narrower, 0.115, 0.865 * narrower, 0.70 if strip else 0.755))
    figure.text(0.115 * narrower, 0.945, title, fontsize=11, fontweight="bold", color=draw.INK)
    size = min(9.0, 9.0 * CHARACTERS_ACROSS / len(goal))
    figure.text(0.115 * narrower, 0.898, goal, fontsize=size, color=draw.INK)
    return figure, ax


def _legend(ax: Axes) -> None:
    """Measurements first, then what was made of them, then whatever had no room for its name."""
    order = ["measured", "fit", "90 % region", "perfect scaling"]
    entries = sorted(zip(*ax.get_legend_handles_labels(), strict=True), key=lambda e: (*order, e[1]).index(e[1]))
    ax.legend(*zip(*entries, strict=True), loc="upper right")


def _workload(curve: Curve) -> str:
    return f"{curve.dataset} · {curve.model} · {curve.optimizer}"


def _why_nothing(points: Points) -> str:
    return points.refusal or "no trial reached the target at any batch size"


def _sought(curve: Curve) -> str:
    return f"{curve.target.metric} ≤ {curve.target.value:g}"


def _target(curve: Curve) -> tuple[str, str]:
    return curve.target.metric, f"{curve.target.value:g}"


def _goal(curve: Curve, trials: Sequence[int | None], pruned: Sequence[bool], more: Sequence[str]) -> str:
    """What the points are: the target, best of how many trials, pruned or not."""
    counts = sorted({count for count in trials if count})
    best = f"best of {'–'.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} trial{'s' * (counts[-1] > 1)}"
    cut = "pruned" if all(pruned) else "some pruned" if any(pruned) else "not pruned"
    told = " · ".join([_sought(curve), best, cut, *filter(None, more)])
    return textwrap.shorten(told, CHARACTERS_ACROSS * 4 // 3, placeholder=" …")


def _slug(names: tuple[str, ...]) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", name) for name in names)


def _free(stem: str, taken: set[str]) -> str:
    """``stem``, with a number if a curve that looks alike has it already."""
    numbered = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
    free = next(candidate for candidate in numbered if candidate not in taken)
    taken.add(free)
    return free


def _write(path: Path, figure: Figure) -> Path:
    """Renders first and renames last, so that nobody ever finds half a picture."""
    picture = io.BytesIO()
    if path.suffix == ".svg":
        figure.savefig(picture, format="svg", metadata={"Date": None})
    else:
        figure.savefig(picture, format="png", dpi=PNG_DPI)
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_bytes(picture.getvalue())
        hidden.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            hidden.unlink()
        raise BadInput(f"cannot write {path} ({error.strerror}); choose another --out DIR") from None
    return path
