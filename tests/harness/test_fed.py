"""Training data that a function feeds, against the same data kept on the device; padding, against data without it."""

from collections.abc import Callable
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from harness.run import Record, Settings
from harness.runners import engine, program_choice
from harness.step import mesh, programs, rng
from harness.step.prefetch import Feeder
from harness.step.programs_key import programs_key
from harness.step.training import Spans
from harness.trials import search
from results.bad_input import BadInput
from results.plans.batch_study import BatchStudy
from workloads import data_stream as decoding, registry
from workloads.workload import Dataset, Examples, Splits, shapes_of


@pytest.fixture
def digits() -> Splits:
    return registry.DATASETS["digits"].load()


def measured(study: BatchStudy, row: Dataset, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Three trials of a study whose data set is another under the same name."""
    programs.forget()
    monkeypatch.setitem(registry.DATASETS, "digits", row)
    record = engine.run(study, search.draw(study, range(3)), settings)
    programs.forget()
    return record


@pytest.mark.parametrize(("strategy", "microbatches"), [pytest.param("map", 1, marks=pytest.mark.slow), ("vmap", 3)])
def test_fed_data_train_as_resident_data_do(
    make_study: Callable[..., BatchStudy],
    digits: Splits,
    strategy: str,
    microbatches: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = registry.DATASETS["digits"]._replace(splits=("validation",))
    train = digits.train
    assert train is not None
    calls: list[tuple[int, int, int]] = []

    def feed(seed: int, step: int, batch_size: int, positions: range) -> Examples:
        calls.append((seed, step, batch_size))
        assert positions == range(batch_size)
        per_epoch = len(train.labels) // batch_size
        _, key = rng.keys(np.uint32(seed))
        order = np.asarray(rng.epoch_order(key, np.int32(step // per_epoch), len(train.labels)))
        first = step % per_epoch * batch_size
        return Examples(*(array[order[first : first + batch_size]] for array in train))

    fed = row._replace(
        load=lambda: digits._replace(train=None), feed=feed, shapes=lambda: shapes_of(digits), splits=("validation",)
    )
    study = make_study(budget_steps=50, batch_size=70, targets=())
    settings = Settings(lanes=2, lane_strategy=strategy, microbatches=microbatches)
    theirs, ours = (measured(study, each, settings, monkeypatch) for each in (row, fed))
    assert np.array_equal(theirs.trial, ours.trial) and np.array_equal(theirs.step, ours.step)
    for name, values in theirs.metrics.items():
        np.testing.assert_allclose(ours.metrics[name], values, rtol=2e-5)
    # Each is made once: calls end at evaluations, which come every few steps, and so do the batches made ahead.
    assert sorted(calls) == sorted((trial.seed, step, 70) for trial in ours.trials for step in range(50))


def test_nothing_is_kept_of_trials_and_studies_that_ended(
    make_study: Callable[..., BatchStudy], digits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = digits.train
    assert train is not None
    stream = decoding.Stream(decoding.Source(list, len, 1))  # type: ignore[arg-type]
    kept: list[int] = []
    feeders: list[Feeder] = []
    take = Feeder.take

    def submit(fed: decoding._Fed, step: int) -> list[Future[Examples]]:
        kept.append(len(stream._ahead))  # trials of which batches are decoded
        made: Future[Examples] = Future()
        made.set_result(Examples(*(array[: fed.positions.stop] for array in train)))
        return [made]

    def taken(feeder: Feeder, spans: Spans, upcoming: np.ndarray) -> Examples:
        feeders.append(feeder)
        return take(feeder, spans, upcoming)

    monkeypatch.setattr(stream, "_submit", submit)
    monkeypatch.setattr(Feeder, "take", taken)
    row = registry.DATASETS["digits"]
    alone, shapes = digits._replace(train=None), shapes_of(digits)
    fed = row._replace(load=lambda: alone, feed=stream, shapes=lambda: shapes, splits=("validation",))
    monkeypatch.setitem(registry.DATASETS, "digits", fed)
    study = make_study(budget_steps=3, targets=())
    programs.forget()
    engine.run(study, search.draw(study, range(8)), Settings(lanes=1))
    programs.forget()
    assert kept and max(kept) <= 2  # the one that trains, and the one that ended last
    assert feeders and all(feeder._next is None for feeder in feeders)


def test_too_large_resident_data_are_refused_with_their_size(
    make_study: Callable[..., BatchStudy], digits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against 6 GB of them; streamed ones are not counted."""
    monkeypatch.setattr(mesh, "device_bytes", lambda: 3_000_000_000)
    study = make_study(budget_steps=5)
    workload = programs.workload_of(programs_key(study))
    train = workload.shapes.train
    assert train is not None
    large = workload.shapes._replace(train=Examples(train.inputs._replace(shape=(24_000_000, 8, 8, 1)), train.labels))
    refusal = r"\Adigits keeps 6\.1 GB of training data on each device, which has 3\.0 GB\. [^\n]+\Z"
    with pytest.raises(BadInput, match=refusal):
        program_choice._check_resident(study, workload._replace(shapes=large), mesh.device_bytes())
    program_choice._check_resident(study, workload._replace(shapes=large, feed=lambda *_: digits.validation), 3)
    monkeypatch.setattr(mesh, "device_bytes", lambda: 300_000)
    with pytest.raises(BadInput, match="digits keeps"):
        engine.run(study, search.draw(study, range(1)), Settings())


def test_padding_counts_in_no_loss_and_no_metric(
    make_study: Callable[..., BatchStudy], digits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole batches with two labels of padding for each example have the mean loss of the rest, by another road."""
    row = registry.DATASETS["digits"]
    workload = registry.workload(row._replace(padding=3), "fully_connected", {"widths": [16]}, "sgd")
    train = digits.train
    assert train is not None
    kept = train.labels[:64] != 3
    assert 0 < kept.sum() < 64
    batch = Examples(*(array[:64] for array in train))
    rest = Examples(*(array[:64][kept] for array in train))
    plain = registry.workload(row, "fully_connected", {"widths": [16]}, "sgd")
    ours, theirs = (one_gradient(each, examples) for each, examples in ((workload, batch), (plain, rest)))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def one_gradient(workload: object, examples: Examples) -> list[np.ndarray]:
    """The gradient of a batch of these examples, in two microbatches where it is even."""
    from harness.step import training
    from harness.step.batch_partition import Division

    params, state = workload.init(jax.random.key(0))  # type: ignore[attr-defined]
    division = Division(1, 2 - len(examples.labels) % 2)
    examples = Examples(*map(jnp.asarray, examples))
    count = len(examples.labels)
    batch = training.batch_of(examples, jnp.arange(count), jnp.int32(0), count, division)
    keys = rng.example_keys(np.uint32(1), np.int32(0), batch.positions)
    carry = training.TrainState(params, state, ())
    found = training.gradients(workload, division, carry, batch, keys, np.float32(0.1))[0]  # type: ignore[arg-type]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


@pytest.mark.slow
def test_evaluation_examples_may_be_longer_than_training_ones(
    make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As LM1B's are, whose sentences are cut in training only: more padding changes no loss but by rounding."""
    row = registry.DATASETS["pydoc"]
    splits = row.load()
    assert splits.train is not None
    few = Examples(*(array[:40] for array in splits.train))
    held = Examples(*(array[:24] for array in splits.validation))
    padded = Examples(*(np.pad(array, ((0, 0), (0, 9))) for array in held))
    options = {"layers": 1, "d_model": 8, "heads": 2, "d_ff": 16, "dropout": 0.1, "read_out": "untied"}
    about = {"dataset": "pydoc", "model": "transformer_decoder", "model_options": options}
    study = make_study(**about, batch_size=8, budget_steps=6)
    losses = {}
    for validation in (held, padded):
        data = Splits(few, validation, None)
        own = row._replace(load=lambda data=data: data, shapes=None, splits=("validation",), padding=0)
        own = own._replace(train_examples=40, evaluation_examples=24)
        programs.forget()
        monkeypatch.setitem(registry.DATASETS, "pydoc", own)
        record = engine.run(study, search.draw(study, range(2)), Settings())
        losses[validation.labels.shape[1]] = record.metrics["validation_loss"]
    programs.forget()
    short, long = (losses[length] for length in sorted(losses))
    np.testing.assert_allclose(long, short, rtol=1e-5)
