"""Published steps and their predictions: what is compared, and the errors on rows that were left out."""

import csv
import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import published_steps
from analysis.__main__ import main
from analysis.published_steps import COMPARED, DENSE, GPU, GPU_MIXTURE, MIXTURE, REASONS, PublishedStep
from results.bad_input import BadInput
from results.costs import decoder_counts, predictions, step_model
from results.costs.hardware import CORES, peak
from results.costs.step_constants import ANCHORED_RANGE, CONSTANTS, DENSE as DENSE_CLASS, OTHER, RANGES
from results.costs.step_model import Constants, Step
from results.papers import published_numbers

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import step_errors  # type: ignore[import-not-found]  # noqa: E402
from step_errors import Fitting, Summary, summary  # noqa: E402

PUBLISHED = list(csv.DictReader((ROOT / "results/papers/step_times.csv").read_text().splitlines()))
ALL, STATUSES = published_steps.load()
STEPS = [one for one in ALL if not one.validation]  # rows that were read before the fit
TPUS = [one for one in STEPS if one.subset == DENSE]
GPUS = [one for one in STEPS if one.subset == GPU]
MANUAL = (ROOT / "docs/predictions.md").read_text()


@pytest.fixture(scope="module")
def by_generation() -> np.ndarray:
    """Errors of dense steps on TPUs, each predicted without its chip generation."""
    return step_errors.left_out(TPUS, step_errors.generation, step_errors.by_form())


@pytest.fixture(scope="module")
def fitted() -> Constants:
    """Constants fitted to all steps."""
    return step_errors.constants(STEPS, lambda one: one.subset == DENSE)


def test_every_row_has_a_status_from_the_list() -> None:
    assert len(PUBLISHED) == 138 + 216
    assert [row["row"] for row in PUBLISHED] == list(STATUSES)
    assert set(STATUSES.values()) == {COMPARED, *REASONS}
    counts = Counter(STATUSES.values())
    mixtures = sum(one.subset in (MIXTURE, GPU_MIXTURE) for one in ALL)
    assert counts[COMPARED] - mixtures >= 65
    assert counts[COMPARED] >= 240
    for status, count in counts.items():
        assert re.search(rf"\| {status}[^|\n]*\| {count} \|", MANUAL), status


def test_rows_are_cited_and_agree_with_the_hardware_table() -> None:
    table = published_numbers.step_times()
    assert table[["citation", "url", "terms", "path"]].notna().all(axis=None)
    for row in PUBLISHED:
        if row["peak_tflops"]:
            chip = {"v4": "v4p"}.get(row["chip"], row["chip"])
            ours = peak(chip, row["precision"]) * CORES.get(row["chip"], 1)
            assert ours == pytest.approx(float(row["peak_tflops"]) * 1e12, rel=0.005), row["row"]


def test_counts_equal_those_that_sources_state() -> None:
    compared = 0
    for one in STEPS:
        row = next((row for row in PUBLISHED if row["row"] == one.row), None)
        if row is None or not row["flops_parameters"]:
            continue
        assert decoder_counts.active_parameters(one.step.decoder) == int(row["flops_parameters"]), one.row
        if "W" not in row["flops_formula"]:  # sources differ in how they count windows
            causal = "12LHhS" not in row["flops_formula"]
            attention = 3 * decoder_counts.attention_flops(one.step.decoder, one.step.length, causal=causal)
            assert attention == float(row["attention_flops_per_token"]), one.row
        compared += 1
    assert compared >= 40
    shapes = published_steps.decoders()
    assert 15.5e9 < decoder_counts.stored_parameters(shapes["16B"]) < 16.5e9
    assert 174e9 < decoder_counts.stored_parameters(shapes["gpt3-175b"]) < 176e9


def test_published_seconds_agree_with_published_flops() -> None:
    row = next(row for row in PUBLISHED if row["row"] == "R001")
    one = STEPS[0]
    tokens = int(row["batch_size"]) * int(row["sequence_length"])
    rate = tokens * published_steps.flops(one.step.decoder, one.step.length) / one.seconds / 8 / 1e12
    assert rate == pytest.approx(float(row["tflops_per_chip"]), rel=1e-3)
    assert not any(one.stated for one in STEPS if one.row.startswith("maxtext "))
    for one in STEPS:
        devices = math.prod(one.step.mesh.values())
        assert devices == one.step.devices, one.row


