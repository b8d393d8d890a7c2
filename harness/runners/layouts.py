"""Runs the trials of a layout study: compiles a step for the mesh and counts its costs. Some engines also time it."""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from harness.compiled import hlo, topologies
from harness.run import COMPILING, TRAINING, OnFinished, OnProgress, Record, RunProgress
from harness.trials.scheduler import TrialOutcome
from results.aliases import Fields, Row
from results.costs import collectives
from results.costs.hardware import HARDWARE
from results.plans import layout as plans
from results.plans.layout import LayoutStudy
from results.plans.study import Trial
from workloads.layouts import shapes, transformer
from workloads.layouts.notation import Layout, Mesh, Refused, read_layout, read_mesh
from workloads.layouts.shapes import Shape
from workloads.layouts.transformer import State

LOST = 1e-3  # share of a step's FLOPs that a compiler may remove as unused
WARM = 3  # untimed steps
TIMED = 20  # timed steps
# Emulated devices are not timed, so their programs may be slow. This halves compile time.
UNHURRIED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# JAX's matmul precision settings. By default, TPUs and GPUs round float32 inputs.
PRODUCTS = {"float32": "highest", "bfloat16": None}


class LaidOutStudy(NamedTuple):
    """A study with its model's shape, its parsed mesh and its parsed layout."""

    study: LayoutStudy
    shape: Shape
    mesh: Mesh
    layout: Layout


def laid(study: LayoutStudy) -> LaidOutStudy:
    """Parses the mesh and the layout of a study. Raises Refused if either is invalid."""
    shape = Shape(**study.model_options)
    mesh = read_mesh(study.mesh, study.device_count)
    model = shapes.tensors(shape, study.batch_size, study.length)
    return LaidOutStudy(study, shape, mesh, read_layout(study.layout, mesh, model, strict=study.strict))


def run(
    study: LayoutStudy, trials: Sequence[Trial], on_progress: OnProgress, on_finished: OnFinished
) -> dict[int, TrialOutcome]:
    """Runs the trials of a study one after another, and reports each as it ends."""
    outcomes: dict[int, TrialOutcome] = {}
    engine = ENGINES[study.engine_name]
    for trial in trials:
        on_progress(RunProgress(COMPILING))
        try:
            record = engine(laid(study), trial, on_progress)
        except Refused as refusal:
            row = {"refusal": refusal.kind, "explanation": str(refusal)}
            record = _record(trial, [], row, TrialOutcome("INFEASIBLE", None, 1))
        outcomes |= record.outcomes
        on_finished(record)
    jax.clear_caches()
    return outcomes


def _run_here(one: LaidOutStudy, trial: Trial, on_progress: OnProgress, *, timed: bool) -> Record:
    """Runs the steps of a trial on the devices of this process, and times further steps."""
    began = time.perf_counter()
    study = one.study
    program = _compile(one, trial, {} if timed or jax.default_backend() != "cpu" else UNHURRIED)
    row = accounts(one, program, topologies.chips(jax.devices()[: one.mesh.size]))
    compiled = time.perf_counter()
    on_progress(RunProgress(TRAINING))
    state, losses, gradients = _steps(one, program, trial, study.budget_steps)
    train_seconds = time.perf_counter() - compiled
    if timed:
        row |= _timed(one, program, trial, state)
    else:
        row["gradient_difference"] = _difference(gradients, _reference_gradients(study, trial))
    finite = bool(np.isfinite(losses).all())
    end = TrialOutcome("COMPLETE" if finite else "INFEASIBLE", None, len(losses))
    on_progress(RunProgress(TRAINING, {study.budget_steps: 1}, {}, len(losses), train_seconds, 0.0))
    return _record(trial, losses, row, end, compiled - began, train_seconds)


