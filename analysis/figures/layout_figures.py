"""Figures of layouts: cost against bytes sent, memory against time, predictions against measurements, published data.

Axis labels show whether times were measured or predicted. Steps on emulated devices are not timed.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from numpy.typing import ArrayLike

from analysis.measured_layouts import MeasuredLayout, pairs
from analysis.plotting import draw
from analysis.plotting.draw import GRID, INK, Look, Style
from analysis.plotting.picture import Picture, Pictures, Skipped, axes
from analysis.published_steps import COMPARED, GPU_MIXTURE, MIXTURE, table as steps_table
from results.aliases import Strings
from results.costs.step_constants import DENSE, RANGES
from results.grouping import grouped
from results.papers import published_numbers
from results.plans.layout import DEVICE

REPEATED = 1.005  # redundancy above which devices repeat each other's work
SPLITS = (  # from, to, name
    (1.0, REPEATED, "no repeated work"),
    (REPEATED, 2.005, "up to twice the work"),
    (2.005, math.inf, "more"),
)
SOURCES = {"kempnerforge": "KempnerForge", "maxtext": "MaxText", "maxtext-2024": "MaxText 2024"}
EDGE: Look = {"edgecolor": "white", "linewidth": 0.6}
NAMED = 5  # maximum number of layouts listed on a picture


def cost(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Yields one picture per model and engine: seconds per step against bytes sent per device, by redundancy."""
    for title, names, members in groups(layouts):
        seconds, how = seconds_of(members)
        sent = numbers(members, "wire_bytes")
        if not np.isfinite(seconds).any():
            yield Skipped(title, "step times were neither predicted nor measured")
            continue
        figure, ax = axes(f"Cost of a step: {title}", f"{how} against bytes sent, by redundancy", beside=True)
        _scatter(ax, sent / 1e6, seconds * 1e3, members)
        smallest = max(1e-3, float(np.min(sent[sent > 0], initial=1e6)) / 1e6)
        ax.set_xscale("symlog", linthresh=smallest / 2, linscale=0.2)
        decades = 10.0 ** np.arange(math.floor(math.log10(smallest)), math.log10(max(sent.max() / 1e6, smallest)) + 1)
        ticks = np.outer(decades, (1, 2, 5)).ravel()
        ax.xaxis.set_major_locator(FixedLocator([0, *ticks[ticks >= smallest / 2]]))
        ax.xaxis.set_minor_locator(NullLocator())
        _finish(ax, "counted MB sent per device and step", f"{how}, ms")
        _name(ax, "fastest", members, np.argsort(seconds, kind="stable"))
        yield Picture(names, figure)


