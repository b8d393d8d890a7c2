"""The envelope against looking at every row, for any target, rule and number of trials."""

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings, strategies as st

from results import durable
from results.plans import schema
from results.plans.study import Target
from results.rules import answers
from results.rules.answers import MINIMUM, Rule
from results.rules.descriptions import of_study
from results.storage import decisive_rows, envelope
from results.storage.compaction import Piece

from ..by_hand import METRIC, Ran, answer_of, study, tables

HASHES = {"studies": "a" * 64, "trials": "b" * 64, "measurements": "c" * 64}
RECORD = " ".join(HASHES.values()).encode()


def read(trials: Mapping[int, Ran], rule: Rule, dtype: type = np.float64) -> envelope.Envelope:
    data, _ = envelope.build(study(), tables(trials, dtype), HASHES)
    found = envelope.parse(data, RECORD, rule)
    assert found is not None
    return found


values = st.one_of(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, np.nan, np.inf]), st.floats(-1, 1, width=32))
steps = st.lists(st.integers(0, 12), unique=True, max_size=8).map(sorted)
curves = steps.flatmap(
    lambda s: st.lists(values, min_size=len(s), max_size=len(s)).map(lambda v: list(zip(s, v, strict=True)))
)
ran = st.builds(Ran, st.sampled_from(["COMPLETE", "COMPLETE", "INFEASIBLE", "INCOMPLETE"]), curves)
studies = st.lists(st.tuples(st.integers(0, 40), ran), unique_by=lambda pair: pair[0], max_size=9).map(
    lambda pairs: dict(sorted(pairs))
)
rules = st.one_of(st.just(MINIMUM), st.builds(Rule, st.just("released"), st.integers(1, 10)))