def _compile_ahead(one: LaidOutStudy, trial: Trial, on_progress: OnProgress) -> Record:
    """Compiles a step for TPUs that are not attached."""
    began = time.perf_counter()
    devices = topologies.devices(one.study.topology)
    if len(devices) != one.mesh.size:
        message = f"mesh {str(one.mesh)!r} has {one.mesh.size} devices, but {one.study.topology} has {len(devices)}"
        raise Refused("devices", None, message)
    try:
        program = _compile(one, trial, {}, devices)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise Refused("memory", None, " ".join(str(error).split())[:500]) from None
    row = accounts(one, program, topologies.chips(devices))
    return _record(trial, [], row, TrialOutcome("COMPLETE", None, 1), time.perf_counter() - began)


ENGINES: dict[str, Callable[[LaidOutStudy, Trial, OnProgress], Record]] = {
    plans.EMULATED: functools.partial(_run_here, timed=False),
    plans.DEVICE: functools.partial(_run_here, timed=True),
    plans.AHEAD: _compile_ahead,
}


def accounts(one: LaidOutStudy, program: jax.stages.Compiled, chips: Sequence[int] | None) -> Row:
    """Returns the counts of a compiled step and its predicted cost, as columns of ``results.plans.layout``.

    Args:
      one: study with its parsed mesh and layout.
      program: compiled step of the study.
      chips: number of chips along each torus dimension, or None without a torus.

    Raises:
      Unparsed: part of the compiled program cannot be parsed.
    """
    text = program.as_text()
    memory = program.memory_analysis()
    assert text is not None and memory is not None  # CPUs, GPUs and TPUs have both
    found = hlo.read(text).check()
    ideal = one.shape.flops(one.study.batch_size, one.study.length)
    executed = found.flops * one.mesh.size
    if executed < (1 - LOST) * ideal and not found.loops[1]:
        raise hlo.Unparsed(
            f"the readable products of the compiled step have {executed:.6g} FLOPs, fewer than {ideal:.6g}"
        )
    totals = collectives.totals(found.collectives, one.mesh)
    peak = hlo.peak_bytes(program)
    hardware = HARDWARE[one.study.hardware]
    over = collectives.links(hardware, one.mesh, chips)
    predicted = collectives.predict(hardware, found.flops, peak, found.collectives, over, one.study.precision)
    return {
        "ideal_flops": float(ideal),
        "executed_flops": float(executed),
        "redundancy": executed / ideal,
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "peak_bytes": peak,
        "wire_bytes": sum(wire for _, _, wire in totals.values()),
        "collectives": json.dumps(
            [
                {"operation": operation, "axes": axes, "count": count, "bytes": whole, "wire_bytes": wire}
                for (operation, axes), (count, whole, wire) in sorted(totals.items())
            ]
        ),
        "unknown_loops": found.loops[1],
        "hardware": one.study.hardware,
        "predicted_compute_seconds": predicted.compute_seconds,
        "predicted_memory_seconds": predicted.memory_seconds,
        "predicted_exchange_seconds": predicted.exchange_seconds,
        "predicted_step_seconds": predicted.step_seconds,
        "predicted_fits": predicted.fits,
        "scheduled_cycles": found.cycles or None,
    }


def _compile(one: LaidOutStudy, trial: Trial, options: Fields, devices: list | None = None) -> jax.stages.Compiled:
    return lowered(one, trial, devices).compile(compiler_options=dict(options))


def lowered(one: LaidOutStudy, trial: Trial, devices: list | None = None) -> jax.stages.Lowered:
    """Lowers the step of a study for devices, by default those of this process. Float32 matmuls keep full precision."""
    placed = transformer.on_devices(one.mesh, one.layout, devices or jax.devices())
    program = transformer.step(one.shape, placed, one.study.precision, one.study.rematerialization)
    given = jax.eval_shape(lambda: transformer.start(one.shape, jnp.uint32(trial.seed)))
    tokens = jax.ShapeDtypeStruct((one.study.batch_size, one.study.length + 1), jnp.int32)
    with jax.default_matmul_precision(PRODUCTS[one.study.precision]):
        return program.lower(given, tokens)