def test_constants_are_those_of_the_fit(fitted: Constants) -> None:
    assert len(CONSTANTS) <= 6
    for ours, found in zip(CONSTANTS, fitted, strict=True):
        assert ours == pytest.approx(found, rel=0.01)
    assert 0 < CONSTANTS.products < 1
    assert 0 < CONSTANTS.switched < 1
    assert CONSTANTS.attention > 1


def test_single_operations_bound_the_constants() -> None:
    table = published_numbers.micro_measurements()
    assert len(table) == 43
    assert table[["citation", "url", "terms"]].notna().all(axis=None)
    table = table.dropna(subset=["peak", "measured"])
    share = table["measured"] / table["peak"]
    matmuls, copies = (share[table["what"].str.startswith(word)] for word in ("matmul", "HBM copy"))
    assert CONSTANTS.products < matmuls.max() < 0.91
    assert 0.8 < copies.max() < 0.9
    assert CONSTANTS.activations * copies.max() > 1  # more passes than those of the matmuls themselves


def in_manual(name: str, *found: Summary) -> None:
    """Checks a row of numbers in the manual."""
    assert f"| {name} | " + " | ".join(map(str, found)) + " |" in MANUAL, (name, *map(str, found))


def beats_baselines(steps: list[PublishedStep], fitting: Fitting) -> tuple[Summary, Summary]:
    """Checks that the 90 % quantiles are below those of both baselines, and returns both errors."""
    result = []
    for group in (step_errors.generation, step_errors.family):
        ours = summary(step_errors.left_out(steps, group, fitting))
        for baseline in (step_errors.half_of_peak, step_errors.one_efficiency):
            assert ours.p90 < summary(step_errors.left_out(steps, group, baseline)).p90
        result.append(ours)
    return result[0], result[1]


def test_left_out_errors_on_tpus(by_generation: np.ndarray) -> None:
    generation, family = beats_baselines(TPUS, step_errors.by_form())
    assert generation.rows == 87
    assert (generation.median <= 0.20, generation.p90 <= 0.32) == (True, True)
    assert (family.median <= 0.18, family.p90 <= 0.33) == (True, True)
    anchored = summary(step_errors.anchored(TPUS, by_generation))
    assert (anchored.median <= 0.10, anchored.p90 <= 0.25) == (True, True)
    ratios = step_errors.ratios(TPUS, by_generation)
    own, unchanged = summary(ratios.predicted), summary(ratios.no_change)
    assert (own.median <= 0.045, round(own.p90, 3) <= 0.11) == (True, True)
    assert own.median < unchanged.median
    assert own.p90 < unchanged.p90
    in_manual("dense on TPUs", generation, family, anchored, own)
    in_manual("exponent 1.5, weights twice (used)", generation, family, anchored, own)
    in_manual("next chip count", own, unchanged)
    every = step_errors.ratios(TPUS, by_generation, every=True)
    assert summary(every.predicted).p90 < summary(every.no_change).p90
    in_manual("all pairs of chip counts", summary(every.predicted), summary(every.no_change))


def four(steps: list[PublishedStep], fitting: Fitting) -> list[Summary]:
    """Returns the four errors in a row of the manual."""
    found = step_errors.left_out(steps, step_errors.generation, fitting)
    family = step_errors.left_out(steps, step_errors.family, fitting)
    ratios = step_errors.ratios(steps, found).predicted
    return [*map(summary, (found, family, step_errors.anchored(steps, found), ratios))]


def test_left_out_errors_on_gpus_and_of_mixtures(fitted: Constants) -> None:
    generation, family = beats_baselines(GPUS, step_errors.of_gpus(fitted.attention))
    assert (generation.median <= 0.14, generation.p90 <= 0.30) == (True, True)
    assert family.p90 <= 0.30
    in_manual("GPUs", *four(GPUS, step_errors.of_gpus(fitted.attention)))
    found = step_errors.left_out(GPUS, step_errors.generation, step_errors.of_gpus(fitted.attention))
    ratio = 2 ** np.median(step_errors.ratios(GPUS, found).predicted)
    assert f"the ratios are {1 - ratio:.0%} too low".replace("%", " %") in MANUAL
    on_tpus = [one for one in STEPS if one.subset != GPU]
    trained = step_errors.by_form(trained=lambda one: one.subset == DENSE)
    beats_baselines(on_tpus, trained)
    in_manual("dense and mixtures on TPUs", *four(on_tpus, trained))
    mixtures = np.array([one.subset == MIXTURE for one in on_tpus])
    alone = summary(step_errors.left_out(on_tpus, step_errors.generation, trained)[mixtures])
    assert f"Their errors are {alone}." in MANUAL
    for steps in (TPUS, GPUS, on_tpus):
        in_manual("– at half of the peak", *four(steps, step_errors.half_of_peak))
        in_manual("– one efficiency", *four(steps, step_errors.one_efficiency))


