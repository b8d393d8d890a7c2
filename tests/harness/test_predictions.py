"""Predictions: sums of parts, ranges, and calibrations that are what they say."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from analysis import published_steps
from harness.compiled import jaxpr_cost
from harness.costs import network_costs
from harness.step import programs
from results.costs import collectives, predictions, step_constants
from results.costs.collectives import Collective, exchange_seconds
from results.costs.counts import Work
from results.costs.hardware import HALVES, HARDWARE, hardware_of
from results.costs.predictions import Rates
from results.papers import published_numbers
from tests.harness import on_tpu
from tests.harness.counted import step_work
from workloads import losses, registry
from workloads.layouts.shapes import SHAPES, dataset

ROOT = Path(__file__).parents[2]
SUM = predictions.CPU.constants
RATES = Rates(1e9, 1e8, SUM, "cpu", 1e-6, 1e-3, 1e-3, 2.0, False, "made up")


def test_cpu_seconds_sum_products_traffic_and_operations() -> None:
    work = Work(2e9, 1e8, 5e7, 5e7, 1e8, operations=1e6)
    assert predictions.seconds(work, RATES) == pytest.approx((6.0, 3.0, 12.0))
    assert predictions.seconds(work, RATES, lanes=4).middle == pytest.approx(5.25)  # which share the operations
    assert predictions.seconds(work, RATES, links=2.0).middle == pytest.approx(8.0)


def test_seconds_on_accelerators_are_those_of_the_fitted_model() -> None:
    """By hand: matmuls at 0.771 of 459 TFLOP/s, activations 5.19 times, weights and scores twice at 2.8 TB/s."""
    work = Work(4.59e14, 2.8e11, 1.4e11, 2.8e11, 1e15, operations=1000)
    tpu, gpu = (predictions.rates(row, backend, "bfloat16") for row, backend in (("v5p", "tpu"), ("h100", "gpu")))
    assert tpu is not None and gpu is not None
    memory = 5.19 * 0.1 + 2 * 0.15
    by_hand = ((1 / 0.771) ** 1.5 + memory**1.5 + 0.5**1.5) ** (1 / 1.5) + 2e-4
    assert predictions.seconds(work, tpu, links=0.5).middle == pytest.approx(by_hand)
    # On a GPU, the longest of them: matmuls at 0.471 of 989 TFLOP/s, or memory at 3.35 TB/s.
    assert predictions.seconds(work, gpu).middle == pytest.approx(4.59 / 9.89 / 0.471, rel=1e-3)
    bound = work._replace(activation_bytes=2e12)
    assert predictions.seconds(bound, gpu).middle == pytest.approx((5.19 * 2e12 + 2 * 4.2e11) / 3.35e12, rel=1e-3)
    assert predictions.seconds(work, gpu, links=3.0).middle == pytest.approx(3, rel=1e-3)
    # Links between nodes overlap partly.
    both = math.hypot(4.59 / 9.89 / 0.471, 1.0)
    assert predictions.seconds(work, gpu, links=1.0, far=1.0).middle == pytest.approx(both, rel=1e-3)


def test_only_steps_like_published_ones_have_their_range() -> None:
    """Half a second of a Transformer in bfloat16, on a device with published steps."""
    like = Work(4.59e14, 1e11, 1e9, 1e11, 0.0)

    def factor(work: Work, row: str = "v5p", backend: str = "tpu", precision: str = "bfloat16") -> float:
        rates = predictions.rates(row, backend, precision)
        assert rates is not None
        found = predictions.seconds(work, rates)
        assert found.high / found.middle == pytest.approx(found.middle / found.low)
        return found.high / found.middle

    known, other = (pytest.approx(step_constants.RANGES[name]) for name in ("dense", "other"))
    assert [factor(like), factor(like, "h100", "gpu")] == [known, known]
    assert [factor(like, "h200", "gpu"), factor(like, precision="float32")] == [other, other]  # nothing was published
    assert factor(like._replace(score_bytes=0.0)) == other  # a network without attention
    assert factor(like._replace(score_bytes=3e12)) == other  # scores in memory
    assert factor(Work(*(each / 10 for each in like))) == other  # a short step
    assert factor(like, "cpu", "cpu") == pytest.approx(predictions.CPU.factor)


def test_rows_with_published_steps_are_those_of_the_files() -> None:
    steps, _ = published_steps.load()
    dense = [one for one in steps if one.step.precision in HALVES and not one.step.decoder.experts]
    assert {one.step.row for one in dense} - {"h200"} == set(step_constants.PUBLISHED)
    assert min(one.seconds for one in dense) == pytest.approx(step_constants.SHORTEST, rel=0.01)


@pytest.mark.slow
def test_timed_large_networks_are_within_the_predicted_range() -> None:
    """Steps per second on one H200, from docs/accelerators.md: ResNet-50 and Transformer base in bfloat16."""
    rates = predictions.rates("NVIDIA H200", "gpu", "bfloat16")
    assert rates is not None
    base = dataclasses.replace(SHAPES["transformer_base"], vocab=32768)
    tokens = dataset(base, 256)._replace(loss=losses.softmax_cross_entropy)
    options = {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "dropout": 0.1}
    transformer = registry.workload(tokens, "transformer_decoder", options, "momentum", "bfloat16")
    networks = ((on_tpu.workload("resnet_50", "bfloat16"), 256, 22.5), (transformer, 128, 43.1))
    for workload, batch_size, per_second in networks:
        found = predictions.seconds(step_work(workload, batch_size), rates)
        assert found.middle == pytest.approx(1 / per_second, rel=0.25)
        assert found.low < 1 / per_second < found.high


@pytest.mark.slow
def test_published_steps_of_resnet_are_predicted_from_counts() -> None:
    """Rows R060 and R061: 8 and 16 examples per chip, of which 32 are normalized together."""
    rows = published_numbers.step_times().set_index("row")
    assert {row for row, status in published_steps.load()[1].items() if status == "compared by plan"} == {
        "R060",
        "R061",
    }
    rates = predictions.rates("v4p", "tpu", "bfloat16")
    assert rates is not None
    workload, ratios = on_tpu.workload("resnet_50", "bfloat16"), []
    for row in ("R060", "R061"):
        published = rows.loc[row]
        chips = int(published["chips"])
        jaxpr = network_costs.step_jaxpr(workload, int(published["batch_size"]) // chips, shards=chips)
        work = jaxpr_cost.of(jaxpr, len(jax.tree.leaves(programs.one_lane(workload)[0].params)))
        summed = Collective("all-reduce", 4.0 * 25_557_032, (tuple(range(chips)),), (), "")
        links = exchange_seconds(HARDWARE["v4p"], summed, collectives.links(HARDWARE["v4p"], {"data": chips}))
        found = predictions.seconds(work, rates, links=links)
        assert found.low < float(published["step_seconds"]) < found.high
        ratios.append(found.middle / float(published["step_seconds"]))
    assert "predicted {:.2f} and {:.2f} times too slow".format(*ratios) in (ROOT / "docs/predictions.md").read_text()


def test_every_device_kind_has_a_source_and_a_jax_name() -> None:
    names = {
        "TPU v2": "v2",
        "TPU v3": "v3",
        "TPU v4": "v4p",
        "TPU v5 lite": "v5e",
        "TPU v5": "v5p",
        "TPU v5p": "v5p",
        "TPU v6 lite": "v6e",
        "TPU7x": "tpu7x",
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA H100 PCIe": "h100_pcie",
        "NVIDIA H200": "h200",
        "NVIDIA A100-SXM4-80GB": "a100",
        "NVIDIA A100-SXM4-40GB": "a100_40gb",
        "Tesla V100-SXM2-32GB": "v100",
        "NVIDIA GH200 480GB": "gh200",
        "NVIDIA GH200 120GB": "gh200",
    }
    assert {hardware_of(name) for name in names} == set(HARDWARE) - {"cpu"}
    assert all(hardware_of(name) == row for name, row in names.items())
    assert all(row.source for row in HARDWARE.values())
    others = ("GeForce", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GH200 144G HBM3e", "TPU v4 lite")
    others += ("NVIDIA H100 80GB HBM3 MIG 1g.10gb",)  # a seventh of one
    assert {hardware_of(name) for name in others} == {None}
    assert predictions.rates("GeForce", "gpu", "float32") is None  # nothing is guessed
    in_full, rounded = (predictions.rates("TPU v3", "tpu", each) for each in ("float32", "bfloat16"))
    assert in_full is not None and rounded is not None and rounded.flops == pytest.approx(6 * in_full.flops)


@pytest.mark.parametrize("runs", [3, 4, 8])
def test_a_calibration_finds_the_scale_and_holds_ninety_percent(runs: int) -> None:
    """Of few runs, too, whose spread is not known well."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(2000):
        ratios = 3 * np.exp(0.4 * rng.standard_normal(runs + 1))
        found = predictions.calibration(ratios[:runs].tolist())
        assert found is not None and found.runs == runs
        inside.append(found.scale / found.factor <= ratios[runs] <= found.scale * found.factor)
    assert 0.88 <= np.mean(inside) <= 0.94
    many = predictions.calibration((3 * np.exp(0.4 * rng.standard_normal(4000))).tolist())
    assert many is not None
    assert many.scale == pytest.approx(3, rel=0.05) and math.log(many.factor) == pytest.approx(1.645 * 0.4, rel=0.1)


def test_few_measurements_show_no_spread() -> None:
    assert predictions.calibration([]) is None
    one = predictions.calibration([2.0])
    assert one is not None and one.scale == pytest.approx(2.0) and one.factor == predictions.CPU.factor


def test_scaled_rates_predict_what_was_measured_and_say_so() -> None:
    work = Work(2e9, 3e8, operations=1e6)
    known = predictions.calibration([1.5, 1.4, 1.6])
    assert known is not None
    scaled = predictions.scaled(RATES, known)
    expected = known.scale * predictions.seconds(work, RATES).middle
    assert predictions.seconds(work, scaled).middle == pytest.approx(expected)
    assert "3 measured" in scaled.source


def test_exchanges_are_timed_between_devices() -> None:
    """On two emulated ones, whose times say nothing: that each runs, and moves what it says."""
    code = (
        "from harness.costs import probe; import json; "
        "print(json.dumps({name: probe.exchange_seconds(name) for name in probe.EXCHANGES}))"
    )
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    for timed in json.loads(done.stdout).values():
        assert [(devices, size) for devices, size, _ in timed] == [(2, 4 << 10), (2, 4 << 16), (2, 4 << 22)]
        assert all(seconds > 0 for _, _, seconds in timed)
