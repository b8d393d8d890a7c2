"""The command payoff: what it says of its answers, on a narrow terminal too, and what it tells to type next."""

import io
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import text
from analysis.fitting.extents import UNKNOWN, Extent
from analysis.payoff import time_to_target
from analysis.payoff.step_times import BASES

from ..conftest import Ran, plan, publish

SIZES = [2**i for i in range(11)]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def points(tmp_path):
    file = tmp_path / "the points.csv"
    pd.DataFrame({"batch_size": SIZES, "steps": [50 * (1 + 64 / size) for size in SIZES]}).to_csv(file, index=False)
    return file


@pytest.fixture
def times(tmp_path):
    """Writes a file of times: of each number of devices with as many examples, or as told."""

    def write(name="times.csv", **changes):
        seconds = np.full(len(SIZES), 0.1)
        columns = {"device_kind": "X", "devices": SIZES, "batch_size": SIZES, "seconds_per_step": seconds}
        columns |= {"low": seconds / 1.02, "high": seconds * 1.02, "basis": "measured"}
        file = tmp_path / name
        pd.DataFrame(columns | changes).to_csv(file, index=False)
        return file

    return write


def next_words(out):
    """The words after ``payoff`` of the command that an answer tells to type next."""
    (line,) = [line for line in out.splitlines() if line.startswith("next: ")]
    return shlex.split(line.removeprefix("next: python -m analysis payoff "))


def test_where_is_not_advised_where_it_is_refused(times, cli):
    code, _, err = cli("payoff", "--paper", "shallue2018", "--measured", times())
    assert code == 2 and "there are several" in err and "Add columns dataset and model." in err
    assert "--where" not in err


def test_next_keeps_all_that_was_given_and_has_times(points, times, cli):
    given = ["--points", str(points), "--gain", "25.5", "--measured", str(times())]
    _, out, _ = cli("payoff", *given)
    assert next_words(out) == [*given, "--times"]
    code, out, _ = cli("payoff", *next_words(out))
    assert code == 0 and "no times" not in out


def test_next_of_a_store_keeps_target_and_choice(swept, cli):
    given = ["--store", str(swept), "--metric", "test_error", "--value", "0.2", "--where", "optimizer=sgd"]
    _, out, _ = cli("payoff", *given)
    assert next_words(out) == [*given, "--predicted", "FILE"]


def test_a_narrow_terminal_shows_the_price_and_the_front(points, times, cli, monkeypatch):
    monkeypatch.setattr("results.printing.width", lambda stream: 80)
    words = ("payoff", "--points", points, "--measured", times(), "--times")
    for more, shown in (((), "device-hours"), (("--price", "2"), "price")):
        out = cli(*words, *more)[1]
        lines = out.splitlines()
        (header,) = [line for line in lines if line.startswith("devices")]
        assert {"batch", "seconds", shown, "faster by"} <= set(re.split(r"  +", header))
        assert max(map(len, lines)) <= 80
        rows = [line for line in lines if re.match(r" +[\d,]+  ", line)]
        assert len(rows) == len(SIZES)
        assert "beaten" not in header  # each is faster than the one before, and costs more
        assert any(line.startswith("beaten: ") for line in lines)
    monkeypatch.setattr("results.printing.width", lambda stream: 50)
    assert re.search(r"^devices .*\bprice\b", cli(*words, "--price", "2")[1], re.MULTILINE)


def test_a_number_of_devices_that_another_beats_is_marked(tmp_path, points, times, cli):
    """More devices cost more; where they are slower, too, a mark says so, and nowhere else."""
    seconds = np.full(len(SIZES), 0.1) * [1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 9]
    file = times(seconds_per_step=seconds, low=seconds / 1.02, high=seconds * 1.02)
    words = ("payoff", "--points", points, "--measured", file, "--times")
    rows = [line for line in cli(*words)[1].splitlines() if re.match(r" +[\d,]+  ", line)]
    table = pd.read_csv(io.StringIO(cli(*words, "--csv")[1])).dropna(subset="measured_seconds")
    assert [row.endswith("yes") for row in rows] == [*[False] * 9, True, True]
    assert table["measured_on_front"].tolist() == [*["yes"] * 9, "no", "no"]


def test_counts_are_whole_and_the_title_fits_the_answer(points, times, cli):
    out = cli("payoff", "--points", points, "--measured", times(), "--times")[1]
    assert out.splitlines()[0] == "X"
    batch = [line.split()[1] for line in out.splitlines() if re.match(r" +[\d,]+  ", line)]
    assert batch == [f"{size:,}" for size in SIZES]