def _steps(
    one: LaidOutStudy, program: jax.stages.Compiled, trial: Trial, steps: int
) -> tuple[State, list[float], dict[str, np.ndarray]]:
    """The state after some steps, the loss before each step, and the gradient of the first step, up to a factor."""
    state = _begin(one, trial)
    losses = []
    gradients = {}
    for at in range(steps):
        state, loss = program(state, _tokens(one, trial, at))
        losses.append(float(loss))
        if at == 0:  # Adam's mean is now a tenth of the first gradient
            gradients = {name: np.asarray(value) for name, value in state.mean.items()}
    return state, losses, gradients


def _begin(one: LaidOutStudy, trial: Trial) -> State:
    """Returns the initial state, placed on its devices."""
    placed = transformer.on_devices(one.mesh, one.layout, jax.devices())
    own = transformer.shardings(one.shape, placed)
    if jax.default_backend() == "cpu":  # all layouts share it and differ only in sharding
        return jax.device_put(_first_state(one.shape, trial.seed), own)
    return jax.jit(functools.partial(transformer.start, one.shape), out_shardings=own)(jnp.uint32(trial.seed))


@functools.lru_cache(maxsize=1)
def _first_state(shape: Shape, seed: int) -> State:
    return jax.tree.map(np.asarray, jax.jit(functools.partial(transformer.start, shape))(jnp.uint32(seed)))


def _tokens(one: LaidOutStudy, trial: Trial, at: int) -> Array:
    study = one.study
    placed = transformer.on_devices(one.mesh, one.layout, jax.devices())
    drawn = _drawn(one.shape.vocab, study.batch_size, study.length, trial.seed, at)
    return jax.device_put(drawn, placed.sharding(transformer.TOKEN_AXES))


_drawn = functools.lru_cache(maxsize=256)(transformer.draw)
_REFERENCES: dict[tuple[str, int], dict[str, np.ndarray]] = {}  # only the last one


def _reference_gradients(study: LayoutStudy, trial: Trial) -> dict[str, np.ndarray]:
    """Returns the first gradient computed on one device, up to the same factor. Every layout must agree with it."""
    alone = laid(dataclasses.replace(study, mesh="data:1", layout="", strict=True, device_count=1, budget_steps=1))
    key = alone.study.plan_json, trial.seed
    if key not in _REFERENCES:
        _REFERENCES.clear()
        _REFERENCES[key] = _steps(alone, _compile(alone, trial, UNHURRIED), trial, 1)[2]
    return _REFERENCES[key]


def _difference(gradients: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> float:
    """Returns the largest relative difference of two gradients over all parameters, in the Euclidean norm."""
    pairs = [(gradients[name].astype(np.float64), others[name].astype(np.float64)) for name in others]
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def _timed(one: LaidOutStudy, program: jax.stages.Compiled, trial: Trial, state: State) -> Row:
    """Returns the seconds of each timed step, after some warm-up steps."""
    tokens = [_tokens(one, trial, one.study.budget_steps + at) for at in range(WARM + TIMED)]
    seconds = []
    for given in jax.block_until_ready(tokens):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(program(state, given))
        seconds.append(time.perf_counter() - began)
    low, median, high = np.percentile(seconds[WARM:], [25, 50, 75])
    return {"step_seconds": median, "step_seconds_low": low, "step_seconds_high": high, "timed_steps": TIMED}


def _record(
    trial: Trial,
    losses: list[float],
    row: Row,
    end: TrialOutcome,
    compile_seconds: float = 0.0,
    train_seconds: float = 0.0,
) -> Record:
    """Returns the measurements of a trial: one row per step, or a single row if no step was run."""
    rows = max(1, len(losses))
    metrics = {"train_loss": np.array(losses, np.float32)} if losses else {}
    for column in plans.COLUMNS:
        metrics[column.name] = np.array([row.get(column.name)] * rows, object)
    return Record(
        trials=[trial],
        outcomes={trial.id: end},
        trial=np.full(rows, trial.id, np.int32),
        step=np.arange(1, rows + 1, dtype=np.int32),
        metrics=metrics,
        compile_seconds=compile_seconds,
        train_seconds=train_seconds,
        evaluate_seconds=0.0,
        run_seconds=train_seconds,
        trial_steps=len(losses),
    )
