"""Step times: what counts of a store and of a file, how noisy it is, and what is refused."""

import io
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.payoff import answers, step_times, subjects, time_files
from analysis.payoff.step_times import MEASURED, PREDICTED
from results import store
from results.bad_input import BadInput

from ..conftest import Ran, plan, publish

GOOD = {
    "device_kind": "TPU v4",
    "devices": 4,
    "batch_size": 64,
    "seconds_per_step": 0.5,
    "low": 0.25,
    "high": 1.0,
    "basis": "predicted",
}
RUN = {
    "backend": "gpu",
    "device_kind": "A",
    "device_count": 1,
    "trial_steps": 10,
    "train_seconds": 20.0,
    "lanes": 8,
    "lane_strategy": "map",
    "shards": 1,
}


def write(tmp_path, *rows, name="times.csv"):
    table = pd.DataFrame([GOOD | row for row in rows])
    table = table.drop(columns=[column for column in table if (table[column] == "gone").all()])
    file = tmp_path / name
    table.to_parquet(file) if name.endswith("parquet") else table.to_csv(file, index=False)
    return file


def test_rows_that_say_both_are_times_of_their_own():
    rows = pd.DataFrame([GOOD, GOOD | {"basis": "measured", "seconds_per_step": 0.75}])
    measured, predicted = step_times.of_rows(rows, "both")
    assert (measured.basis, measured.seconds.tolist()) == (MEASURED, [0.75])
    assert (predicted.basis, predicted.seconds.tolist()) == (PREDICTED, [0.5])


@pytest.mark.parametrize("name", ["times.csv", "times.parquet"])
def test_a_file_is_read_in_both_formats(tmp_path, name):
    rows = time_files.read(write(tmp_path, {}, {"devices": 8, "low": 0.5}, name=name), PREDICTED)
    (times,) = step_times.of_rows(rows, "--predicted")
    assert (times.device_kind, times.basis, times.by) == ("TPU v4", "predicted", "--predicted")
    assert times.devices.tolist() == [4, 8] and times.batch_size.tolist() == [64, 64]
    np.testing.assert_allclose(np.exp(-times.below), [0.5, 1.0])
    np.testing.assert_allclose(np.exp(times.above), [2.0, 2.0])
    # The part of both ranges that is common cancels in a ratio of two times, but for an error of each row.
    below, above = times.own()
    np.testing.assert_allclose([below, above], [[np.log(2), 0], np.log([1.12, 1.12])], atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"low": "gone"}], "lacks a column low"),
        ([{"basis": "gone", "says": "predicted"}], "the column says is now named basis. Rename it."),
        (
            [{"basis": "measured"}],
            "row 1 has basis 'measured', but --predicted takes only predicted times. Give it ",
        ),
        (
            [{}, {"basis": "guessed"}],
            "row 2 has basis 'guessed', but --predicted takes only predicted times. It must be",
        ),
        ([{"devices": 2.5}], "devices in row 1 is '2.5'. It must be an integer."),
        ([{"seconds_per_step": -1}], "seconds_per_step in row 1 is '-1'. It must be a positive number."),
        ([{}, {"devices": 2, "high": float("inf")}], "high in row 2 is 'inf'. It must be a positive number."),
        ([{"seconds_per_step": "soon"}], "seconds_per_step in row 1 is 'soon'. It must be a positive number"),
        ([{"low": 0.75}], "row 1 has low=0.75, seconds_per_step=0.5 and high=1. They must be in rising order."),
        ([{}, {}], "row 2 has the same devices and batch size as an earlier one"),
        ([{"device_kind": None}], "device_kind in row 1 is empty"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, cli, rows, words):
    points = tmp_path / "points.csv"
    points.write_text("batch_size,steps\n1,100\n2,50\n4,26\n8,15\n16,10\n32,9\n")
    code, out, err = cli("payoff", "--points", points, "--predicted", write(tmp_path, *rows))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err and "times.csv" in err


def test_files_that_are_none(tmp_path):
    with pytest.raises(BadInput, match=r"cannot read --predicted .*nowhere\.csv"):
        time_files.read(tmp_path / "nowhere.csv", PREDICTED)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    for name in ("empty.csv", "broken.parquet"):
        with pytest.raises(BadInput, match="is not a table"):
            time_files.read(tmp_path / name, PREDICTED)
    (tmp_path / "none.csv").write_text(",".join(GOOD) + "\n")
    with pytest.raises(BadInput, match="has no rows"):
        time_files.read(tmp_path / "none.csv", PREDICTED)


def test_step_times_of_a_store_are_those_of_real_devices(tmp_path):
    for seed, changes in enumerate(
        [
            {},
            {"trial_steps": 30, "train_seconds": 20.0},  # all steps together: 40 s of 40
            {"device_count": 4, "shards": 4, "train_seconds": 5.0},
            {"device_count": 2, "shards": 1},  # two trials at once
            {"lane_strategy": "vmap"},  # eight trials at once
            {"lanes": 1, "lane_strategy": "vmap", "device_count": 8, "shards": 8, "train_seconds": 4.0},
            {"emulated": True, "device_count": 16, "shards": 16},
            {"emulated": None},
            {"train_seconds": None},
            {"device_kind": "B", "train_seconds": 70.0},
            {"backend": "cpu", "physical_cores": 2, "train_seconds": 30.0},  # one device of two cores
        ]
    ):
        study = plan(seed=seed, batch_size=16)
        publish(tmp_path, study, {0: Ran([(1, 0.05)])}, **RUN | changes)
    one, two, other = step_times.of_commits(store.catalogue(tmp_path))
    assert [each.device_kind for each in (one, two, other)] == ["A", "A, 2 cores each", "B"]
    assert dict(zip(one.devices.tolist(), one.seconds.tolist(), strict=True)) == {1: 1.0, 4: 0.5, 8: 0.4}
    assert (two.seconds.tolist(), other.seconds.tolist()) == ([3.0], [7.0])
    assert all(each.basis == MEASURED for each in (one, two, other))
    assert any("throughput" in note for note in one.notes)
    assert any("assumed to be 3%" in note for note in one.notes)