def pareto(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Yields seconds per step against bytes held per device, with the Pareto front."""
    for title, names, members in groups(layouts):
        seconds, how = seconds_of(members)
        held = numbers(members, "peak_bytes")
        finite = np.isfinite(seconds) & np.isfinite(held)
        if not finite.any():
            yield Skipped(title, "step times were neither predicted nor measured")
            continue
        figure, ax = axes(f"Memory against time: {title}", f"{how} against bytes held; line: Pareto front", beside=True)
        _scatter(ax, held / 1e6, seconds * 1e3, members)
        front = pareto_front(held, seconds)
        ax.step(held[front] / 1e6, seconds[front] * 1e3, where="post", color=INK, linewidth=1.0, zorder=1.5)
        ax.set_xscale("log")
        _finish(ax, "counted peak MB per device", f"{how}, ms")
        _name(ax, "on the line, by memory", members, front)
        yield Picture(names, figure)


def pareto_front(memory: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Returns the indices of the layouts on the Pareto front, by increasing memory.

    Args:
      memory, seconds: float64[layouts]. NaN values are never on the front.
    """
    front, best = [], math.inf
    for i in np.lexsort((seconds, memory)):
        if math.isfinite(memory[i]) and seconds[i] < best:
            front.append(i)
            best = seconds[i]
    return np.array(front, np.int64)


def predicted(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Yields predicted against measured seconds per step, with the spread of layouts that differ only in axis names."""
    timed = [layout for layout in layouts if math.isfinite(layout.number("step_seconds"))]
    if not timed:
        yield Skipped("predicted against measured", "no step was timed. Use engine=device.")
        return
    for title, names, members in groups(timed):
        said, seconds = numbers(members, "predicted_step_seconds"), numbers(members, "step_seconds")
        band = noise(members)
        goal = f"predicted for {members[0].row['hardware']}; the ranking matters, a constant factor does not"
        figure, ax = axes(f"Predicted and measured: {title}", goal, beside=True)
        _scatter(ax, said * 1e3, seconds * 1e3, members)
        for layout, x, y in zip(members, said, seconds, strict=True):
            ends = [layout.number(f"step_seconds_{end}") * 1e3 for end in ("low", "high")]
            ax.plot([x * 1e3] * 2, ends, color=INK, linewidth=0.8, zorder=1.5)
            if band:
                ax.plot([x * 1e3] * 2, [y * 1e3 / band, y * 1e3 * band], color="#CCCCCC", linewidth=5, zorder=1)
        ax.set_xscale("log")
        twins = f"; grey: twins differ by up to {band - 1:.0%}" if band else ""
        _finish(ax, "predicted ms", f"measured ms{twins}")
        _name(ax, "fastest", members, np.argsort(seconds, kind="stable"))
        yield Picture(names, figure)


def noise(layouts: Iterable[MeasuredLayout]) -> float | None:
    """Returns the largest ratio of measured seconds between layouts that differ only in axis names, or None."""
    twins = [numbers(twin_group, "step_seconds") for twin_group in grouped(layouts, canonical).values()]
    return max((float(seconds.max() / seconds.min()) for seconds in twins if len(seconds) > 1), default=None)


def canonical(layout: MeasuredLayout) -> Strings:
    """Returns the mesh and the layout with mesh axes renamed to their positions."""
    sizes = pairs(layout.study.mesh)
    place = {name: str(i) for i, name in enumerate(sizes)}
    over = [f"{axis}:{place.get(name, name)}" for axis, name in pairs(layout.study.layout).items()]
    return (*sizes.values(), *sorted(over))


def published(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Yields pictures of published layouts: utilization against chips, and memory against time (if both are known)."""
    table = published_numbers.layouts()
    goal = "measured model FLOPs utilization against chips; ring: contradicts itself; cross: not compiled"
    figure, ax = axes("Published layouts", goal, beside=True)
    _rows(ax, table, table["chips"], table["utilization"] * 100)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="chips", ylabel="measured model FLOPs utilization, %", ylim=(0, 100))
    yield Picture(("utilization",), figure)
    table = table[table["memory_gb"].notna() & table["tokens_per_second"].notna()]
    goal = "published chip-seconds per million tokens; cross: not compiled"
    figure, ax = axes("Memory against time: published layouts", goal, beside=True)
    seconds = 1e6 * table["chips"] / table["tokens_per_second"]
    _rows(ax, table, table["memory_gb"], seconds)
    for i, (mesh, x, y) in enumerate(zip(table["mesh"], table["memory_gb"], seconds, strict=True)):
        offset = (3, 4 + 7 * (i % 3))
        ax.annotate(mesh, (x, y), offset, textcoords="offset points", fontsize=5.5, color=INK, rotation=25)
    ax.set(xlabel="measured peak GB per device", ylabel="measured chip-seconds per million tokens", yscale="log")
    _decades(ax.yaxis)
    yield Picture(("memory",), figure)


def published_steps(layouts: Sequence[MeasuredLayout]) -> Pictures:
    """Yields the ratio of predicted to published step times against the number of chips, by chip generation."""
    table = steps_table()
    table = table[table["status"] == COMPARED]
    goal = "band: stated 90 % range of dense steps, ring: mixture of experts"
    figure, ax = axes("Predictions of published steps", goal)
    ax.axhspan(1 / RANGES[DENSE], RANGES[DENSE], color=INK, alpha=0.08, linewidth=0)
    ax.axhline(1.0, color=INK, linewidth=0.8)
    for style, (chip, chip_rows) in zip(draw.styles(), table.groupby("chip", sort=True), strict=False):
        _dots(ax, chip_rows["chips"], chip_rows["ratio"], style, f"{chip}: {len(chip_rows)} rows")
    mixed = table[table["set"].isin([MIXTURE, GPU_MIXTURE])]
    ring: Look = {"marker": "o", "facecolors": "none", "edgecolors": INK, "s": 80, "linewidth": 0.9, "zorder": 3}
    ax.scatter(mixed["chips"], mixed["ratio"], **ring)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ticks = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
    ax.set_yticks(ticks, list(map(str, ticks)))
    ax.minorticks_off()
    ax.set(xlabel="chips", ylabel="predicted over published seconds")
    ax.grid(**GRID)
    ax.legend(loc="lower right", fontsize=7)
    yield Picture(("ratio",), figure)


def _rows(ax: Axes, table: pd.DataFrame, across: pd.Series, up: pd.Series) -> None:
    """Draws published rows, with one style per source, device and model. Marks inconsistent and uncompiled rows."""
    for style, ((source, hardware, model), model_rows) in zip(
        draw.styles(), table.groupby(["source", "hardware", "model"], sort=False), strict=False
    ):
        _dots(ax, across[model_rows.index], up[model_rows.index], style, f"{SOURCES[str(source)]} {hardware} {model}")
    for rows, marks in (
        (table["doubt"].notna(), {"marker": "o", "facecolors": "none", "edgecolors": INK}),
        (table["compiled"] == "no", {"marker": "x", "color": INK}),
    ):
        marked: Look = {"s": 90, "linewidth": 1.0, "zorder": 3} | marks
        ax.scatter(across[rows], up[rows], **marked)
    ax.grid(**GRID)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=6)