@pytest.mark.parametrize(("gain", "words"), [("20", "20 %"), ("99.9", "99.9 %"), ("0.05", "0.05 %")])
def test_a_gain_is_told_as_it_was_given(points, cli, gain, words):
    assert f"makes training faster by {words} or more" in cli("payoff", "--points", points, "--gain", gain)[1]


def test_every_answer_of_one_side_has_a_reason(cli):
    table = pd.read_csv(io.StringIO(cli("payoff", "--paper", "shallue2018", "--csv")[1]))
    one_sided = table[table["batch_verdict"] != "identified"]
    assert one_sided["model"].tolist() == ["resnet_50", "resnet_50", "vgg_11"]
    assert one_sided["reason"].str.contains("reaches (?:past )?the largest").all()
    assert table.loc[table["batch_verdict"] == "identified", "reason"].isna().all()


def test_a_row_has_a_batch_size_if_its_steps_have_one(points, times, cli, put, folder):
    code, _, err = cli("payoff", "--points", points, "--measured", times(batch_size=np.nan))
    assert (code, len(err.splitlines())) == (2, 1) and "nan" not in err
    assert "row 1 has no batch_size. Only steps of a factorization go without one." in err
    put({"seconds": 0.5})
    code, _, err = cli("payoff", "--store", folder, "--measured", times())
    assert code == 2 and "row 1 has a batch_size, but a step of a factorization takes all data" in err


def test_rows_beyond_the_curve_are_told(points, times, cli):
    more = np.array(SIZES) * 4
    _, out, _ = cli("payoff", "--points", points, "--measured", times(batch_size=more))
    told = "measured at batch sizes 2,048, 4,096, outside the curve: not used"
    assert told in out
    assert told in cli("payoff", "--points", points, "--measured", times(batch_size=more), "--times")[1]
    assert "not used" not in cli("payoff", "--points", points, "--measured", times())[1]


def test_measured_and_predicted_times_never_share_a_column(points, times, cli):
    """Whatever is tried, a number of one is where nothing is that the other changes."""
    slower = np.full(len(SIZES), 0.7)
    ends = {"low": slower / 1.1, "high": slower * 1.1}
    measured = times("measured.csv")
    predicted = times("predicted.csv", seconds_per_step=slower, basis="predicted", **ends)
    mixed = times("mixed.csv", basis=[BASES[i % 2] for i in range(len(SIZES))])
    for basis in BASES:
        code, _, err = cli("payoff", "--points", points, f"--{basis}", mixed)
        assert code == 2 and f"--{basis} takes only {basis} times" in err

    def table(*files, times=True):
        words = [word for basis, file in zip(BASES[:2], files, strict=True) if file for word in (f"--{basis}", file)]
        code, out, _ = cli("payoff", "--points", points, *words, "--csv", *["--times"] * times)
        assert code == 0
        return pd.read_csv(io.StringIO(out))

    nothing = times("nothing.csv", basis="predicted", device_kind="other")
    for whole in (True, False):
        both = table(measured, predicted, times=whole)
        own = {basis: [name for name in both if name.startswith(f"{basis}_")] for basis in BASES}
        shared = set(both).difference(*own.values())
        assert not [name for name in shared if "seconds" in name or "hours" in name or "price" in name]
        for basis, files in (("measured", (measured, nothing)), ("predicted", (None, predicted))):
            other = {"measured": "predicted", "predicted": "measured"}[basis]
            alone = table(*files, times=whole)
            alone = alone[alone["device_kind"] == "X"].reset_index(drop=True)
            columns = [name for name in own[basis] if name != "predicted_by"]
            pd.testing.assert_frame_equal(alone[columns], both[columns])
            left = alone[[name for name in own[other] if name != "predicted_by"]]
            assert left.isna().all(axis=None)
    rows = table(measured, predicted)
    np.testing.assert_allclose(rows["predicted_seconds"], 7 * rows["measured_seconds"])


def test_measured_and_predicted_stand_in_blocks_of_their_own(points, times, cli):
    slower = np.full(len(SIZES), 0.7)
    ends = {"low": slower, "high": slower}
    predicted = times("predicted.csv", seconds_per_step=slower, basis="predicted", **ends)
    out = cli("payoff", "--points", points, "--measured", times(), "--predicted", predicted, "--times")[1]
    blocks = out.split("\n\n")
    (first,) = [block for block in blocks if block.startswith("measured; ")]
    (second,) = [block for block in blocks if block.startswith("predicted by --predicted; ")]
    number = re.compile(r"^ +1  +1  +([\d,.]+) \[", re.MULTILINE)
    seconds = [float(number.findall(block)[0].replace(",", "")) for block in (first, second)]
    assert seconds[1] == pytest.approx(7 * seconds[0], rel=0.01)


