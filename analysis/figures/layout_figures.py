"""Figures of layouts: cost against bytes sent, memory against time, predicted against measured, and published ones.

A time is measured where it was, and else predicted, and every axis says which; emulated devices have no times.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from analysis.measured_layouts import MeasuredLayout
from analysis.plotting import draw
from analysis.plotting.draw import GRID, INK, Style
from analysis.plotting.picture import Picture, Pictures, Skipped, axes
from results.papers import published_numbers
from results.plans.layout import DEVICE

REPEATED = 1.005  # of a redundancy, from which devices repeat each other's work
SPLITS = (  # from, to, and what that is called
    (1.0, REPEATED, "no device repeats another"),
    (REPEATED, 2.005, "up to twice the work"),
    (2.005, math.inf, "more"),
)
SOURCES = {"kempnerforge": "KempnerForge", "maxtext": "MaxText", "maxtext-2024": "MaxText 2024"}
EDGE: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6}
NAMED = 5  # layouts that are named on a picture


def cost(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Seconds of a step against the bytes that a device sends, split by redundancy; a picture per model and engine."""
    for title, names, members in groups(layouts):
        seconds, how = seconds_of(members)
        sent = np.array([one.number("wire_bytes") for one in members])
        if not np.isfinite(seconds).any():
            yield Skipped(title, "no seconds were predicted or measured")
            continue
        figure, ax = axes(f"What a step costs: {title}", f"{how} against bytes sent, split by redundancy", beside=True)
        _scatter(ax, sent / 1e6, seconds * 1e3, members)
        least = max(1e-3, float(np.min(sent[sent > 0], initial=1e6)) / 1e6)
        ax.set_xscale("symlog", linthresh=least / 2, linscale=0.2)
        decades = 10.0 ** np.arange(math.floor(math.log10(least)), math.log10(max(sent.max() / 1e6, least)) + 1)
        ticks = np.outer(decades, (1, 2, 5)).ravel()
        ax.xaxis.set_major_locator(FixedLocator([0, *ticks[ticks >= least / 2]]))
        ax.xaxis.set_minor_locator(NullLocator())
        _finish(ax, "counted MB that a device sends in a step", f"{how}, ms")
        _name(ax, "least time:", [members[i] for i in np.argsort(seconds, kind="stable")])
        yield Picture(names, figure)


