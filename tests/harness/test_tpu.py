"""What the compiler of TPUs makes of the programs: no loop over lanes, one sum a step, no rounding to bfloat16."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.plan
# V × D of the embedding, layers × (4 × D² + 2 × D × F + F + 5 × D), and 2 × D of the last norm.
BASE = 32_768 * 512 + 6 * (4 * 512**2 + 2 * 512 * 2048 + 2048 + 5 * 512) + 2 * 512
PARAMETERS = {"resnet_50": 25_557_032, "transformer_base": BASE}


def compiled(module: str, *words: str) -> dict:
    """What a program prints."""
    command = [sys.executable, "-m", f"tests.harness.{module}", *words]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(("task", "shards"), [("digits_fc", "1"), ("digits_fc", "4"), ("pydoc_transformer", "4")])
def test_a_step_has_no_loop_one_sum_and_no_bfloat16(task: str, shards: str) -> None:
    sums = {} if shards == "1" else {"all-reduce": 1}
    assert compiled("on_tpu", "v5e:2x2", task, shards) == {
        "collectives": sums,
        "loops": 2,
        "loops inside a step": 0,
        "bfloat16": 0,
    }


def test_bfloat16_is_found_where_it_is_asked_for() -> None:
    assert compiled("on_tpu", "v5e:2x2", "digits_fc", "1", "bfloat16")["bfloat16"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "network", "batch_size", "microbatches", "group", "most_gib"),
    [
        ("v5e:2x2", "resnet_50", "1024", "8", "32", 8),  # as many as a microbatch has
        (
            "v3:8x16",
            "resnet_50",
            "4096",
            "1",
            "16",
            4,
        ),  # as many as a core has: more would sum over cores in every norm
        ("v5e:2x2", "transformer_base", "1024", "4", "1", 8),
        ("v3:8x16", "transformer_base", "1024", "1", "1", 4),
    ],
)
def test_networks_at_their_sizes_fit_and_compile(
    topology: str, network: str, batch_size: str, microbatches: str, group: str, most_gib: int
) -> None:
    found = compiled("large", topology, network, batch_size, microbatches, "bfloat16", group)
    assert found["parameters"] == PARAMETERS[network]
    assert found["train"]["GiB"] <= most_gib
    assert found["train"]["processor seconds"] <= 200
    assert found["train"]["collectives"].keys() == {"all-reduce"}
    assert found["train"]["collectives"]["all-reduce"] <= 2
    assert found["evaluate"]["temporary GiB"] < 1


def test_a_factorization_is_lowered_for_a_pod_from_one_hosts_part_of_it() -> None:
    found = compiled("on_pod", "v3:8x16")
    assert found.keys() == {"row half", "column half", "objective", "fold in", "rank"}
    assert {(each["hosts"], each["devices"]) for each in found.values()} == {(32, 256)}


@pytest.mark.slow
def test_half_an_epoch_of_webgraph_sparse_fits_a_pod() -> None:
    half = compiled("on_pod", "v3:8x16", "sparse")["row half"]["compiled"]
    assert half["processor seconds"] < 20 * 60
    assert half["GiB"] < 15.48  # of a core of a v3, as its compiler says


@pytest.mark.slow
def test_half_an_epoch_of_webgraph_dense_does_not_fit_eight_cores() -> None:
    half = compiled("on_pod", "v3:2x2", "dense")["row half"]
    assert "Ran out of memory" in half["compiled"] and half["MiB of arguments"] > 15.48 * 1024
