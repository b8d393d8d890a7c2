"""Pay-off figures: time to target and device-hours against devices, with their Pareto front."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis import text
from analysis.cores import core_counts
from analysis.cores.measured_factorizations import MeasuredFactorization
from analysis.fitting.curve_fits import CurveFits
from analysis.payoff import answers, subjects, time_to_target
from analysis.payoff.answers import Answer
from analysis.payoff.step_times import BASES, MEASURED, PREDICTED, Basis
from analysis.payoff.time_to_target import PayOff
from analysis.plotting import draw, ticks
from analysis.plotting.draw import GRID, INK, Look, Style
from analysis.plotting.picture import Picture, Pictures, Skipped, panels
from results.plans.recorded import EXAMPLES

FEWEST = 2  # minimum device counts for a picture
LOOKS = dict(zip(BASES, draw.STYLES, strict=False))

EVERY = 4  # maximum number of labelled points on a front


def of_curves(curves: Sequence[CurveFits]) -> Pictures:
    """Yields one picture per curve and device kind, if there are times for at least two device counts.

    Draws the confirmed fit if it exists, and otherwise the selected fit.
    """
    newest = (subjects.of_curves([curve])[-1] for curve in curves)
    return pictures(itertools.chain.from_iterable(answers.answers([subject]) for subject in newest), "payoff")


def of_factorizations(studies: Sequence[MeasuredFactorization]) -> Pictures:
    """Yields the same pictures for factorizations on real cores. Their target is the last epoch."""
    return pictures(answers.answers(subjects.of_core_curves(core_counts.curves(studies))), "payoff_cores")


def pictures(computed: Iterable[Answer], what: str = "payoff") -> Pictures:
    """Yields one picture for each answer that has times for at least two device counts."""
    drawn = 0
    for answer in computed:
        if max((len(pay_off.devices) for pay_off in answer.pay_offs.values()), default=0) < FEWEST:
            continue
        drawn += 1
        names = [
            str(value)
            for name, value in answer.subject.names.items()
            if name not in ("estimate", "trials_per_point", "differs") and value != EXAMPLES
        ]
        yield Picture((*names, answer.device_kind), _picture(answer))
    if not drawn:
        why = "no curve has seconds per step on two device counts. `payoff --predicted FILE` accepts predictions."
        yield Skipped(what, why)


def _picture(answer: Answer) -> Any:
    goal = text.joined(
        answer.device_kind, f"a doubling pays off if it trains at least {100 * answer.gain:g} % faster", "90 % bands"
    )
    end = "target" if answer.subject.curve else "the last epoch"
    figure, (left, middle, right) = panels(answer.subject.title, goal, (1, 1, 1), across=11.0, below=0.55)
    pay_offs = list(answer.pay_offs.values())
    devices = np.concatenate([pay_off.devices for pay_off in pay_offs for _ in range(2)])
    seconds = np.concatenate([end for pay_off in pay_offs for end in (pay_off.low, pay_off.high)])
    _axes(left, devices, seconds)
    _axes(middle, devices, seconds * devices / 3600)
    left.set_ylabel(f"seconds to {end}")
    middle.set_ylabel(f"device-hours to {end}")
    for basis, pay_off in answer.pay_offs.items():
        times = pay_off.seconds, pay_off.low, pay_off.high
        _line(left, pay_off.devices, *times, basis, _label(basis, answer, pay_off))
        middle_hours, low_hours, high_hours = (time * (pay_off.devices / 3600) for time in times)
        _line(middle, pay_off.devices, middle_hours, low_hours, high_hours, basis)
        _front(right, pay_off, basis)
    first = pay_offs[-1]
    draw.perfect_scaling(left, first.seconds[0] * first.devices[0])
    for axis, name in ((right.yaxis, "seconds"), (right.xaxis, "device_hours")):
        values = np.concatenate([getattr(pay_off, name) for pay_off in pay_offs])
        ticks.in_decades(axis, ticks.limits(values, 0.6, 0.6, least=4))
    right.set(xlabel=f"device-hours to {end}, by devices", ylabel=f"seconds to {end}")
    right.grid(**GRID)
    draw.legend_below(left, *left.get_legend_handles_labels(), columns=3)
    return figure


def _label(basis: Basis, answer: Answer, pay_off: PayOff) -> str:
    """Returns the legend label of a line, with its answer."""
    origin = f"predicted by {answer.predicted_by}" if basis == PREDICTED else basis
    words = pay_off.last_in_words
    devices = "device" if words.split()[-1] == "1" else "devices"
    return f"{origin}: {words if words.startswith('unknown') else f'pays off up to {words} {devices}'}"


def _axes(ax: Axes, devices: np.ndarray, values: np.ndarray) -> None:
    ticks.in_powers_of_two(ax.xaxis, ticks.limits(devices, 0.5, 0.5, least=0), compact=devices.max() > 2**8)
    ticks.in_decades(ax.yaxis, ticks.limits(values, 0.4, 0.4))
    ax.set_xlabel("devices")
    ax.grid(**GRID)


def _line(
    ax: Axes, devices: np.ndarray, middle: np.ndarray, low: np.ndarray, high: np.ndarray, basis: Basis, label: str = ""
) -> None:
    """Draws a curve with its band. Bands of predictions are hatched and unfilled. Other bands are filled."""
    style = LOOKS[basis]
    look: Look = {"facecolor": "none", "edgecolor": style.color, "hatch": "////", "alpha": 0.35}
    look["linewidth"] = 0.4
    if basis != PREDICTED:
        look = {"facecolor": style.color, "alpha": 0.22, "linewidth": 0}
    if len(devices) > 1:
        ax.fill_between(devices, low, high, zorder=1.5, **look)
    else:
        ax.plot(np.repeat(devices, 2), [low[0], high[0]], color=style.color, linewidth=2.2, alpha=0.6, zorder=2.5)
    ax.plot(devices, middle, label=label or None, **_marks(style, basis))


def _marks(style: Style, basis: Basis) -> Look:
    """Returns the marker style. Measured markers are smaller, so that they fit inside predicted ones."""
    size, order = (4.0, 3.5) if basis == MEASURED else (6.5, 3.0)
    look = style.look | {"linewidth": 1.4, "markersize": size, "zorder": order}
    return look | ({"markerfacecolor": "white"} if basis == PREDICTED else {})


def _front(ax: Axes, pay_off: PayOff, basis: Basis) -> None:
    """Draws time against cost, with a line along the Pareto front and labels at some device counts."""
    style = LOOKS[basis]
    front = time_to_target.on_front(pay_off.seconds, pay_off.device_hours)
    behind = _marks(style, basis) | {"linestyle": "none", "alpha": 0.35}
    ax.plot(pay_off.device_hours[~front], pay_off.seconds[~front], **behind)
    ax.plot(pay_off.device_hours[front], pay_off.seconds[front], **_marks(style, basis))
    places = np.flatnonzero(front)
    stride = max(1, -(-len(places) // EVERY))
    for i in places[::stride]:
        ax.annotate(
            f"{pay_off.devices[i]:,.0f}",
            (pay_off.device_hours[i], pay_off.seconds[i]),
            xytext=(5, 4),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )
