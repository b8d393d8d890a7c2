"""Runs with given steps: GPT-3's answers from its CSV in plain NumPy, pooling with known truth, and what is refused."""

import csv
import io
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.payoff import known_runs
from results.papers import published_numbers

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs" / "payoff.md").read_text()
BASES = ("measured", "predicted", "published")
GOOD = {"device_kind": "X", "devices": 1, "batch_size": 64, "steps": 100, "seconds_per_step": 2.0, "basis": "measured"}


def runs():
    with (published_numbers.FOLDER / "gpt3_runs.csv").open() as file:
        return list(csv.DictReader(file))


def block_minutes(row):
    """The first block, and the median block for each evaluation after it."""
    block = int(row["steps_between_evaluations"]) * float(row["seconds_per_step"])
    return (float(row["first_block_seconds"]) + (int(row["evaluations"]) - 1) * block) / 60


def medians(minutes):
    """The medians of ``minutes`` by chip, chips and system, as {chip: {chips: fastest}}, by published minutes."""
    systems = defaultdict(list)
    for row in runs():
        systems[row["chip"], int(row["chips"]), row["source"]].append((float(row["minutes"]), minutes(row)))
    fastest = defaultdict(dict)
    order = sorted(systems.items(), key=lambda item: -np.median([published for published, _ in item[1]]))
    for (chip, chips, _), both in order:
        fastest[chip][chips] = float(np.median([own for _, own in both]))
    return fastest


def table(cli, *words):
    code, out, err = cli("payoff", *words, "--csv")
    assert code == 0, err
    return pd.read_csv(io.StringIO(out))


def write(tmp_path, *rows, name="runs.csv"):
    file = tmp_path / name
    pd.DataFrame([GOOD | row for row in rows]).to_csv(file, index=False)
    return file


@pytest.fixture(scope="module")
def gpt3():
    """The truth by chip and chips: minutes to the target."""
    return medians(block_minutes)


def test_minutes_and_chip_hours_of_gpt3_are_those_of_the_file(cli, gpt3):
    rows = table(cli, "--paper", "gpt3", "--times")
    assert sorted(zip(rows["device_kind"], rows["devices"], strict=True)) == sorted(
        (chip, chips) for chip, own in gpt3.items() for chips in own
    )
    for row in rows.to_dict("records"):
        minutes = gpt3[row["device_kind"]][row["devices"]]
        assert row["published_seconds"] == pytest.approx(60 * minutes)
        assert row["published_device_hours"] == pytest.approx(row["devices"] * minutes / 60)
        assert row["published_runs"] == 3
        assert row["published_seconds_low"] < row["published_seconds"] < row["published_seconds_high"]
    others = [name for name in rows if name.startswith(("measured_", "predicted_"))]
    assert rows[others].isna().all(axis=None)


def test_intervals_of_gpt3_hold_every_run_of_the_fastest_systems(cli):
    rows = table(cli, "--paper", "gpt3", "--times").set_index(["device_kind", "devices"])
    for run in runs():
        row = rows.loc[(run["chip"], int(run["chips"]))]
        if (run["source"], run["chips"]) != ("mlperf-v4.0", "6144"):  # 4.1 is faster
            assert row["published_seconds_low"] < 60 * float(run["minutes"]) <= row["published_seconds_high"] * 1.0001


def test_the_gains_and_the_bounds_of_gpt3(cli, gpt3):
    true = {"TPU v5p": [102, 92, 82], "TPU v6e": [105, 82], "TPU v5e": []}
    ends = {"TPU v5p": 4096, "TPU v6e": 2048}
    out = cli("payoff", "--paper", "gpt3", "--times")[1]
    for block in re.split(r"\n\n(?=c4)", out):
        chip = re.search(r"TPU v\d\w", block)[0]
        gains = [100 * (gpt3[chip][n] / gpt3[chip][2 * n] - 1) for n in sorted(gpt3[chip]) if 2 * n in gpt3[chip]]
        assert [round(gain) for gain in gains] == true[chip]
        assert [int(gain) for gain in re.findall(r"(\d+)% \[", block)] == true[chip]
    rows = table(cli, "--paper", "gpt3").set_index("device_kind")
    for chip, end in ends.items():
        assert (rows["published_verdict"][chip], rows["published_devices_low"][chip]) == ("at_least", end)
    assert rows["published_verdict"]["TPU v5e"] == "not_identified"
    assert rows["reason"].str.contains("start from a checkpoint after 6,144,000 sequences").all()


def test_a_higher_gain_is_no_longer_a_bound(cli):
    """The second doubling of v5p gains 92 %. The interval of the first, 102 %, holds 99 %."""
    rows = table(cli, "--paper", "gpt3", "--gain", "99").set_index("device_kind")
    assert rows["published_verdict"]["TPU v5p"] == "at_most" and rows["published_devices_high"]["TPU v5p"] == 2048


def hyperbolas():
    """The critical batch size of a hyperbola by two straight lines through all runs."""
    batch, steps = np.array([(int(row["batch_size"]), int(row["steps"])) for row in runs()], float).T
    one = np.linalg.lstsq(np.stack([np.ones_like(batch), batch], 1), batch * steps, rcond=None)[0]
    other = np.linalg.lstsq(np.stack([np.ones_like(batch), 1 / batch], 1), steps, rcond=None)[0]
    return one[0] / one[1], other[1] / other[0]


def test_critical_batch_size_is_a_bound_of_known_runs(cli):
    low, high = hyperbolas()
    largest = max(int(row["batch_size"]) for row in runs())
    assert largest == 6144 and 3 < low / largest < high / largest < 4
    words = f"A hyperbola through all runs has it at {low:,.0f} to {high:,.0f}"
    (note,) = re.findall(r"critical batch size: at least ([\d,]+)\. (.*), which extrapolates ([\d.]+)-fold or more",
                         cli("payoff", "--paper", "gpt3")[1])  # fmt: skip
    assert int(note[0].replace(",", "")) < largest
    found = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]+", note[1])]
    assert found == pytest.approx([low, high], rel=0.005), words
    assert float(note[2]) == pytest.approx(low / largest, abs=0.05)
    assert f"*at least {note[0]}* by the curve of `fit`. {note[1]}." in " ".join(DOC.split())


def test_the_table_in_the_docs_has_the_answers(cli, gpt3):
    rows = re.findall(r"^\| ([\d,]+) (v\d\w) \| ([\d,]+) \| (.*) \| ([\d,]+) \| (.*) \|$", DOC, re.MULTILINE)
    assert len(rows) == sum(map(len, gpt3.values()))
    found = table(cli, "--paper", "gpt3", "--times").set_index(["device_kind", "devices"])
    for chips, chip, batch, minutes, hours, gain in rows:
        count, kind = int(chips.replace(",", "")), f"TPU {chip}"
        row = found.loc[(kind, count)]
        ends = [row[f"published_seconds{end}"] / 60 for end in ("", "_low", "_high")]
        assert minutes == "{:.1f} [{:.1f}, {:.1f}]".format(*ends)
        assert float(minutes.split()[0]) == pytest.approx(gpt3[kind][count], abs=0.051)
        assert hours == f"{count * gpt3[kind][count] / 60:,.0f}" and batch == f"{row['published_batch_size']:,.0f}"
        half = gpt3[kind].get(count / 2)
        assert gain.split("%")[0] == (f"{100 * (half / gpt3[kind][count] - 1):.0f}" if half else "")


def test_the_sentences_in_the_docs_have_the_numbers_of_the_file(gpt3):
    doc = " ".join(DOC.split())
    errors = [block_minutes(row) / float(row["minutes"]) - 1 for row in runs()]
    within = sum(abs(error) <= 0.03 for error in errors)
    assert f"For {within} of the {len(errors)} runs, they are within 3 %" in doc
    for row, error in zip(runs(), errors, strict=True):
        if abs(error) > 0.03:
            blocks = [pair.split(":")[0] for pair in row["slow_blocks"].split(";")]
            assert re.search(r"(in|blocks) " + ", ".join(blocks), doc.replace(" and 22", " 22").replace(", and", ","))
    initial = [float(row["init_seconds"]) / 60 for row in runs()]
    assert f"initialization, which took {min(initial):.0f} to {max(initial):.0f} minutes" in doc
    whole = medians(lambda row: float(row["minutes"]) + float(row["init_seconds"]) / 60)["TPU v5p"]
    gains = whole[2048] / whole[4096], gpt3["TPU v5p"][2048] / gpt3["TPU v5p"][4096]
    assert "would gain {:.0f} % instead of {:.0f} %".format(*(100 * (gain - 1) for gain in gains)) in doc
    rates = {int(row["batch_size"]): float(row["learning_rate"]) for row in runs()}
    assert {size for size, rate in rates.items() if rate == 2e-5} == {1536, 2048, 3072}
    assert set(rates.values()) == {2e-5, 3e-5}


def test_two_batch_sizes_and_no_curve_are_enough(cli, tmp_path):
    """Time to target is that before the first step, plus steps times seconds, in the median of the runs of a system."""
    rows = [
        {"devices": devices, "batch_size": batch, "steps": steps, "seconds_per_step": seconds * factor}
        | {"seconds_before_first_step": before}
        for devices, batch, steps, seconds, before in
        [(8, 64, 1000, 4.0, 100.0), (16, 64, 1000, 2.1, 110.0), (32, 128, 600, 2.1, 130.0), (64, 128, 600, 1.9, 700.0)]
        for factor in (1.0, 1.01, 0.995)
    ]  # fmt: skip
    file = write(tmp_path, *rows)
    times = table(cli, "--measured", file, "--times")
    assert times["measured_seconds"].tolist() == [4100, 2210, 1390, 1840]
    assert times["measured_before_first_step"].tolist() == [100, 110, 130, 700]
    assert times["measured_runs"].tolist() == [3] * 4
    (row,) = table(cli, "--measured", file).to_dict("records")
    assert (row["measured_verdict"], row["measured_devices"]) == ("identified", 32)  # 64 is slower
    assert row["batch_verdict"] == "not_identified"


def test_interval_covers_spread_of_runs_and_evaluation_spacing(cli, tmp_path):
    """Against NumPy: a pooled standard deviation of logarithms with Student's t, and at least the range of the runs."""
    seconds = {1: [2.0, 2.1, 1.9], 2: [1.0, 1.02], 4: [0.55]}
    rows = [{"devices": n, "seconds_per_step": each} for n, every in seconds.items() for each in every]
    logs = [np.log(every) for every in seconds.values()]
    deviation = np.sqrt(sum(((each - each.mean()) ** 2).sum() for each in logs) / 3)
    width = 2.353363 * deviation  # t of 3 degrees of freedom, 95 %
    for more, spacing in (({}, 0.0), ({"steps_low": 90}, np.log(100 / 90))):
        found = table(cli, "--measured", write(tmp_path, *(row | more for row in rows)), "--times")
        for row, each in zip(found.to_dict("records"), logs, strict=True):
            middle = np.median(np.exp(each))
            below = max(width / len(each) ** 0.5, np.log(middle) - each.min())
            above = max(width / len(each) ** 0.5, each.max() - np.log(middle))
            low, high = 100 * middle * np.exp(-np.hypot(below, spacing)), 100 * middle * np.exp(above)
            assert [row["measured_seconds_low"], row["measured_seconds_high"]] == pytest.approx([low, high])


@pytest.mark.parametrize("copies", [1, 3])
def test_single_and_equal_runs_are_as_uncertain_as_two_processes(cli, tmp_path, copies):
    file = write(tmp_path, *[{}, {"devices": 2, "seconds_per_step": 1.0}] * copies)
    found = table(cli, "--measured", file, "--times")
    wide = 1.644854 * 0.03 / copies**0.5
    np.testing.assert_allclose(np.log(found["measured_seconds_high"] / found["measured_seconds"]), wide, 1e-6)
    out = cli("payoff", "--measured", file)[1]
    assert "no two runs of a system differ, so the spread of runs is assumed to be 3%" in out


