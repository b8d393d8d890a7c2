"""Programs for TPUs that are not there: of all models of Shallue et al. 2018 at their sizes, lowered from shapes alone.

By the extra plan, what the compiler of TPUs makes of programs: no loop over lanes, one sum a step, no rounding to
bfloat16.
"""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from jax.sharding import AbstractMesh, AxisType

from harness.step import programs
from harness.step.batch_partition import TRIAL, Division
from results.plans.batch_study import BatchStudy
from sweeps import overrides, planning
from tests.harness.on_tpu import SIZES, workload
from workloads.models import options
from workloads.workload import DATA

ROOT = Path(__file__).parents[2]
PARAMETERS = {
    "resnet_50": 25_557_032,
    "vgg_11": 132_863_336,
    "lstm_base": 26_222_592,
    "transformer_base": 35_680_256 + 32_768 * 512,  # the second term is the read-out
    "transformer_wide": 109_109_248 + 32_768 * 1024,
    "resnet_50_remembered": 25_549_352,
    "lstm_base_remembered": 26_222_592 - 768 * 512 + 32_000 * 512 + 32_000,
    "transformer_base_remembered": 35_680_256 - 768 * 512 + 32_000 * 512,
    "transformer_wide_remembered": 109_109_248 - 768 * 1024 + 32_000 * 1024,
}
WORKLOADS = {
    "simple_cnn_base": "mnist/simple_cnn_base",
    "resnet_50": "imagenet/resnet_50",
    "lstm_base": "lm1b/lstm",
    "transformer_base": "lm1b/transformer_base",
}
CORES = {"v5e:2x2": 4, "v3:8x16": 256}
# One network of each sort on four cores, and one on 256; the other cases are slow.
LOWERED = {(name, "v5e:2x2") for name in ("fc_64_64_64", "resnet_8", "lstm_base", "transformer_base")}
LOWERED |= {("lstm_base", "v3:8x16")}
LOWERED_CASES = [
    pytest.param(name, topology, marks=() if (name, topology) in LOWERED else pytest.mark.slow)
    for name in SIZES
    for topology in CORES
]


def compiled(module: str, *words: str) -> dict:
    """What a program prints."""
    command = [sys.executable, "-m", f"tests.harness.{module}", *words]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.plan
@pytest.mark.parametrize(("task", "shards"), [("digits_fc", "1"), ("digits_fc", "4"), ("pydoc_transformer", "4")])
def test_a_step_has_no_loop_one_sum_and_no_bfloat16(task: str, shards: str) -> None:
    sums = {} if shards == "1" else {"all-reduce": 1}
    assert compiled("on_tpu", "task", "v5e:2x2", task, shards) == {
        "collectives": sums,
        "loops": 2,
        "loops inside a step": 0,
        "bfloat16": 0,
    }


@pytest.mark.plan
def test_bfloat16_is_found_where_it_is_asked_for() -> None:
    assert compiled("on_tpu", "task", "v5e:2x2", "digits_fc", "1", "bfloat16")["bfloat16"] > 0


GIB_OF_CORE = {"v3:8x16": 4, "v5e:2x2": 15.75}  # of v3 the aim, of v5e all that a core has


@pytest.mark.plan
@pytest.mark.slow
@pytest.mark.parametrize("topology", list(GIB_OF_CORE))
@pytest.mark.parametrize("model", list(PARAMETERS))
def test_models_at_their_sizes_fit_and_compile(model: str, topology: str) -> None:
    size = SIZES[model]
    microbatches = size.microbatches if topology == "v5e:2x2" else 1
    found = compiled("on_tpu", "model", topology, model, str(size.batch_size), str(microbatches), "bfloat16")
    print(json.dumps({"model": model, "topology": topology, **found}))  # for docs/shallue2018.md
    assert found["parameters"] == PARAMETERS[model]
    assert found["train"]["GiB"] <= GIB_OF_CORE[topology]
    assert found["train"]["collectives"].keys() == {"all-reduce"}
    assert found["evaluate"]["temporary GiB"] < 1
    if topology == "v3:8x16":
        assert found["train"]["processor seconds"] <= 200


@pytest.mark.plan
def test_factorization_is_lowered_for_a_pod_from_one_host() -> None:
    found = compiled("on_pod", "v3:8x16")
    assert found.keys() == {"row half", "column half", "objective", "fold in", "rank"}
    assert {(each["hosts"], each["devices"]) for each in found.values()} == {(32, 256)}


@pytest.mark.plan
@pytest.mark.slow
def test_half_an_epoch_of_webgraph_sparse_fits_a_pod() -> None:
    half = compiled("on_pod", "v3:8x16", "sparse")["row half"]["compiled"]
    assert half["processor seconds"] < 20 * 60
    assert half["GiB"] < 15.48  # of a core of a v3, as its compiler says


