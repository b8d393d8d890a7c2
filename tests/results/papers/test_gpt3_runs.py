"""The published runs of GPT-3: their parts, added up without our code, against the published minutes."""

import csv
import statistics
from pathlib import Path

import pytest

import results.papers
from results.papers.published_numbers import gpt3_runs

FILE = Path(results.papers.__path__[0]) / "gpt3_runs.csv"
WITHIN = 0.03
PAUSED = {  # the runs that slow blocks explain
    ("mlperf-v4.0", "cloud-tpu-v5p-12288-maxtext", 0),
    ("mlperf-v4.0", "cloud-tpu-v5p-12288-maxtext", 1),
    ("mlperf-v4.0", "cloud-tpu-v5p-12288-maxtext", 2),
    ("mlperf-v4.1", "cloud-tpu-trillium-3072-maxtext", 2),
}


def rows():
    with FILE.open() as file:
        return list(csv.DictReader(file))


def name(row):
    return row["source"], row["system"], int(row["run"])


def block_minutes(row):
    """The first block, and the median block for each evaluation after the first."""
    block = int(row["steps_between_evaluations"]) * float(row["seconds_per_step"])
    return (float(row["first_block_seconds"]) + (int(row["evaluations"]) - 1) * block) / 60


def slow_seconds(row):
    block = int(row["steps_between_evaluations"]) * float(row["seconds_per_step"])
    return sum(float(pair.split(":")[1]) - block for pair in row["slow_blocks"].split(";") if pair)


def test_twelve_systems_ran_three_times():
    runs = [name(row) for row in rows()]
    assert len(set(runs)) == 36 and len({run[:2] for run in runs}) == 12
    assert {int(row["start_step"]) * int(row["batch_size"]) for row in rows()} == {6_144_000}


def test_evaluations_are_counted_apart_from_steps():
    for row in rows():
        assert int(row["evaluations"]) * int(row["steps_between_evaluations"]) == int(row["steps"])
        assert int(row["steps_between_evaluations"]) * int(row["batch_size"]) == 24_576
        assert float(row["reached"]) <= float(row["target_value"])


def test_minutes_follow_from_the_median_block_in_32_of_36_runs():
    apart = {name(row): block_minutes(row) / float(row["minutes"]) - 1 for row in rows()}
    assert {run for run, error in apart.items() if abs(error) > WITHIN} == PAUSED
    assert statistics.median(map(abs, apart.values())) < 0.001


def test_slow_blocks_explain_every_run():
    for row in rows():
        assert block_minutes(row) + slow_seconds(row) / 60 == pytest.approx(float(row["minutes"]), rel=0.01)


def test_gpt3_runs_are_cited():
    table = gpt3_runs()
    assert table[["citation", "url", "terms", "minutes"]].notna().all(axis=None) and len(table) == len(rows())