def test_noise_is_found_whatever_the_law():
    rng = np.random.default_rng(0)
    batch = np.tile(2.0 ** np.arange(11), 2)
    devices = np.repeat([1.0, 2.0], 11)
    for law in (1e-3 + 1e-4 * batch, 1e-3 * batch**0.7, 1e-3 * batch):
        for sigma in (0.0, 0.1, 0.4):
            width = [
                step_times.noise(devices, batch, law * np.exp(rng.normal(0, sigma, len(batch))))[0] for _ in range(200)
            ]
            # 90 % of errors are within it; the bend of a law counts as noise.
            assert np.median(width) == pytest.approx(1.645 * max(sigma, 0.03), rel=0.35), (law[:3], sigma)
    assert step_times.noise(devices[:2], batch[:2], batch[:2]) == (pytest.approx(1.645 * 0.03, rel=1e-3), False)


def test_without_communication_every_device_has_its_share():
    batch = np.array([1.0, 2.0, 4.0, 1.0])
    nothing = np.zeros(4)
    seconds = np.array([0.5, 0.75, 1.0, 9.0])
    measured = step_times.StepTimes(
        "A", MEASURED, "", np.array([1.0, 1, 1, 2]), batch, seconds, nothing, nothing, np.zeros(2)
    )
    told = step_times.without_communication(measured)
    assert told is not None and told.basis == PREDICTED and "without communication" in told.by
    rows = {
        (count, size, round(float(np.exp(time)), 12))
        for count, each in told.choices(1, 4).items()
        for size, time in zip(each.batch_size, each.middle, strict=True)
    }
    at_three = round(0.75 * (4 / 3) ** (np.log(1.5) / np.log(2)), 12)  # between 2 and 4, straight in logarithms
    whole = {(1, 1, 0.5), (1, 2, 0.75), (1, 3, at_three), (1, 4, 1)}
    assert rows == whole | {(2, 2, 0.5), (2, 4, 0.75), (4, 4, 0.5)}
    assert step_times.without_communication(measured.at(np.array([0, 0, 1, 1], bool))) is None


def test_seconds_between_timed_batch_sizes_are_interpolated():
    """Of a fixed time plus a time per example: within the bounds everywhere, and nothing but bounds beyond."""
    for sizes in ([1.0, 2, 4, 8, 16, 32, 64], [1.0, 4, 16, 64], [4.0, 16], [2.0, 64]):
        timed, nothing = np.array(sizes), np.zeros(len(sizes))
        seconds = 8 + timed
        alone = step_times.StepTimes(
            "A", PREDICTED, "", np.ones(len(timed)), timed, seconds, nothing, nothing, np.zeros(2), (), True
        )
        for count, each in alone.choices(1, 64).items():
            share = each.batch_size / count
            inside = (share >= timed[0]) & (share <= timed[-1])
            assert (share == np.round(share)).all() and (np.isfinite(each.middle) == inside).all()
            assert (np.exp(each.low) <= (8 + share) * (1 + 1e-9)).all()
            assert (np.exp(each.high) >= (8 + share) * (1 - 1e-9)).all()
            straight = np.interp(np.log(share[inside]), np.log(timed), np.log(seconds))
            np.testing.assert_allclose(each.middle[inside], straight)
            np.testing.assert_allclose((each.weights @ np.log(seconds))[inside], straight)
            if len(timed) == 7:  # octaves: 1.5 %
                assert (each.high - each.low)[inside].max() < 0.031
        assert alone.gaps() == ([(1, 2, 64)] if sizes == [2, 64] else [])


def test_rows_have_to_say_whose_they_are(tmp_path, swept, cli):
    selected = subjects.of_store(swept)
    file = write(tmp_path, {"dataset": "digits", "optimizer": "sgd"}, {"dataset": "digits", "optimizer": "momentum"})
    found = answers.answers(selected, predicted=file)
    assert {one.subject.names["optimizer"] for one in found if "predicted" in one.pay_offs} == {"sgd", "momentum"}
    file = write(tmp_path, {"dataset": "digits", "optimizer": "sdg"})
    code, _, err = cli("payoff", "--store", swept, "--predicted", file)
    assert code == 2 and "row 1 is of no curve (digits, sdg)" in err
    swept = shutil.copytree(swept, tmp_path / "two")
    publish(swept, plan(dataset="other"), {0: Ran([(1, 0.05)])})
    code, _, err = cli("payoff", "--store", swept, "--predicted", write(tmp_path, {}))
    assert code == 2 and "choose one workload with --where" in err
    code, out, err = cli(
        "payoff", "--store", swept, "--predicted", write(tmp_path, {}), "--where", "dataset=digits", "--csv"
    )
    assert code == 0, err
    assert (pd.read_csv(io.StringIO(out))["device_kind"] == "TPU v4").all()