@pytest.mark.plan
@pytest.mark.slow
def test_dense_webgraph_half_epoch_does_not_fit_eight_cores() -> None:
    half = compiled("on_pod", "v3:2x2", "dense")["row half"]
    assert "Ran out of memory" in half["compiled"] and half["MiB of arguments"] > 15.48 * 1024


def planned(tmp_path: Path, *words: str) -> tuple[int, list[dict], float]:
    """The exit code of ``sweeps.plan``, its rows, and the processor seconds it took with the process it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "SCALING_LIMITS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "sweeps.plan", *words, f"store={tmp_path / 'store'}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), seconds


@pytest.mark.plan
@pytest.mark.parametrize(
    "topology", ["v5e:2x2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("v4:2x2x1", "v3:8x16"))]
)
def test_small_tasks_fit_and_a_second_call_reads_the_answer(topology: str, tmp_path: Path) -> None:
    words = ["task=digits_fc,pydoc_transformer", "batch_size=64", "-m", f"topology={topology}"]
    code, rows, seconds = planned(tmp_path, *words)
    assert (code, [row["topology_verdict"] for row in rows]) == (0, ["fits", "fits"])
    assert seconds < 5 * 60
    again, same, quick = planned(tmp_path, *words)
    assert (again, same) == (code, rows) and quick < 10


@pytest.mark.plan
def test_a_step_over_shards_is_counted_as_before_it_is_compiled(tmp_path: Path) -> None:
    """FLOPs of the compiled program, of all devices, are those of the jaxpr; and one sum goes over the shards."""
    words = ["task=digits_fc", "optimizer=momentum", "batch_size=64", "lanes=1", "shards=4", "topology=v5e:2x2"]
    _, ((row),), _ = planned(tmp_path, *words)
    assert row["flops_per_step"] * row["shards"] == 2 * 64 * (2 * 64 * 64 + 3 * 64 * 10)
    (exchange,) = json.loads(row["collectives"])
    assert (exchange["operation"], exchange["axes"], exchange["times"]) == ("all-reduce", "data", 1)
    parameters = 64 * 64 + 64 + 64 * 10 + 10
    assert exchange["bytes"] == 4 * parameters and row["parameters"] == parameters


DECODER = "{name: transformer_decoder, layers: 26, d_model: 1792, heads: 16, d_ff: 7168, dropout: 0.0}"


@pytest.mark.plan
def test_billion_parameter_decoder_fits_if_stored_in_parts(tmp_path: Path) -> None:
    words = ["task=pydoc_transformer", f"model={DECODER}", "optimizer=adamw", "batch_size=256", "trials=1", "lanes=1"]
    words += ["+optimizer.space.weight_decay={scale: LOG, low: 1e-4, high: 1e-2}", "precision=bfloat16"]
    words += ["topology=v5e:4x4"]
    code, (row,), _ = planned(tmp_path, *words)
    assert code == 1 and row["parameters"] > 1e9 and row["too_large_by_bytes"] > 8 * 2**30
    code, (row,), _ = planned(tmp_path, *words, "mesh=data:16", "layout=embed:data")
    assert code == 0 and row["topology_verdict"] == "fits"
    assert 12 * row["parameters"] / 16 < row["memory_bytes"] < 8 * 2**30  # of parameters and both means, and work
    exchanged = {each["operation"]: each for each in json.loads(row["collectives"])}
    assert {each["axes"] for each in exchanged.values()} == {"data"}
    # Each part of the batch gathers all parameters, in bfloat16.
    assert exchanged["all-gather"]["bytes"] > 0.99 * 2 * row["microbatches"] * row["parameters"]


@pytest.mark.plan
def test_what_does_not_fit_ends_with_1(tmp_path: Path) -> None:
    words = ["task=web_graph", "ratings.variant=dense", "cores=8", "als.gather=all_to_all", "topology=v3:2x2"]
    code, (row,), _ = planned(tmp_path, *words, "als.solver=cg", "als.table_dtype=bfloat16")
    assert code == 1 and row["too_large_by_bytes"] > 60 * 2**30  # of 15.48 GiB


@pytest.mark.plan
@pytest.mark.slow
def test_fewer_cores_than_a_slice_use_its_first_cores(tmp_path: Path) -> None:
    words = ["task=webgraph_synthetic", "cores=1,2", "als.gather=all_to_all", "als.solver=cg", "-m", "topology=v3:2x2"]
    _, rows, _ = planned(tmp_path, *words)
    assert [(row["shards"], row["devices"]) for row in rows] == [(1, 8), (2, 8)]
    assert "all-to-all" in rows[1]["collectives"] and "all-to-all" not in rows[0]["collectives"]


LINKS = """
from harness.compiled import ahead_of_time, topologies
from results.costs.collectives import links
from results.costs.hardware import HARDWARE
from harness.step.batch_partition import TRIAL
from workloads.workload import DATA
meshes = {"v3:8x16": {"cores": None}, "v5e:4x8": {TRIAL: 1, DATA: None}, "v5e:4x4": {TRIAL: 4, DATA: 4}}
for topology, mesh in meshes.items():
    on = ahead_of_time.mesh(topology, mesh)
    print(list(links(HARDWARE[topology.partition(":")[0]], on.shape, topologies.chips(on.devices.flat)).values()))