@pytest.mark.parametrize("edges", [decisive_rows.MOST_EDGES, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_question_is_answered_as_by_looking_at_every_row(monkeypatch, dtype, edges):
    monkeypatch.setattr(decisive_rows, "MOST_EDGES", edges)

    @settings(max_examples=150, deadline=None)
    @given(studies, values.filter(np.isfinite), rules)
    def check(trials, value, rule):
        found = envelope.answers([read(trials, rule, dtype)], Target(METRIC, value), rule)
        assert found.get(study().name) == answer_of(trials, value, rule, dtype)

    check()


def noisy(trials: int = 60, rows: int = 80, seed: int = 0) -> dict[int, Ran]:
    rng = np.random.default_rng(seed)
    made = {}
    for trial in range(trials):
        fall = rng.uniform(0.1, 0.5) + np.exp(-np.arange(rows) * rng.uniform(0.01, 0.3)) + rng.normal(0, 0.02, rows)
        status = rng.choice(["COMPLETE", "COMPLETE", "INCOMPLETE"])
        made[trial] = Ran(str(status), list(zip(range(5, 5 * rows + 5, 5), np.round(fall, 3).tolist(), strict=True)))
    return made


def test_large_study_is_answered_from_few_rows():
    trials = noisy()
    whole = sum(len(ran.rows) for ran in trials.values())
    for rule in (MINIMUM, Rule("released", 1), Rule("released", 20), Rule("released", 1000)):
        found = read(trials, rule)
        assert sum(batch.num_rows for batch in found.rows) < whole / 10
        for value in {measured for ran in trials.values() for _, measured in ran.rows[::7]}:
            answer = envelope.answers([found], Target(METRIC, value), rule).get(study().name)
            assert answer == answer_of(trials, value, rule)


def test_the_rule_minimum_takes_the_first_batch_alone():
    data, rows = envelope.build(study(), tables(noisy()), HASHES)
    minimum, released = (
        envelope.parse(data, RECORD, Rule(name, first)) for name, first in [("minimum", None), ("released", 9)]
    )
    assert minimum.rows[0].num_rows < rows / 2
    assert rows == sum(batch.num_rows for batch in released.rows)
    assert released.rows[0].equals(minimum.rows[0])
    start = data[:-200]  # reaches into the second batch
    assert envelope.parse(start, RECORD, MINIMUM) == minimum
    assert envelope.parse(start, RECORD, Rule("released", 9)) is None


def test_many_studies_with_other_columns_are_answered_at_once():
    rule = Rule("released", 2)
    asked, expected = [], {}
    for i, dtype in enumerate([np.float32, np.float64] * 4):
        trials = {1: Ran("COMPLETE", [(3, 0.1 if i % 4 else 0.5), (9, 0.05 + i / 100)])} if i else {}
        data, _ = envelope.build(study(batch_size=i + 1), tables(trials, dtype), HASHES)
        asked.append(envelope.parse(data, RECORD, rule))
        expected[study(batch_size=i + 1).name] = answer_of(trials, 0.1, rule, dtype)
    target = Target(METRIC, 0.1)
    assert envelope.answers(asked, target, rule) == {name: answer for name, answer in expected.items() if answer}
    assert envelope.answers(asked, Target("test_loss", 0.1), rule) == {}


def test_what_a_table_shows_beside_the_answers():
    trials = {3: Ran("COMPLETE", [(1, 0.5)]), 5: Ran("INFEASIBLE", []), 8: Ran("COMPLETE", [(1, 0.5), (2, 0.4)])}
    found = read(trials, MINIMUM).description
    assert (found.study, found.source, found.dataset, found.batch_size) == (study().name, "made-up", "a/b", 8)
    assert (found.complete, found.infeasible, found.incomplete, found.rows) == (2, 1, 0, 3)
    assert found.metrics == {METRIC: "double"}
    assert found.seconds_per_epoch is None


@pytest.mark.parametrize("emulated", [False, True, None])
def test_seconds_per_epoch_come_from_the_newest_real_run(emulated):
    runs = {"study": ["s"] * 3, "seconds_per_epoch": [1.0, 2.0, None], "emulated": [True, emulated, None]}
    piece = tables({1: Ran("COMPLETE", [])})
    found = of_study(study(), schema.build(schema.STUDIES, runs, {}), piece.trials, {}, 0)
    assert found.seconds_per_epoch == (None if emulated else 2.0)


def test_envelope_of_other_files_or_format_is_ignored(monkeypatch):
    data, _ = envelope.build(study(), tables(noisy(3)), HASHES)
    assert envelope.parse(data, RECORD, MINIMUM)
    for table in envelope.HASHED:
        assert envelope.parse(data, RECORD.replace(HASHES[table].encode(), b"d" * 64), MINIMUM) is None
    assert envelope.parse(data, RECORD, Rule("maximum")) is None
    assert envelope.parse(b"", RECORD, MINIMUM) is None
    assert envelope.parse(data[:200], RECORD, MINIMUM) is None
    monkeypatch.setattr(envelope, "FORMAT", envelope.FORMAT + 1)
    assert envelope.parse(data, RECORD, MINIMUM) is None


def rewritten(change: Callable[[dict[str, Any], pa.Table], tuple[dict[str, Any], pa.Table]]) -> bytes:
    """A valid envelope after a change to its head and its rows, as one batch."""
    data, _ = envelope.build(study(), tables(noisy(3)), HASHES)
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    head, table = change(json.loads(table.schema.metadata[envelope.KEY]), table)
    table = table.replace_schema_metadata({envelope.KEY: json.dumps(head)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def about(**fields: Any) -> Callable[[dict[str, Any], pa.Table], tuple[dict[str, Any], pa.Table]]:
    return lambda head, table: (head | {"about": head["about"] | fields}, table)


@pytest.mark.parametrize(
    "change",
    [
        about(batch_size="8"),
        about(batch_size=2**40),
        about(complete=-1),
        about(study=None),
        about(further=1),
        about(targets=[["test_loss", 1.0, 2]]),
        about(targets=[["tset_loss", 1.0]]),
        about(targets=7),
        about(metrics={METRIC: "string"}),
        about(metrics={"trial": "double"}),
        about(metrics=[METRIC]),
        about(seconds_per_epoch="1"),
        lambda head, table: (head | {"about": []}, table),
        lambda head, table: (head | {"rules": {"minimum": 99}}, table),
        lambda head, table: (head | {"rules": {"minimum": "1"}}, table),
        lambda head, table: ([], table),
        lambda head, table: (head | {"schema": -5}, table),
        lambda head, table: (head | {"schema": 99}, table),
    ],
)
def test_what_no_writer_writes_is_ignored(change):
    assert envelope.parse(rewritten(lambda head, table: (head, table)), RECORD, MINIMUM)
    assert envelope.parse(rewritten(change), RECORD, MINIMUM) is None


@pytest.mark.parametrize(
    "change",
    [
        about(metrics={METRIC: "double", "test_loss": "double"}),
        lambda head, table: (head, table.drop_columns("rank")),
        lambda head, table: (head, table.set_column(2, "step_before", table["step"])),
        lambda head, table: (head, table.set_column(2, "step_before", pc.negate(table["step"]))),
        lambda head, table: (head, table.set_column(0, "trial", table["trial"].cast(pa.float64()))),
        lambda head, table: (head, table.set_column(0, "trial", pa.nulls(len(table), pa.int32()))),
    ],
)
def test_rows_that_no_writer_writes_are_refused(change):
    found = envelope.parse(rewritten(change), RECORD, MINIMUM)
    with pytest.raises(durable.Damaged, match="verify"):
        envelope.answers([found], Target(METRIC, 0.5), MINIMUM)


def test_no_flipped_byte_does_more_than_change_an_answer():
    data, _ = envelope.build(study(), tables(noisy(3)), HASHES)
    for place in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        found = envelope.parse(bytes(flipped), RECORD, Rule("released", 2))
        if found:
            with contextlib.suppress(durable.Damaged):
                envelope.answers([found], Target(METRIC, 0.5), Rule("released", 2))


def test_an_interval_is_empty_at_step_0_alone():
    for before, step, empty in [(0, 0, False), (0, 1, False), (5, 6, False), (6, 6, True), (7, 6, True), (-1, 6, True)]:
        rows = pa.table({"step_before": pa.array([0, before], pa.int32()), "step": pa.array([1, step], pa.int32())})
        assert envelope.has_empty_interval(rows) == empty
    found = read({1: Ran("COMPLETE", [(0, 0.1), (4, 0.05)])}, MINIMUM)
    assert envelope.answers([found], Target(METRIC, 0.1), MINIMUM)[study().name] == (0, 0, 1)


def test_a_head_of_any_depth_is_ignored():
    deep = b"[" * 100_000 + b"]" * 100_000
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("step", pa.int32())], {envelope.KEY: deep})):
        pass
    assert envelope.parse(sink.getvalue().to_pybytes(), RECORD, MINIMUM) is None


def test_envelope_with_gaps_in_metrics_equals_its_table():
    data, _ = envelope.build(study(), tables({1: Ran("COMPLETE", [(1, 0.5), (2, np.nan), (3, 0.4)])}), HASHES)
    table = pa.ipc.open_stream(data).read_all()
    gaps = table.set_column(
        4, METRIC, pa.chunked_array([np.full(len(chunk), np.nan) for chunk in table[METRIC].chunks])
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, gaps.schema) as stream:
        stream.write_table(gaps)
    written = sink.getvalue().to_pybytes()
    assert envelope.is_same(data, table) and envelope.is_same(written, pa.ipc.open_stream(written).read_all())
    assert not envelope.is_same(data, gaps)


BOTH = (METRIC, "test_error")


def with_gaps(rng: np.random.Generator) -> dict[int, list[tuple[int, float | None, float | None]]]:
    """Trials of rows (step, two metrics): each is a value, NaN, or None where it was not measured."""
    made = {}
    for trial in range(rng.integers(1, 5)):
        steps = sorted(rng.choice(13, rng.integers(0, 9), replace=False).tolist())
        draws = rng.choice([0.1, 0.2, 0.3, 0.4, np.nan, None, None], (len(steps), 2)).tolist()
        made[3 * trial] = [(step, *values) for step, values in zip(steps, draws, strict=True)]
    return made


def tables_of_both(trials: Mapping[int, list], dtype: type) -> Piece:
    piece = tables({at: Ran("COMPLETE", [row[:2] for row in rows]) for at, rows in trials.items()}, dtype)
    other = pa.array([row[2] for rows in trials.values() for row in rows], pa.from_numpy_dtype(dtype))
    return piece._replace(measurements=piece.measurements.append_column(BOTH[1], other))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_evaluations_with_the_metric_start_intervals(dtype):
    """Every way to an answer from memory against plain loops, over curves whose two metrics have gaps of their own."""
    rng, ways = np.random.default_rng(7), 0
    for _ in range(60):
        trials = with_gaps(rng)
        piece = tables_of_both(trials, dtype)
        data, count = envelope.build(study(), piece, HASHES)
        assert count == len(pa.ipc.open_stream(data).read_all())
        for at, metric in enumerate(BOTH, 1):
            alone = {trial: Ran("COMPLETE", [(row[0], row[at]) for row in rows]) for trial, rows in trials.items()}
            for value in (0.1, 0.3):
                for rule in (MINIMUM, Rule("released", 2)):
                    found = envelope.answers([envelope.parse(data, RECORD, rule)], Target(metric, value), rule)
                    expected = answer_of(alone, value, rule, dtype)
                    assert found.get(study().name) == expected, (trials, metric, value, rule)
                    ways += expected is not None
                answer = answer_of(alone, value, MINIMUM, dtype)
                assert answers.of_table(piece.measurements, Target(metric, value)).answer() == answer
                own = pa.table({name: piece.measurements[name] for name in ("study", "trial", "step", metric)})
                no_nan = own.filter(pc.invert(pc.fill_null(pc.is_nan(own[metric]), False))).to_pandas()
                in_memory = answers.of_frame(no_nan, Target(metric, value)).answer()
                lost = {
                    t: ran._replace(rows=[r for r in ran.rows if r[1] is None or r[1] == r[1]])
                    for t, ran in alone.items()
                }
                assert in_memory == answer_of(lost, value, MINIMUM, dtype)
    assert ways > 200


@pytest.mark.parametrize("highest", [10, 1000, 2**31 - 1])
def test_places_of_steps_do_not_depend_on_how_they_are_found(highest):
    step = np.random.default_rng(3).integers(0, highest, 400, np.int32, endpoint=True)
    distinct = sorted(set(step.tolist()))
    found = decisive_rows._places(step)
    assert found.tolist() == [distinct.index(each) + 1 for each in step.tolist()]
    assert found.dtype == np.min_scalar_type(len(distinct))