def pareto(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Seconds of a step against what a device holds, and the layouts that no other beats in both."""
    for title, names, members in groups(layouts):
        seconds, how = seconds_of(members)
        held = np.array([one.number("peak_bytes") for one in members])
        known = np.isfinite(seconds) & np.isfinite(held)
        if not known.any():
            yield Skipped(title, "no seconds were predicted or measured")
            continue
        figure, ax = axes(
            f"Memory or time: {title}", f"{how} against bytes held; no layout beats those on the line", beside=True
        )
        _scatter(ax, held / 1e6, seconds * 1e3, members)
        front = pareto_front(held, seconds)
        ax.step(held[front] / 1e6, seconds[front] * 1e3, where="post", color=INK, linewidth=1.0, zorder=1.5)
        ax.set_xscale("log")
        _finish(ax, "counted MB that a device holds at most", f"{how}, ms")
        _name(ax, "on the line, by memory:", [members[i] for i in front])
        yield Picture(names, figure)


def pareto_front(memory: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Indices of points that no other has both less memory and less time than, by growing memory.

    Args:
      memory, seconds: float64[layouts]; a NaN is on no front.
    """
    front, best = [], math.inf
    for i in np.lexsort((seconds, memory)):
        if math.isfinite(memory[i]) and seconds[i] < best:
            front.append(i)
            best = seconds[i]
    return np.array(front, np.int64)


def predicted(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Predicted against measured seconds of a step, with the spread of twins that differ in names of axes alone."""
    timed = [one for one in layouts if math.isfinite(one.number("step_seconds"))]
    if not timed:
        yield Skipped("predicted against measured", "no step was timed; engine=device times them")
        return
    for title, names, members in groups(timed):
        said, seconds = (
            np.array([one.number(f"{name}step_seconds") for one in members]) for name in ("predicted_", "")
        )
        band = noise(members)
        goal = f"predicted for {members[0].row['hardware']}; one factor of all is no matter, an order is"
        figure, ax = axes(f"Predicted and measured: {title}", goal, beside=True)
        _scatter(ax, said * 1e3, seconds * 1e3, members)
        for one, x, y in zip(members, said, seconds, strict=True):
            ends = [one.number(f"step_seconds_{end}") * 1e3 for end in ("low", "high")]
            ax.plot([x * 1e3] * 2, ends, color=INK, linewidth=0.8, zorder=1.5)
            if band:
                ax.plot([x * 1e3] * 2, [y * 1e3 / band, y * 1e3 * band], color="#CCCCCC", linewidth=5, zorder=1)
        ax.set_xscale("log")
        twins = f"; grey: twins differ by up to {band - 1:.0%}" if band else ""
        _finish(ax, "predicted ms", f"measured ms{twins}")
        _name(ax, "least time:", [members[i] for i in np.argsort(seconds, kind="stable")])
        yield Picture(names, figure)


def noise(layouts: Iterable[MeasuredLayout]) -> float | None:
    """The largest factor between measured seconds of twins, which differ in the names of their mesh axes alone."""
    by_form: dict[tuple[str, ...], list[float]] = {}
    for one in layouts:
        by_form.setdefault(canonical(one), []).append(one.number("step_seconds"))
    factors = [max(own) / min(own) for own in by_form.values() if len(own) > 1]
    return max(factors, default=None)


def canonical(one: MeasuredLayout) -> tuple[str, ...]:
    """Mesh and layout with the axes of the mesh called by their places."""
    sizes = [pair.split(":") for pair in one.study.mesh.split(";")]
    place = {name: str(i) for i, (name, _) in enumerate(sizes)}
    pairs = [pair.split(":") for pair in one.study.layout.split(";") if pair]
    return (*(size for _, size in sizes), *sorted(f"{axis}:{place.get(over, over)}" for axis, over in pairs))


def published(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Layouts that others published: utilization against chips, and of those that state it memory against time."""
    table = published_numbers.layouts()
    goal = "measured model FLOPs utilization against chips; ring: states two that disagree; cross: not compiled"
    figure, ax = axes("Layouts that others published", goal, beside=True)
    _rows(ax, table, table["chips"], table["utilization"] * 100)
    ax.set_xscale("log", base=2)
    ax.set_xlabel("chips")
    ax.set_ylabel("measured model FLOPs utilization, %")
    ax.set_ylim(0, 100)
    yield Picture(("utilization",), figure)
    table = table[table["memory_gb"].notna() & table["tokens_per_second"].notna()]
    goal = "measured by others, seconds of one chip for a million tokens; cross: not compiled"
    figure, ax = axes("Memory or time: layouts that others published", goal, beside=True)
    seconds = 1e6 * table["chips"] / table["tokens_per_second"]
    _rows(ax, table, table["memory_gb"], seconds)
    for i, (mesh, x, y) in enumerate(zip(table["mesh"], table["memory_gb"], seconds, strict=True)):
        offset = (3, 4 + 7 * (i % 3))
        ax.annotate(mesh, (x, y), offset, textcoords="offset points", fontsize=5.5, color=INK, rotation=25)
    ax.set_xlabel("measured GB that a device holds at most")
    ax.set_ylabel("measured seconds of a chip for a million tokens")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    yield Picture(("memory",), figure)


def _rows(ax: Axes, table: pd.DataFrame, across: pd.Series, up: pd.Series) -> None:
    """Published rows as points, in one style for each source, device and model; those in doubt or slow are marked."""
    for style, ((source, hardware, model), own) in zip(
        draw.styles(), table.groupby(["source", "hardware", "model"], sort=False), strict=False
    ):
        look: dict[str, Any] = {"s": 26, "color": style.color, "marker": style.marker, "zorder": 2, **EDGE}
        ax.scatter(across[own.index], up[own.index], label=f"{SOURCES[str(source)]} {hardware} {model}", **look)
    for rows, marks in (
        (table["doubt"].notna(), {"marker": "o", "facecolors": "none", "edgecolors": INK}),
        (table["compiled"] == "no", {"marker": "x", "color": INK}),
    ):
        marked: dict[str, Any] = {"s": 90, "linewidth": 1.0, "zorder": 3} | marks
        ax.scatter(across[rows], up[rows], **marked)
    ax.grid(**GRID)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=6)


def groups(layouts: Sequence[MeasuredLayout]) -> list[tuple[str, tuple[str, ...], list[MeasuredLayout]]]:
    """Layouts that could be of one step, engine and number of devices: a title, names of a file, and the members."""
    grouped: dict[tuple[str, ...], list[MeasuredLayout]] = {}
    for one in layouts:
        if not one.refused:
            study = one.study
            key = (study.model_label, study.engine, str(study.device_count), str(one.row["hardware"]))
            grouped.setdefault((*key, str(sorted(study.model_options.items()))), []).append(one)
    return [
        (f"{key[0]} on {key[2]} devices, {'timed' if key[1] == DEVICE else key[1]}", key[:-1], members)
        for key, members in sorted(grouped.items())
    ]


def seconds_of(members: Sequence[MeasuredLayout]) -> tuple[np.ndarray, str]:
    """Measured seconds of a step where all have them, else predicted ones; and which these are."""
    measured = np.array([one.number("step_seconds") for one in members])
    if np.isfinite(measured).all():
        return measured, "measured step"
    return (
        np.array([one.number("predicted_step_seconds") for one in members]),
        f"step predicted for {members[0].row['hardware']}",
    )


def split_of(one: MeasuredLayout) -> str:
    """The name of the split of its redundancy, of ``SPLITS``."""
    return next(name for _, high, name in SPLITS if one.number("redundancy") < high)


def _scatter(ax: Axes, x: np.ndarray, y: np.ndarray, members: Sequence[MeasuredLayout]) -> None:
    split = np.array([split_of(one) for one in members])
    for (_, _, name), style in zip(SPLITS, draw.STYLES, strict=False):
        _points(ax, x[split == name], y[split == name], style, name)


def _points(ax: Axes, x: np.ndarray, y: np.ndarray, style: Style, name: str) -> None:
    if len(x):
        ax.scatter(x, y, s=34, color=style.color, marker=style.marker, label=name, zorder=2, **EDGE)


def _finish(ax: Axes, across: str, up: str) -> None:
    """Scales, labels and a legend; both axes are logarithmic, with 1, 2 and 5 of each decade."""
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    ax.set_xlabel(across)
    ax.set_ylabel(up)
    ax.grid(**GRID)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), title="redundancy")


def _name(ax: Axes, heading: str, members: Sequence[MeasuredLayout]) -> None:
    """Names the first of some layouts beside the picture."""
    named = members[:NAMED]
    lines = [f"{one.study.mesh}\n  {_folded(one.study.layout or 'replicated')}" for one in named]
    told = f"{heading} the first {len(named)} of {len(members)}" if len(named) < len(members) else heading
    ax.text(1.03, 0.62, "\n".join([told, *lines]), transform=ax.transAxes, fontsize=7, va="top", color=INK)


def _folded(layout: str) -> str:
    pairs, lines = layout.split(";"), [""]
    for pair in pairs:
        if len(lines[-1]) + len(pair) > 30:
            lines.append("")
        lines[-1] += f"{pair};"
    return "\n  ".join(lines).rstrip(";")