"""


@pytest.mark.plan
def test_axis_of_a_whole_slice_has_the_links_of_its_torus() -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([sys.executable, "-c", LINKS], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.splitlines() == ["[16, 16]", "[4, 8]", "[4, 4]"], done.stderr


@pytest.mark.plan
def test_a_topology_that_there_is_not_is_one_line(tmp_path: Path) -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "SCALING_LIMITS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "sweeps.plan", "task=digits_fc", "topology=v3:7x9x2", f"store={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 2 and "v3:7x9x2" in done.stderr.splitlines()[-1]


@pytest.mark.plan
@pytest.mark.slow
def test_large_studies_are_compiled_within_an_hour(tmp_path: Path) -> None:
    large = [
        ["task=shallue2018/imagenet_resnet", "batch_size=4096", "precision=bfloat16", "trials=1"],
        ["task=shallue2018/lm1b_transformer", "batch_size=4096", "precision=bfloat16", "trials=1"],
        ["task=web_graph", "ratings.variant=sparse", "cores=256", "als.table_dtype=bfloat16", "als.solver=cg"],
    ]
    total = 0.0
    for words in large:
        code, (row,), seconds = planned(tmp_path, *words, "topology=v3:8x16")
        assert code == 0 and row["memory_bytes"] < row["device_memory_bytes"]
        total += seconds
    assert total < 60 * 60


def test_every_model_has_a_size(tmp_path: Path) -> None:
    remembered = {name for name in SIZES if name.endswith("_remembered")}
    assert set(SIZES) - remembered == set(options.SIZES)
    # They are as the tasks have them, and as appendix=remembered changes these.
    for name in ("simple_cnn_base", "resnet_50", "lstm_base", "transformer_base"):
        preset = f"+experiment=shallue2018/{WORKLOADS[name]}/nesterov_momentum"
        for suffix, words in (("", []), ("_remembered", ["appendix=remembered"])):
            if f"{name}{suffix}" in SIZES:
                line = overrides.command_line([preset, "batch_size=4096", *words, f"store={tmp_path}"])
                (study,) = planning.request(line).studies
                size = SIZES[f"{name}{suffix}"]
                assert isinstance(study, BatchStudy)
                assert (study.dataset, study.model_options) == (size.dataset, size.options)


@pytest.mark.parametrize(("name", "topology"), LOWERED_CASES)
def test_a_step_is_lowered_for_a_slice_of_tpus_from_shapes_alone(name: str, topology: str) -> None:
    cores, size = CORES[topology], SIZES[name]
    on = AbstractMesh((1, cores), (TRIAL, DATA), axis_types=(AxisType.Auto, AxisType.Auto))
    of = workload(name, "bfloat16")
    shapes = programs.shapes(of, on, 1)
    text = programs.lower_train(
        of, on, "vmap", shapes, size.batch_size, Division(cores, size.microbatches if cores == 4 else 1)
    ).as_text()
    assert f'["{TRIAL}"=1, "{DATA}"={cores}]' in text
    # The branch of TPUs has been chosen: convolutions are no products of matrices.
    assert ("stablehlo.convolution" in text) == name.startswith(("simple", "resnet", "vgg"))
    assert re.search(r"stablehlo.(dot_general|convolution).*bf16", text)
    own = size.batch_size // cores
    if of.feed:
        assert of.shapes.train is not None
        example = "x".join(map(str, of.shapes.train.inputs.shape[1:]))
        steps = programs.most_steps(of, "vmap", 1, size.batch_size)
        whole = rf"%arg\d+: tensor<1x{steps}x{size.batch_size}x{example}x\w+> {{sdy.sharding = #sdy.sharding<@mesh, "
        assert re.search(whole + rf'\[{{"{TRIAL}"}}, {{}}, {{"{DATA}"}}[,\]]', text)
        assert f"tensor<{own}x{example}x" in text  # of a step, on a core