def coverage() -> pd.DataFrame:
    """Errors in log2, classes and whether the stated range holds the published seconds, for every compared row."""
    rows = published_steps.table()
    rows = rows[rows["status"] == COMPARED]
    inside = rows["published_seconds"].between(rows["predicted_low"], rows["predicted_high"])
    return rows.assign(error=np.log2(rows["ratio"]).abs(), inside=inside)


def test_stated_ranges_hold_published_rows_by_class() -> None:
    """Every row, and separately those that were read after the fit. Shares are also in the manual."""
    rows = coverage()
    assert len(rows) == len(ALL) >= 300
    for subset in (rows, rows[rows["validation"]]):
        for name, own in subset.groupby("range_class"):
            assert own["inside"].mean() >= 0.85, name
    assert set(rows["range_class"]) == set(RANGES)
    factors = rows["predicted_high"] / rows["predicted_seconds"]
    assert np.allclose(factors, rows["range_class"].map(RANGES).astype(float))
    for name, own in rows.groupby("range_class"):
        fresh = own[own["validation"]]
        cells = f"{name} | × ÷ {RANGES[str(name)]:g} | {own['inside'].sum()} of {len(own)}"
        assert f"| {cells} | {fresh['inside'].sum()} of {len(fresh)} |" in MANUAL, cells
    for (name, framework), own in rows.groupby(["range_class", "framework"]):
        found = summary(own["error"].to_numpy(float))
        cells = f"| {name} | {framework} | {len(own)} | {found} | {own['inside'].mean():.0%} |"
        assert cells.replace("%", " %") in MANUAL, cells


def test_left_out_errors_by_framework() -> None:
    """Dense 16-bit steps on GPUs, each predicted from a fit to all other frameworks."""
    classes = published_steps.classes_of(ALL, step_errors.predicted(ALL))
    steps = [one for one, name in zip(ALL, classes, strict=True) if one.subset == GPU and name == DENSE_CLASS]
    errors = step_errors.left_out(steps, lambda one: one.framework, step_errors.of_gpus(CONSTANTS.attention))
    for name in sorted({one.framework for one in steps}):
        found = summary(errors[[one.framework == name for one in steps]])
        assert f"| {name} | {found.rows} | {found} |" in MANUAL, (name, found)
    assert f"| all | {len(steps)} | {summary(errors)} |" in MANUAL, summary(errors)


def test_classes_are_those_of_the_documented_steps() -> None:
    """A class by hand for each row: 16 bits, no experts, 0.45 s, and a device with such rows."""
    for one, seconds, name in zip(
        ALL,
        step_errors.predicted(ALL),
        published_steps.classes_of(ALL, step_errors.predicted(ALL)),
        strict=True,
    ):
        dense = one.step.precision in ("bf16", "fp16") and one.chip != "h200" and seconds >= 0.45
        assert name == ("mixture" if one.step.decoder.experts else "dense" if dense else "other"), one.row


def test_anchored_range_holds_within_a_framework() -> None:
    found = []
    predicted = step_errors.predicted(ALL)
    errors = np.log2(predicted / np.array([one.seconds for one in ALL]))
    classes = published_steps.classes_of(ALL, predicted)
    for i, one in enumerate(ALL):
        for j, other in enumerate(ALL):
            same = (one.chip, one.framework) == (other.chip, other.framework)
            if i != j and same and classes[i] == classes[j] == DENSE_CLASS:
                found.append(abs(errors[i] - errors[j]))
    share = (np.array(found) <= math.log2(ANCHORED_RANGE)).mean()
    assert 0.85 <= share <= 0.97
    assert f"holds {share:.0%} of".replace("%", " %") in MANUAL
    rows = published_steps.table("R076").set_index("row")
    factors = rows["predicted_high"] / rows["predicted_seconds"]
    assert factors["R077"] == pytest.approx(ANCHORED_RANGE)  # MaxText on H100
    assert factors["R120"] == pytest.approx(RANGES[DENSE_CLASS])  # another framework
    assert factors["T274"] == pytest.approx(RANGES["mixture"])


