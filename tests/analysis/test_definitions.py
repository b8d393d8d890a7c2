"""Every printed definition against the printed number: each number is computed again from its words."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from analysis import columns, help_text
from analysis.fitting import fit_tables, points_file, regimes
from analysis.fitting.extents import efficient_up_to, pays_up_to
from analysis.payoff import answer_tables
from analysis.report import curves_html, payoff_html
from results import definitions
from results.plans.points import POINTS
from results.plans.study import Target
from results.rules.answers import of_table

ROOT = Path(__file__).parents[2]
SIZES = 4.0 * 2 ** np.arange(15)
FINE = 2 ** np.arange(2, 16, 1 / 64)  # batch sizes tried in a fine table, with a doubling every 64 rows
PAYS, EFFICIENT = definitions.PAYS_UP_TO.format(gain=20), definitions.EFFICIENT_UP_TO


def hyperbola(batch_size: np.ndarray) -> np.ndarray:
    return 100_000 * (1 + 512 / batch_size)


def test_pays_up_to_is_the_number_of_its_words() -> None:
    assert "after the last doubling" in PAYS and "at least 20 % faster" in PAYS
    steps = hyperbola(FINE)
    faster = steps[:-64] / steps[64:] - 1  # of the doubling that ends at FINE[64:]
    number = FINE[64:][faster >= 0.2 - 1e-12].max()
    assert number == 2048
    assert np.exp(pays_up_to(np.log(FINE), np.log(steps)[None]))[0] == pytest.approx(number, rel=1e-3)
    extents = points_file.of_steps(pd.Series(SIZES), pd.Series(hyperbola(SIZES))).extents
    assert extents and extents.pays.best == pytest.approx(number, rel=0.05)


def test_efficient_up_to_is_the_number_of_its_words() -> None:
    assert "largest batch size" in EFFICIENT and "1.2 times the fewest examples" in EFFICIENT
    steps = hyperbola(FINE)
    number = FINE[FINE * steps <= 1.2 * (FINE * steps).min()].max()
    assert np.exp(efficient_up_to(np.log(FINE), np.log(steps)[None]))[0] == pytest.approx(number, rel=0.02)
    extents = points_file.of_steps(pd.Series(SIZES), pd.Series(hyperbola(SIZES))).extents
    assert extents and extents.efficient.best == pytest.approx(number, rel=0.1)


def test_critical_batch_size_and_regimes_follow_their_words() -> None:
    fit = points_file.of_steps(pd.Series(SIZES), pd.Series(hyperbola(SIZES))).fit
    assert fit is not None
    examples, plateau = 100_000 * 512.0, 100_000.0  # of the line of perfect scaling, and steps of the plateau
    assert "line of perfect scaling meets the plateau" in definitions.CRITICAL_BATCH_SIZE
    assert fit.critical_batch_size == pytest.approx(examples / plateau, rel=0.01)
    assert re.findall(r"at most (\d+) % more", " ".join(definitions.REGIMES.values())) == ["20", "20"]
    sizes = FINE[(FINE * hyperbola(FINE) / examples < 1.15) | (hyperbola(FINE) / plateau < 1.15)]
    names = np.where(sizes * hyperbola(sizes) <= 1.2 * examples, "perfect scaling", "maximal data parallelism")
    assert regimes.names(fit, sizes).tolist() == names.tolist()
    between = FINE[(FINE * hyperbola(FINE) / examples > 1.25) & (hyperbola(FINE) / plateau > 1.25)]
    assert set(regimes.names(fit, between)) == {"diminishing returns"}


def test_steps_to_target_follow_their_words() -> None:
    values, steps = [0.9, 0.4, 0.3, 0.2], [10, 20, 30, 40]
    first = next(i for i, value in enumerate(values) if value <= 0.3)
    assert "the last evaluation before it" in definitions.STEPS_TO_TARGET
    rows = {"trial": pa.array([0] * 4, pa.int32()), "step": pa.array(steps, pa.int32())}
    table = pa.table(rows | {"validation_error": pa.array(values, pa.float64())})
    answer = of_table(table, Target("validation_error", 0.3)).of([0]).answer()
    assert answer and (answer.steps_low, answer.steps_high) == (steps[first - 1], steps[first])


def plain(text: str) -> str:
    """Returns text on one line, without Markdown, comments and non-breaking spaces, in lower case."""
    return " ".join(re.sub(r"[*`#]|\\", "", text.replace("\xa0", " ")).split()).lower()


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (
            PAYS,
            ["docs/glossary.md", "docs/start.md", "docs/payoff.md", "docs/optimizers.md", "docs/statistics/method.md"],
        ),
        (PAYS, ["analysis/notebooks/2_three_regimes.py", "analysis/notebooks/8_pay_off.py"]),
        (EFFICIENT, ["docs/glossary.md", "docs/start.md", "docs/payoff.md", "docs/optimizers.md"]),
        (EFFICIENT, ["docs/statistics/method.md", "analysis/notebooks/2_three_regimes.py"]),
        (EFFICIENT, ["analysis/notebooks/8_pay_off.py"]),
        (definitions.CRITICAL_BATCH_SIZE, ["docs/glossary.md", "docs/start.md", "docs/statistics/method.md"]),
        (definitions.CRITICAL_CORES, ["docs/glossary.md", "docs/statistics/method.md"]),
        (definitions.STEPS_TO_TARGET, ["docs/glossary.md"]),
        *((words, ["docs/glossary.md", "docs/statistics/method.md"]) for words in definitions.REGIMES.values()),
    ],
)
def test_pages_have_the_words_of_the_definitions(words: str, places: list[str]) -> None:
    for place in places:
        assert plain(words) in plain((ROOT / place).read_text()), place


def test_commands_have_the_words_of_the_definitions() -> None:
    table = pd.DataFrame(columns=list(columns.FITS))
    printed = [fit_tables.as_text(table, 0.2), answer_tables.as_text([]), curves_html.OF_WORKLOADS]
    for text in (*printed, help_text.FIT.replace("--gain", "20"), help_text.PAYOFF.replace("--gain %", "20 %")):
        assert plain(PAYS) in plain(text)
    assert plain(PAYS) in plain(payoff_html.ABOUT) and columns.FITS["pays_up_to"] == PAYS
    for text in (*printed, help_text.FIT, columns.FITS["efficient_up_to"], columns.PAYOFF["efficient_batch_size"]):
        assert plain(EFFICIENT) in plain(text)
    meanings = {column.name: column.meaning for column in POINTS}
    for name, words in (("pays_up_to", PAYS), ("efficient_up_to", EFFICIENT), ("critical_batch_size", None)):
        assert (words or definitions.CRITICAL_BATCH_SIZE) in meanings[name], name
    assert definitions.CRITICAL_CORES in plain(help_text.EPOCHS_FIT)
    assert plain(definitions.STEPS_TO_TARGET) in plain(help_text.STEPS)
    every = [path for folder in ("docs", "analysis", "results") for path in (ROOT / folder).rglob("*.*")]
    for path in (path for path in every if path.suffix in (".md", ".py")):
        assert not re.search(r"first batch size (at|from|for) which (a )?doubling", plain(path.read_text())), path