def test_a_file_of_runs_has_the_note_on_the_hyperbola_too(cli, tmp_path):
    """Three batch sizes are too few for a curve, and their hyperbola is far beyond them."""
    rows = [{"devices": size / 8, "batch_size": size, "steps": 20 * (1 + 4096 / size)} for size in (64, 128, 256)]
    out = cli("payoff", "--measured", write(tmp_path, *rows))[1]
    words = "critical batch size: unknown. A hyperbola through all runs has it at 4,100 to 4,100, which "
    assert words + "extrapolates 16.0-fold or more" in out


def test_nine_of_ten_intervals_hold_the_time_of_a_system():
    rng = np.random.default_rng(0)
    truth, held = np.log([800.0, 410.0, 220.0, 130.0]), []
    for _ in range(40):
        seconds = np.exp(np.repeat(truth, 3) + rng.normal(0, 0.05, 12))
        rows = pd.DataFrame({"device_kind": "X", "devices": np.repeat([1.0, 2, 4, 8], 3), "batch_size": 64.0})
        rows = rows.assign(steps=1.0, seconds_per_step=seconds, basis="measured")
        (times,) = known_runs.of_rows(rows, "")
        apart = truth - np.log(times.seconds)
        held += ((-times.below <= apart) & (apart <= times.above)).tolist()
    assert 0.86 < np.mean(held) < 0.98


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{}, {"steps": np.nan}], "steps in row 2 is empty. It must be a positive number."),
        ([{"steps": "many"}], "steps in row 1 is 'many'. It must be a positive number."),
        ([{"steps": 0}], "steps in row 1 is '0'. It must be a positive number."),
        (
            [{"steps_low": 101}],
            "row 1 has steps_low 101 above steps 100. It must be the steps of the evaluation before",
        ),
        (
            [{"seconds_before_first_step": -1}],
            "seconds_before_first_step in row 1 is '-1'. It must be 0 or a positive ",
        ),
        ([{"seconds_to_target": 0}], "seconds_to_target in row 1 is '0'. It must be a positive number."),
        ([{}, {"system": "a"}], "system in row 1 is empty. Name it."),
        ([{"low": 1.0}], "has a column low but no column high. Add it, or remove low."),
        ([{"basis": "published"}], "but --measured takes only measured times. Give it with --published."),
    ],
)
def test_bad_runs_are_one_line(tmp_path, cli, rows, words):
    code, out, err = cli("payoff", "--measured", write(tmp_path, *rows))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err and "runs.csv" in err


def test_steps_are_needed_once(tmp_path, cli):
    code, _, err = cli("payoff")
    assert (code, len(err.splitlines())) == (2, 1) and "Give --store, --points or --paper, or --measured with" in err
    file = tmp_path / "times.csv"
    pd.DataFrame([GOOD | {"low": 1.9, "high": 2.1}]).drop(columns="steps").to_csv(file, index=False)
    code, _, err = cli("payoff", "--measured", file)
    assert (code, len(err.splitlines())) == (2, 1) and "has no column steps, so the steps to the target are" in err
    file = write(tmp_path, {"basis": "predicted"})
    code, _, err = cli("payoff", "--paper", "gpt3", "--predicted", file)
    assert (code, len(err.splitlines())) == (2, 1) and "has a column steps, but predicted times use" in err
    table = pd.DataFrame([GOOD | {"low": 1.9, "high": 2.1, "steps_low": 3}]).drop(columns="steps")
    table.to_csv(file, index=False)
    code, _, err = cli("payoff", "--measured", file)
    assert (code, len(err.splitlines())) == (2, 1) and "has a column steps_low but no column steps" in err


