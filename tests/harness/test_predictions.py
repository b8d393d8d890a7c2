"""Predictions: sums of parts, ranges, and calibrations that are what they say."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from results.costs import predictions
from results.costs.counts import Work
from results.costs.hardware import HARDWARE, hardware_of
from results.costs.predictions import CPU, Rates

RATES = Rates(1e9, 1e8, 1e-6, 1e-3, 1e-3, 2.0, "made up")


def test_seconds_are_the_sum_of_products_traffic_and_operations() -> None:
    work = Work(flops=2e9, fused_bytes=3e8, most_bytes=1e12, operations=1e6)
    assert predictions.seconds(work, RATES) == pytest.approx((6.0, 3.0, 12.0))
    assert predictions.seconds(work, RATES, lanes=4).middle == pytest.approx(5.25)  # which share the operations


def test_every_kind_of_device_in_the_table_has_its_source_and_is_found_by_jaxs_name() -> None:
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
    assert one is not None and one.scale == pytest.approx(2.0) and one.factor == CPU.factor


def test_scaled_rates_predict_what_was_measured_and_say_so() -> None:
    work = Work(2e9, 3e8, 0.0, 1e6)
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
