"""Figures of runs with given steps to target: minutes and chip-hours to target against chips, for each kind of chip."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.payoff import answers, known_runs, subjects
from analysis.payoff.answers import Answer
from analysis.payoff.step_times import BASES, PUBLISHED
from analysis.plotting import draw, ticks
from analysis.plotting.draw import GRID, INK, Look, Style
from analysis.plotting.picture import Picture, Pictures, panels

TITLE = "GPT-3 175B: up to how many chips does doubling still pay off?"
GOAL = (
    "Published runs of MLPerf Training, from a checkpoint to log perplexity {target:g}. "
    "Percentages: speed-up by a doubling ({gain:g} % pays off). 90 % intervals"
)
STYLES = draw.STYLES[len(BASES) - 1 :]  # the first is that of published times in other pictures
RUN: Look = {"marker": "_", "markersize": 9, "linestyle": "none", "alpha": 0.8, "zorder": 2.8}
ACROSS, BELOW = 10.0, 0.62  # inches


def of_gpt3() -> Pictures:
    """Yields one picture of the published runs of GPT-3 175B."""
    computed = answers.answers([subjects.of_gpt3()])
    yield Picture((subjects.GPT3,), _picture(computed, known_runs.seconds(subjects.gpt3_rows())))


def _picture(computed: Sequence[Answer], runs: pd.DataFrame) -> Any:
    goal = GOAL.format(target=computed[0].subject.names["target_value"], gain=100 * computed[0].gain)
    figure, (left, right) = panels(TITLE, goal, (1, 1), across=ACROSS, below=BELOW)
    _axes(left, runs, "minutes to the target")
    _axes(right, runs, "chip-hours to the target")
    ticks.in_decades(left.yaxis, ticks.limits(runs["stated"] / 60, 0.35, 0.35))
    right.set_ylim(0, 1.15 * float((runs["stated"] * runs["devices"]).max()) / 3600)
    right.yaxis.labelpad = 7
    right.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    widest = max(computed, key=lambda answer: len(answer.pay_offs[PUBLISHED].devices))
    ordered = [widest, *(answer for answer in computed if answer is not widest)]
    for answer, style in zip(ordered, STYLES, strict=False):
        _draw(left, right, answer, style, runs[runs["device_kind"] == answer.device_kind])
    first = widest.pay_offs[PUBLISHED]
    draw.perfect_scaling(left, first.seconds[0] / 60 * first.devices[0])
    left.plot([], [], color=INK, label="one run", **RUN)
    handles, names = left.get_legend_handles_labels()
    draw.legend_below(left, [*handles[2:], *handles[1::-1]], [*names[2:], *names[1::-1]], columns=2)
    return figure


def _axes(ax: Axes, runs: pd.DataFrame, what: str) -> None:
    ticks.in_powers_of_two(ax.xaxis, ticks.limits(runs["devices"], 0.4, 0.4, least=0))
    ax.set(xlabel="chips", ylabel=what)
    ax.grid(**GRID)


def _draw(left: Axes, right: Axes, answer: Answer, style: Style, runs: pd.DataFrame) -> None:
    """Draws one kind of chip in both panels, with runs as short dashes. The left panel also shows doubling gains."""
    pay_off = answer.pay_offs[PUBLISHED]
    words = pay_off.last_in_words
    words = words if words.startswith("unknown") else f"pays off up to {words} chips"
    label = f"{answer.device_kind}, published: {words}"
    marks: Look = style.look | {"marker": STYLES[0].marker, "markersize": 6}
    hours = pay_off.devices / 60
    minutes = [end / 60 for end in (pay_off.seconds, pay_off.low, pay_off.high)]
    for ax, factor in ((left, np.ones(len(hours))), (right, hours)):
        middle, low, high = (end * factor for end in minutes)
        errors = [middle - low, high - middle]
        ax.errorbar(pay_off.devices, middle, errors, label=label, linewidth=1.4, elinewidth=1.0, zorder=3, **marks)
    left.plot(runs["devices"], runs["stated"] / 60, color=style.color, **RUN)
    right.plot(runs["devices"], runs["stated"] * runs["devices"] / 3600, color=style.color, **RUN)
    is_first = style is STYLES[0]
    minutes_by_count = dict(zip(pay_off.devices.tolist(), minutes[0].tolist(), strict=True))
    for n, gain in zip(pay_off.gains.devices.tolist(), pay_off.gains.best.tolist(), strict=True):
        left.annotate(
            f"+{gain - 1:.0%}",
            (2**0.5 * n, (minutes_by_count[n] * minutes_by_count[2 * n]) ** 0.5),
            xytext=(13, 4) if is_first else (-5, -5),
            textcoords="offset points",
            ha="left" if is_first else "right",
            va="bottom" if is_first else "top",
            fontsize=8,
            color=style.color,
        )