def test_published_and_predicted_numbers_never_mix() -> None:
    table = published_steps.table()
    assert not any(name.startswith("measured") for name in table)
    compared, others = table[table["status"] == COMPARED], table[table["status"] != COMPARED]
    predicted = [name for name in table if name.startswith("predicted_")]
    assert others[[*predicted, "published_seconds", "ratio"]].isna().all(axis=None)
    stated = {row["row"]: row["step_seconds"] for row in PUBLISHED if row["step_seconds"]}
    layouts = published_numbers.layouts()
    stated |= {f"{row.source} {row.row}": row.step_seconds for row in layouts.itertuples()}
    for row in compared[compared["published_from"] == "seconds"].to_dict("records"):
        assert row["published_seconds"] == float(stated[row["row"]])
    assert (compared["predicted_low"] < compared["predicted_seconds"]).all()
    assert (compared["predicted_seconds"] < compared["predicted_high"]).all()
    anchored = published_steps.table("R048")
    pd.testing.assert_series_equal(anchored["published_seconds"], table["published_seconds"])
    on_v5p = anchored["chip"] == "v5p"
    assert anchored.set_index("row").loc["R048", "ratio"] == pytest.approx(1)
    assert (anchored.loc[~on_v5p, "ratio"].dropna() == table.loc[~on_v5p, "ratio"].dropna()).all()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert not main(["layouts", "--published"])
    printed = capsys.readouterr().out
    assert "published s" in printed
    assert "predicted s" in printed
    assert f"{Counter(STATUSES.values())[COMPARED]} of 354 rows: compared" in printed
    for words in (["--published", "--anchor", "R047"], ["--store", "x", "--anchor", "R048"], ["--published", "--fit"]):
        assert main(["layouts", *words]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1


def factor(step: Step) -> float:
    seconds = predictions.of_step(step)
    assert seconds.high / seconds.middle == pytest.approx(seconds.middle / seconds.low)
    return seconds.high / seconds.middle


def test_steps_that_were_not_published() -> None:
    small = STEPS[0].step
    seconds = predictions.of_step(small)
    assert factor(small) == pytest.approx(RANGES[DENSE_CLASS])
    twice = predictions.of_step(small._replace(devices=16, batch_size=48, mesh={"fsdp": 16}))
    assert twice.middle == pytest.approx(seconds.middle, rel=0.02)
    more = predictions.of_step(small._replace(slices=2, devices=16, batch_size=48, mesh={"fsdp": 8, "between": 2}))
    assert more.middle > seconds.middle
    assert predictions.of_step(small._replace(precision="bfloat16")) == seconds
    mixture = small._replace(decoder=published_steps.decoders()["gpt-oss-120b"])
    others = small._replace(row="h200"), small._replace(precision="int8"), small._replace(batch_size=1, length=64)
    assert factor(mixture) == pytest.approx(RANGES["mixture"])
    assert [factor(step) for step in others] == pytest.approx([RANGES[OTHER]] * 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mesh": {"fsdp": 4}}, ("'fsdp': 4", "4 devices", "not 8")),
        ({"mesh": {"fsdp": 8, "data": 2}}, ("16 devices", "not 8")),
        ({"mesh": {}}, ("1 devices", "not 8")),
        ({"mesh": {"sequence": 8}}, ("mesh axis 'sequence'", "context")),
        ({"mesh": {"fsdp_transpose": 8}}, ("mesh axis 'fsdp_transpose'", "fsdp")),
        ({"mesh": {"fsdp": 16, "data": 0.5}}, ("data=0.5",)),
        ({"mesh": {"fsdp": -8, "data": -1}}, ("fsdp=-8",)),
        ({"kept": frozenset({"querry"})}, ("kept tensor 'querry'", "query")),
        ({"precision": "bf61"}, ("precision of v6e 'bf61'", "bf16")),
        ({"precision": "fp8"}, ("precision of v6e 'fp8'", "int8")),
        ({"precision": "float32"}, ("precision of v6e 'float32'",)),
        ({"row": "b200"}, ("device 'b200'",)),
        ({"row": "cpu"}, ("device 'cpu'",)),
        ({"batch_size": 0}, ("batch_size=0",)),
        ({"slices": 0}, ("slices=0",)),
        ({"batch_size": math.nan}, ("batch_size=nan",)),
        ({"length": 0}, ("length=0",)),
        ({"devices": 0, "mesh": {}}, ("devices=0",)),
    ],
)
def test_impossible_steps_are_refused_in_one_line(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        predictions.of_step(STEPS[0].step._replace(**changes))
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_links_between_nodes_of_gpus_take_time() -> None:
    """Llama 3 8B on H100s, with equal work each. In a node, links are hidden. Between nodes, they overlap partly."""
    shape = published_steps.decoders()["llama3.1-8b"]

    def step(devices: int, **mesh: int) -> Step:
        return Step(shape, 8192, 2 * devices, "h100", devices, 1, mesh, "bf16", frozenset())

    near, more, many = (step_model.terms(step(n, fsdp=n)) for n in (8, 16, 4096))
    assert near.far == 0
    parameters = decoder_counts.stored_parameters(shape)
    # By hand: two gathers and a scatter in a ring of 2 nodes, of which each device sends an eighth, at 50 GB/s.
    assert more.far == pytest.approx(3 * 2 * parameters * (1 / 2) / 8 / 5e10)
    assert many.far == pytest.approx(3 * 2 * parameters * (511 / 512) / 8 / 5e10)
    # Data parallelism between groups of 8 all-reduces float32 gradients, of which each device has an eighth.
    pods = step_model.terms(step(16, fsdp=8, between=2))
    assert pods.far == pytest.approx(2 * 4 * parameters / 8 * (1 / 2) / 5e10)
    seconds = [predictions.of_step(step(n, fsdp=n)).middle for n in (8, 16, 4096)]
    assert seconds[0] < seconds[1] < seconds[2] < 1.2 * seconds[0]
    assert step_model.terms(step(16, data=2, tensor=8)).far > 0  # the all-reduce of gradients crosses nodes
    on_gpus = [one for one in ALL if one.subset in (GPU, GPU_MIXTURE)]
    parts = step_model.parts(published_steps.arrays(on_gpus), CONSTANTS)
    longest = parts.products + parts.attention >= np.maximum(parts.memory, parts.links)
    assert f"{longest.sum()} of the\n{len(on_gpus)} published steps" in MANUAL
    across, within = step_model.terms(step(16, tensor=16)), step_model.terms(step(16, data=2, tensor=8))
    assert across.far > 10 * within.far


def test_memory_by_hand() -> None:
    """Llama 3 8B on 8 chips with FSDP: 12 bytes of each parameter, and 2 of each kept activation of 3 sequences."""
    layers, wide, keys, hidden, vocabulary, length = 32, 4096, 1024, 14336, 128256, 8192
    parameters = layers * (2 * wide**2 + 2 * wide * keys + 3 * wide * hidden) + 2 * vocabulary * wide
    shape = published_steps.decoders()["llama3.1-8b"]
    step = Step(shape, length, 24, "v6e", 8, 1, {"fsdp": 8}, "bf16", frozenset(("query", "attention", "down")))
    held = 12 * parameters / 8 + 2 * 3 * length * layers * 4 * wide
    assert step_model.held_bytes(step) == pytest.approx(held)
    # Of 16 microbatches, the first of 4 stages holds 4 at once.
    stages = step._replace(mesh={"pipeline": 4, "data": 2}, batch_size=64, micro_batch=2, kept=frozenset())
    assert step_model.held_bytes(stages) == pytest.approx(12 * parameters / 4 + 2 * 8 * length * layers * wide / 4)
    rows = published_steps.table()
    assert rows["predicted_fits"].eq(False).sum() == 88
    assert rows.loc[rows["status"] != COMPARED, "predicted_fits"].isna().all()


def test_links_and_bubbles_by_hand() -> None:
    shape = STEPS[0].step.decoder
    own = decoder_counts.stored_parameters(shape)
    step = Step(shape, 8192, 64, "v5p", 8, 1, {"fsdp": 8}, "bf16", frozenset())
    assert sum(step_model.sent_by_axis(step).values()) == pytest.approx(6 * own * 7 / 8)
    step = step._replace(mesh={"data": 8})
    assert sum(step_model.sent_by_axis(step).values()) == pytest.approx(8 * own * 7 / 8)
    step = step._replace(mesh={"tensor": 8})
    stream = 32 * 8192 * 64 / 8 * 4096 * 2
    assert sum(step_model.sent_by_axis(step).values()) == pytest.approx(5 * 2 * 7 * stream)
    step = step._replace(mesh={"pipeline": 4, "data": 2}, micro_batch=2, virtual_stages=2)
    assert step_model.terms(step).bubble == pytest.approx(3 / (16 * 2))