@pytest.fixture
def curve(tmp_path):
    """Points of a curve, and a writer of step times of a basis on 1 to 64 devices, as many examples each."""
    sizes = 2.0 ** np.arange(7)
    points = tmp_path / "points.csv"
    pd.DataFrame({"batch_size": sizes, "steps": 50 * (1 + 16 / sizes)}).to_csv(points, index=False)

    def times(basis, seconds, width=1.05):
        file = tmp_path / f"{basis}.csv"
        columns = {"device_kind": "X", "devices": sizes, "batch_size": sizes, "seconds_per_step": seconds}
        columns |= {"low": seconds / width, "high": seconds * width, "basis": basis}
        pd.DataFrame(columns).to_csv(file, index=False)
        return file

    return points, times


def test_measured_predicted_and_published_never_share_a_column(curve, cli):
    points, times = curve
    files = {basis: times(basis, 0.1 * 3**i) for i, basis in enumerate(BASES)}
    words = [word for basis in BASES for word in (f"--{basis}", files[basis])]
    every = table(cli, "--points", points, *words, "--times")
    for i, basis in enumerate(BASES):
        np.testing.assert_allclose(every[f"{basis}_seconds"], 3**i * every["measured_seconds"])
        for other in set(BASES) - {basis}:
            code, _, err = cli("payoff", "--points", points, f"--{other}", files[basis])
            assert code == 2 and f"--{other} takes only {other} times. Give it with --{basis}." in err
        changed = times(basis, 7.0)
        found = table(cli, "--points", points, *words, "--times")
        files[basis] = times(basis, 0.1 * 3**i)
        assert changed == files[basis]
        names = [name for name in every if not found[name].equals(every[name])]
        assert names and all(name.startswith(f"{basis}_") for name in names)
    out = cli("payoff", "--points", points, *words, "--times")[1]
    assert [line.split()[0].rstrip(";") for line in out.splitlines() if "; devices after the last" in line] == list(
        BASES
    )


@pytest.mark.parametrize("width", [1.0, 1.01, 2.0])
def test_a_predicted_gain_always_has_an_interval(curve, cli, width):
    points, times = curve
    out = cli("payoff", "--points", points, "--predicted", times("predicted", 0.1, width), "--times")[1]
    gains = np.array(re.findall(r"(\d+)% \[(-?\d+)%, (\d+)%\]", out), float)
    assert len(gains) == 6
    best, low, high = 1 + gains.T / 100
    assert (best / low > 1.06).all() and (high / best > 1.06).all()  # printed to whole percents


def test_times_of_one_device_predict_gains_with_an_interval(tmp_path, cli):
    """Without communication, the error of a time cancels in a gain. It is still a prediction."""
    sizes = 2.0 ** np.arange(7)
    points, file = tmp_path / "points.csv", tmp_path / "times.csv"
    pd.DataFrame({"batch_size": sizes, "steps": 2**20 / sizes}).to_csv(points, index=False)
    seconds = dict.fromkeys(("seconds_per_step", "low", "high"), 0.1 * sizes)
    one = {"basis": "measured", "device_kind": "X", "devices": 1}
    pd.DataFrame({"batch_size": sizes} | seconds | one).to_csv(file, index=False)
    out = cli("payoff", "--points", points, "--measured", file, "--times")[1]
    gains = np.array(re.findall(r"(\d+)% \[(-?\d+)%, (\d+)%\]", out), float)
    assert len(gains) == 6 and (gains[:, 0] == 100).all()
    assert (gains[:, 1] <= 85).all() and (gains[:, 2] >= 116).all()  # 2 / 1.08 and 2 * 1.08


def test_doublings_of_chips_are_as_uncertain_as_predictions():
    """In published pairs of chip counts at the same sequences per chip, seconds per step differ by up to 8 %."""
    seconds = defaultdict(list)
    for row in runs():
        share = int(row["batch_size"]) / int(row["chips"])
        seconds[row["chip"], share, int(row["chips"])].append(float(row["seconds_per_step"]))
    apart = [
        abs(np.log(np.median(every) / np.median(seconds[chip, share, 2 * chips])))
        for (chip, share, chips), every in list(seconds.items())
        if (chip, share, 2 * chips) in seconds
    ]
    assert len(apart) >= 2 and 0.04 < max(apart) < np.log(1.08)
