"""The figure of factorizations over cores: seconds per epoch."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from analysis import text
from analysis.cores import core_counts
from analysis.cores.core_counts import CoreCurve
from analysis.cores.measured_factorizations import MeasuredFactorization
from analysis.plotting import draw, labels, ticks
from analysis.plotting.draw import GRID, INK
from analysis.plotting.picture import Picture, Pictures, Skipped, panels
from results.papers import published_numbers

FEWEST = 2  # minimum core counts for a picture
WEB = "web"  # prefix of data sets that are web graphs, as in ALX
PUBLISHED = "alx2022"


def epochs_against_cores(studies: Sequence[MeasuredFactorization]) -> Pictures:
    """Yields one picture per curve: seconds per epoch, perfect scaling and the fit. Web graphs include ALX's times."""
    all_curves = core_counts.curves(studies)
    curves = [curve for curve in all_curves if len(curve.members) >= FEWEST]
    if emulated := [study for curve in all_curves for study in curve.emulated]:
        yield labels.skip_emulated("epochs", emulated)
    if not curves:
        yield Skipped("epochs", "no factorization was timed on two numbers of real cores. Sweep cores=1,2.")
    for curve in curves:
        study = curve.representative
        over = labels.span([len(member.seconds) for member in curve.members], "epoch")
        web = study.study.dataset.startswith(WEB)
        goal = text.joined(labels.size(study), study.device, f"median and middle half of {over}", curve.distinction)
        figure, (ax, *beside) = panels(labels.title(study), goal, (1.0, 0.4) if web else (1.0,))
        _cores_axes(ax, curve.cores, np.concatenate([member.seconds for member in curve.members]))
        first, last = np.transpose([np.quantile(member.seconds, (0.25, 0.75)) for member in curve.members])
        draw.bars(ax, curve.cores, curve.seconds, first, last, draw.STYLES[0], "measured", size=5.5)
        if curve.fit:
            across = np.geomspace(curve.cores[0], curve.cores[-1], 201)
            label = "fit: serial + parallel / c + communication · (c − 1)"
            ax.plot(across, curve.fit.seconds(across), color=draw.STYLES[0].color, linewidth=1.6, label=label, zorder=3)
        draw.perfect_scaling(ax, curve.seconds[0] * curve.cores[0])
        ax.text(0.03, 0.035, verdict(curve), transform=ax.transAxes, fontsize=8.5, color=INK, linespacing=1.4)
        entries = zip(*ax.get_legend_handles_labels(), strict=True)
        ax.legend(*zip(*sorted(entries, key=lambda entry: entry[1] != "measured"), strict=True), loc="upper right")
        for other_axes in beside:
            _published(other_axes)
        yield Picture(labels.names(study), figure)


def verdict(curve: CoreCurve) -> str:
    """Returns the conclusions from a picture and their limitations, one per line."""
    counts = ", ".join(str(study.study.cores) for study in curve.emulated)
    lines = [f"not drawn: {counts} cores, which were emulated"] if counts else []
    if curve.fit is None:
        first, last = curve.cores[0], curve.cores[-1]
        gain = f"{last:g} cores are {curve.speedup[-1]:.2f} × as fast as {first:g}"
        lines.append(f"{gain}: efficiency {curve.efficiency[-1]:.0%}")
        lines.append("Two core counts cannot determine a law:\nthe speed-up of more cores is not identified.")
        return "\n".join(lines)
    words = curve.critical_in_words
    loss = {
        "identified": f"half of the cores' time is lost at {words} cores",
        "at_least": f"less than half of the cores' time is lost up to {words.removeprefix('at least ')} cores",
        "at_most": f"half of the cores' time is lost at {words.removeprefix('at most ')} cores or fewer",
        "not_identified": "the core count at which half of the cores' time is lost is not identified",
    }
    lines.append(loss[curve.verdict])
    if curve.fit.doubt:
        lines.append(curve.fit.doubt)
    return "\n".join(lines)


def _cores_axes(ax: Axes, cores: np.ndarray, values: np.ndarray, label: str = "seconds per epoch") -> None:
    """Sets the labels, and logarithmic scales with ticks at powers of two."""
    ticks.in_powers_of_two(ax.xaxis, ticks.limits(cores, 0.4, 0.4, least=0))
    ticks.in_powers_of_two(ax.yaxis, ticks.limits(values, 0.8, 0.6))
    ax.set(xlabel="cores", ylabel=label)
    ax.grid(**GRID)


def _published(ax: Axes) -> None:
    """Draws ALX's seconds per epoch on separate axes, because ALX used other data and devices."""
    points = published_numbers.points(PUBLISHED)
    points = points[points["seconds_per_epoch"].notna() & points["cores"].notna()]
    cores, seconds = points["cores"].to_numpy(float), points["seconds_per_epoch"].to_numpy(float)
    _cores_axes(ax, cores, seconds, "")
    ax.set_ylim(seconds.min() / 2.6, seconds.max() * 2)
    ax.yaxis.set_major_locator(FixedLocator([600 * 2.0**power for power in range(-8, 12)]))
    ax.yaxis.set_major_formatter(lambda second, _: f"{second / 60:g} min")
    ax.yaxis.set_minor_locator(NullLocator())
    style = draw.STYLES[1]
    for row in points.to_dict("records"):
        ends, bound = (row["cores"], row["seconds_per_epoch"]), row["bound"] == "at_most"
        if bound:
            arrow = {"arrowstyle": "<-", "color": style.color}
            ax.annotate("", ends, xytext=(0, -24), textcoords="offset points", arrowprops=arrow)
        ax.plot(
            *([end] for end in ends),
            linestyle="none",
            marker="s",
            markersize=6.5,
            zorder=4,
            markerfacecolor="white",
            markeredgecolor=style.color,
            markeredgewidth=1.4,
        )
        side = "right" if row["cores"] ** 2 > cores.min() * cores.max() else "left"
        about = f"{'at most' if bound else 'about'} {row['seconds_per_epoch'] / 60:g} min"
        beside = (5 if side == "right" else -5, 8)
        words = f"{row['dataset']}\n{about}"
        ax.annotate(words, ends, xytext=beside, textcoords="offset points", ha=side, fontsize=7.5, color=INK)
    words = "published: ALX (2021),\nother data, TPU cores"
    ax.text(0.05, 0.035, words, transform=ax.transAxes, fontsize=7.5, color=INK, fontstyle="italic")