def test_the_answer_of_a_curve_of_one_side_is_words_of_one_side(tmp_path, times, cli):
    for steps, words in (([2**22 / size for size in SIZES], "at least"), ([50] * len(SIZES), "at most")):
        file = tmp_path / "curve.csv"
        pd.DataFrame({"batch_size": SIZES, "steps": steps}).to_csv(file, index=False)
        out = cli("payoff", "--points", file, "--measured", times())[1]
        (row,) = [line for line in out.splitlines() if line.startswith("1  ")]
        answers = [cell for cell in re.split(r"  +", row) if re.search(r"\d", cell)][1:]
        pays, efficient, devices = answers
        assert pays.startswith(words) and devices.startswith(words), row
        assert efficient.startswith(words) == (words == "at least"), row  # a flat curve is efficient up to 1.2 times
        (line,) = [line for line in out.splitlines() if "pays up to: the interval reaches" in line]
        assert line.startswith("row 1: ")


@pytest.mark.slow
def test_docs_have_the_answers_of_the_paper_and_of_the_release(cli):
    doc = (ROOT / "docs" / "payoff.md").read_text()
    rows = re.findall(r"^\| (\w+), [^|]+ \| ((?:at least )?[\d,]+[^|]*) \| ([^|]+) \|$", doc, re.MULTILINE)
    lines = cli("payoff", "--paper", "shallue2018")[1].splitlines()[1:10]
    answers = [re.split(r"  +", line) for line in lines]
    assert rows == [(cells[1], *cells[-2:]) for cells in answers]
    table = pd.read_csv(io.StringIO(cli("payoff", "--store", ROOT / "results" / "published", "--csv")[1]))
    of_batch, of_cores = table[table["target_metric"].notna()], table[table["target_metric"].isna()]
    assert set(of_batch["measured_verdict"].dropna()) == {"not_identified"}
    stated = of_cores[of_cores["measured_verdict"] != "not_identified"]
    assert (stated["measured_verdict"].tolist(), stated["measured_devices_low"].tolist()) == (["at_least"], [2])
    words = f"One of its {len(of_cores)} rows of factorizations is *at least 2*"
    assert words in " ".join(doc.split())


def test_a_store_without_times_says_so(folder, cli):
    publish(folder, plan(), {0: Ran([(1, 0.05)])})
    code, out, _ = cli("payoff", "--store", folder, "--times")
    assert code == 0 and "no times: " in out


def test_rows_that_read_alike_show_the_field_that_differs(folder, cli):
    for seed, schedule in enumerate(["constant", "linear", "cosine"]):
        publish(folder, plan(seed=seed, schedule=schedule), {0: Ran([(1, 0.05)])})
    out = cli("payoff", "--store", folder)[1]
    header, *rows = out.splitlines()[:4]
    assert "differs" in header
    shown = [re.search(r"schedule=\w+", row)[0] for row in rows]
    assert sorted(shown) == [f"schedule={name}" for name in ("constant", "cosine", "linear")]
    assert not any("seed" in row for row in rows)  # one field is enough
    table = pd.read_csv(io.StringIO(cli("payoff", "--store", folder, "--csv")[1]))
    assert table["differs"].str.contains("schedule=").all() and table["differs"].str.contains("seed=").all()


@pytest.mark.slow
def test_no_two_rows_of_the_release_read_alike(cli):
    code, out, err = cli("payoff", "--store", ROOT / "results" / "published")
    assert code == 0, err
    lines = out.splitlines()
    header, rows = lines[0], lines[1 : lines.index("")]
    left, device = header.index("pays up to"), header.index("device ")
    places = [(row[4:left].rsplit("  ", 1)[0].rstrip(), row[device:].split("  ")[0]) for row in rows]
    assert len(set(places)) == len(rows) > 60


def test_a_best_estimate_without_an_interval_is_shown(tmp_path, times, cli):
    """The curve has a knee, which its noise leaves unidentified."""
    last = time_to_target.stated(Extent(64.0, 1.0, 1024.0, "not_identified"))
    assert text.answer(*last, form=text.count) == "unknown (best 64)"
    assert text.answer(*UNKNOWN, form=text.count) == "unknown"