def groups(layouts: Sequence[MeasuredLayout]) -> list[tuple[str, Strings, list[MeasuredLayout]]]:
    """Groups the accepted layouts by step, engine and number of devices.

    Returns:
      The title, the parts of the file name and the members of each group.
    """

    def key_of(layout: MeasuredLayout) -> Strings:
        study = layout.study
        names = (study.labels.model, study.engine, str(study.device_count), str(layout.row["hardware"]))
        return (*names, str(sorted(study.model_options.items())))

    return [
        (f"{key[0]} on {key[2]} devices, {'timed' if key[1] == DEVICE else key[1]}", key[:-1], members)
        for key, members in sorted(grouped([layout for layout in layouts if not layout.refused], key_of).items())
    ]


def seconds_of(members: Sequence[MeasuredLayout]) -> tuple[np.ndarray, str]:
    """Returns seconds per step and a description. They are measured if all layouts were timed, else predicted."""
    measured = numbers(members, "step_seconds")
    if np.isfinite(measured).all():
        return measured, "measured step"
    scaled = " (scaled to measured steps)" if (numbers(members, "predicted_anchors") > 0).any() else ""
    return numbers(members, "predicted_step_seconds"), f"step predicted for {members[0].row['hardware']}{scaled}"


def numbers(members: Sequence[MeasuredLayout], name: str) -> np.ndarray:
    """Returns a column of some layouts, float64[layouts], with NaN for missing values."""
    return np.array([layout.number(name) for layout in members])


def split_of(layout: MeasuredLayout) -> str:
    """Returns the name of the ``SPLITS`` interval that contains the redundancy."""
    return next(name for _, high, name in SPLITS if layout.number("redundancy") < high)


def _scatter(ax: Axes, x: np.ndarray, y: np.ndarray, members: Sequence[MeasuredLayout]) -> None:
    split = np.array([split_of(layout) for layout in members])
    for (_, _, name), style in zip(SPLITS, draw.STYLES, strict=False):
        selected = split == name
        if selected.any():
            _dots(ax, x[selected], y[selected], style, name, size=34)


def _dots(ax: Axes, x: ArrayLike, y: ArrayLike, style: Style, label: str, size: float = 26) -> None:
    ax.scatter(x, y, label=label, s=size, color=style.color, marker=style.marker, zorder=2, **EDGE)


def _decades(axis: Any) -> None:
    """Places ticks at 1, 2 and 5 in each decade of a logarithmic axis, and formats the numbers."""
    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))


def _finish(ax: Axes, across: str, up: str) -> None:
    """Sets scales, ticks, labels and the legend."""
    ax.set_yscale("log")
    _decades(ax.xaxis)
    _decades(ax.yaxis)
    ax.set(xlabel=across, ylabel=up)
    ax.grid(**GRID)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), title="redundancy")


def _name(ax: Axes, heading: str, members: Sequence[MeasuredLayout], order: np.ndarray) -> None:
    """Lists the first layouts of an order next to the picture."""
    plans = [members[i].study for i in order[:NAMED]]
    lines = [f"{plan.mesh}\n  {_folded(plan.layout_label)}" for plan in plans]
    head = f"{heading} ({NAMED} of {len(order)}):" if len(order) > NAMED else f"{heading}:"
    ax.text(1.03, 0.62, "\n".join([head, *lines]), transform=ax.transAxes, fontsize=7, va="top", color=INK)


def _folded(layout: str) -> str:
    pairs, lines = layout.split(";"), [""]
    for pair in pairs:
        if len(lines[-1]) + len(pair) > 30:
            lines.append("")
        lines[-1] += f"{pair};"
    return "\n  ".join(lines).rstrip(";")
