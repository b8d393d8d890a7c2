"""Runs the trials of a layout study: compiles a step for the mesh and counts its costs. Some engines also time it."""

import functools
import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from harness.compiled import ahead_of_time, hlo, jaxpr_cost, topologies
from harness.run import COMPILING, TRAINING, OnFinished, OnProgress, Record, RunProgress, Source
from harness.step import shardings
from harness.step.partitioned import PartitionedStep, drawn, partitioned, placements
from harness.step.training import TrainState
from harness.trials.scheduler import TrialOutcome
from results.aliases import Row
from results.costs import collectives
from results.plans import layout as plans
from results.plans.layout import LayoutStudy
from results.plans.study import Trial
from workloads import axes, registry
from workloads.layouts import shapes
from workloads.layouts.notation import Layout, Mesh, Refused, Tensors, read_layout, read_mesh
from workloads.layouts.shapes import Shape
from workloads.workload import Examples, Workload

Gradients = dict[tuple[str, ...], np.ndarray]  # by the keys that lead to a parameter
LOST = 1e-3  # share of a step's FLOPs that a compiler may remove as unused
WARM = 3  # untimed steps
TIMED = 20  # timed steps
# Emulated devices are not timed, so their programs may be slow. This halves compile time.
UNHURRIED: Mapping[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class LaidOutStudy(NamedTuple):
    """A layout study: its workload, number of classes, axis sizes, mesh and layout."""

    study: LayoutStudy
    workload: Workload
    classes: int
    sizes: Mapping[str, int]
    mesh: Mesh
    layout: Layout

    def on(self, devices: list[Any]) -> PartitionedStep:
        """Returns the step on the first devices of a list."""
        study = self.study
        return partitioned(
            self.workload,
            study.optimizer,
            self.mesh,
            self.layout,
            devices,
            rematerialized=study.rematerialization != "none",
            kept=study.kept,
        )


def laid(study: LayoutStudy, source: Source) -> LaidOutStudy:
    """Parses the mesh and the layout of a study. Raises Refused if either is invalid."""
    workload, classes, tensors = described(study, source)
    mesh = read_mesh(study.mesh, study.device_count)
    layout = read_layout(study.layout, mesh, tensors, strict=study.strict)
    return LaidOutStudy(study, workload, classes, tensors.sizes, mesh, layout)


def described(study: LayoutStudy, source: Source) -> tuple[Workload, int, Tensors]:
    """Returns the workload of a study, its number of classes, and its named axes."""
    if study.dataset == plans.COUNTING:
        shape = Shape(**study.model_options)
        row = shapes.dataset(shape, study.length)
        options = shape.options | study.step_options
        workload = registry.workload(row, "transformer_rotary", options, study.optimizer, study.precision)
        return workload, shape.vocab, shapes.tensors(shape, study.batch_size, study.length)
    row = registry.dataset(study.dataset, source)
    options = {**study.model_options, **study.step_options}
    workload = registry.workload(row, study.model, options, study.optimizer, study.precision)
    return workload, row.classes, shardings.tensors(workload, study.batch_size)


def kept_names(study: LayoutStudy, source: Source) -> tuple[str, ...]:
    """Returns the names of the tensors in stacked layers that a rematerialized step can keep."""
    workload, _, _ = described(study, source)
    shapes_of = jax.eval_shape(lambda: workload.init(jax.random.key(0)))
    inputs = workload.shapes.validation.inputs
    return axes.kept_names(workload.predict, *shapes_of, jax.ShapeDtypeStruct((1, *inputs.shape[1:]), inputs.dtype))


def run(
    study: LayoutStudy, trials: Sequence[Trial], source: Source, on_progress: OnProgress, on_finished: OnFinished
) -> dict[int, TrialOutcome]:
    """Runs the trials of a study one after another, and reports each as it ends."""
    outcomes: dict[int, TrialOutcome] = {}
    engine = ENGINES[study.engine_name]
    for trial in trials:
        on_progress(RunProgress(COMPILING))
        try:
            record = engine(laid(study, source), trial, on_progress)
        except Refused as refusal:
            row = {"refusal": refusal.kind, "explanation": str(refusal)}
            record = _record(trial, [], row, TrialOutcome("INFEASIBLE", None, 1))
        outcomes |= record.outcomes
        on_finished(record)
    jax.clear_caches()
    return outcomes


def _run_here(one: LaidOutStudy, trial: Trial, on_progress: OnProgress, *, timed: bool) -> Record:
    """Runs the steps of a trial on the devices of this process, then times additional steps."""
    began = time.perf_counter()
    study = one.study
    step = one.on(jax.devices())
    program = step.lowered(study.batch_size).compile(compiler_options=_options(timed=timed))
    row = accounts(one, program)
    compiled = time.perf_counter()
    on_progress(RunProgress(TRAINING))
    state, losses = _steps(one, step, program, trial, _begin(one, step, trial), range(1))
    if not timed:
        row["gradient_difference"] = _difference(
            _changes(_first_state(one, step, trial), state), _reference(one, trial)
        )
    state, further = _steps(one, step, program, trial, state, range(1, study.budget_steps))
    losses += further
    train_seconds = time.perf_counter() - compiled
    if timed:
        row |= _timed(one, step, program, trial, state)
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
    step = one.on(devices)
    given = step.carry, step.batch(one.study.batch_size)
    lower = functools.partial(step.lowered, one.study.batch_size)
    made = ahead_of_time.make(lower, jaxpr_cost.device_bytes(given))
    if made.program is None:
        raise Refused("memory", None, made.why)
    row = accounts(one, made.program)
    return _record(trial, [], row, TrialOutcome("COMPLETE", None, 1), time.perf_counter() - began)


ENGINES: dict[str, Callable[[LaidOutStudy, Trial, OnProgress], Record]] = {
    plans.EMULATED: functools.partial(_run_here, timed=False),
    plans.DEVICE: functools.partial(_run_here, timed=True),
    plans.AHEAD: _compile_ahead,
}


def accounts(one: LaidOutStudy, program: jax.stages.Compiled) -> Row:
    """Returns the counts of a compiled step, as columns of ``results.plans.layout``.

    Predictions are not stored. They are derived from these columns when results are read.

    Args:
      one: the study with its parsed mesh and layout.
      program: compiled step of the study.

    Raises:
      Unparsed: part of the compiled program cannot be parsed.
    """
    text = program.as_text()
    memory = program.memory_analysis()
    assert text is not None and memory is not None  # CPUs, GPUs and TPUs have both
    found = hlo.read(text).check()
    ideal = ideal_flops(one)
    executed = found.flops * one.mesh.size
    thin = any(one.sizes[name] == one.mesh[axis] for name, axis in one.layout.items())  # some products become sums
    if executed < (1 - LOST) * ideal and not found.loops[1] and not thin:
        raise hlo.Unparsed(
            f"the readable products of the compiled step have {executed:.6g} FLOPs, fewer than {ideal:.6g}"
        )
    totals = collectives.totals(found.collectives, one.mesh)
    return {
        "ideal_flops": float(ideal),
        "executed_flops": float(executed),
        "redundancy": executed / ideal if ideal else 1.0,  # without matmuls, none is repeated
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "peak_bytes": hlo.peak_bytes(program),
        "wire_bytes": sum(wire for _, _, wire in totals.values()),
        "collectives": json.dumps(
            [
                {"operation": operation, "axes": axes, "count": count, "bytes": whole, "wire_bytes": wire}
                for (operation, axes), (count, whole, wire) in sorted(totals.items())
            ]
        ),
        "unknown_loops": found.loops[1],
        "hardware": one.study.hardware,
        "scheduled_cycles": found.cycles or None,
    }


def whole_step(one: LaidOutStudy) -> PartitionedStep:
    """Returns the step on a single device."""
    return one._replace(mesh=Mesh({"data": 1}), layout=Layout({})).on(jax.devices())


def ideal_flops(one: LaidOutStudy) -> float:
    """Returns the FLOPs of a step and its optimizer if every matmul and convolution is executed only once."""
    step = whole_step(one)
    step = step._replace(sharding=step.sharding._replace(rematerialized=False))
    return jaxpr_cost.matrix_flops(step.jaxpr(one.study.batch_size))


def _options(*, timed: bool) -> dict[str, Any]:
    return {} if timed or jax.default_backend() != "cpu" else dict(UNHURRIED)


def _begin(one: LaidOutStudy, step: PartitionedStep, trial: Trial) -> TrainState:
    """Returns the initial state, placed on its devices."""
    own = placements(step.carry)
    if jax.default_backend() == "cpu":  # all layouts share it and differ only in sharding
        return jax.device_put(_first_state(one, step, trial), own)
    return jax.jit(step.start, out_shardings=own)(step.spans(trial.seed))


_KEPT: dict[str, tuple[Hashable, Any]] = {}  # the last result of each kind, which many layouts share


def _kept(name: str, key: Hashable, compute: Callable[[], Any]) -> Any:
    if _KEPT.get(name, (None, None))[0] != key:
        _KEPT[name] = key, compute()
    return _KEPT[name][1]


def _first_state(one: LaidOutStudy, step: PartitionedStep, trial: Trial) -> TrainState:
    """Returns the initial state as NumPy arrays."""

    def compute() -> TrainState:
        return jax.tree.map(np.asarray, jax.jit(step.start)(step.spans(trial.seed)))

    return _kept("state", (one.study.stream, trial.seed), compute)


def _steps(
    one: LaidOutStudy,
    step: PartitionedStep,
    program: jax.stages.Compiled,
    trial: Trial,
    state: TrainState,
    steps: range,
) -> tuple[TrainState, list[float]]:
    """Returns the state after some steps, and the loss before each step."""
    losses = []
    for at in steps:
        state, loss = program(state, _batch(one, step, trial, at), step.spans(trial.seed, at))
        losses.append(float(loss))
    return state, losses


def _batch(one: LaidOutStudy, step: PartitionedStep, trial: Trial, at: int) -> Examples:
    """Returns a batch of random numbers for a step, placed on its devices."""
    size = one.study.batch_size
    key = (one.study.stream, trial.seed, at)
    of_step = _kept(f"batch {at}", key, lambda: drawn(one.workload, one.classes, size, trial.seed, at))
    return jax.device_put(of_step, placements(step.batch(size)))


def _changes(before: TrainState, after: TrainState) -> Gradients:
    """Returns the change of the first array that the optimizer keeps for each parameter.

    After the first step, this is a multiple of the gradient if the optimizer has momentum.
    """
    known = {shardings.names(path) for path, _ in jax.tree_util.tree_leaves_with_path(before.params)}
    pairs = zip(jax.tree_util.tree_leaves_with_path(before.optimizer), jax.tree.leaves(after.optimizer), strict=True)
    found: Gradients = {}
    for (path, old), new in pairs:
        names = shardings.names(path)
        own = next((names[i:] for i in range(len(names) + 1) if names[i:] in known), None)
        if own is not None and own not in found:
            found[own] = np.asarray(new, np.float64) - old
    return found


def _reference(one: LaidOutStudy, trial: Trial) -> Gradients:
    """Returns ``_changes`` of a step on one device, which all layouts must reproduce."""
    study = one.study

    def compute() -> Gradients:
        step = whole_step(one)
        program = step.lowered(study.batch_size).compile(compiler_options=dict(UNHURRIED))
        state, _ = _steps(one, step, program, trial, _begin(one, step, trial), range(1))
        return _changes(_first_state(one, step, trial), state)

    key = (study.stream, study.precision, study.rematerialization, study.attention_block, trial.seed)
    return _kept("reference", key, compute)


def _difference(gradients: Gradients, others: Gradients) -> float:
    """Returns the largest relative difference between two gradients of any parameter, in the Euclidean norm."""
    pairs = [(gradients[name], others[name]) for name in others]
    return max(float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0)) for a, b in pairs)


def _timed(
    one: LaidOutStudy, step: PartitionedStep, program: jax.stages.Compiled, trial: Trial, state: TrainState
) -> Row:
    """Returns the seconds of each timed step, after some warm-up steps."""
    done = one.study.budget_steps
    batches = [_batch(one, step, trial, done + at) for at in range(WARM + TIMED)]
    spans = jax.device_put(step.spans(trial.seed, done), NamedSharding(step.on, PartitionSpec()))
    seconds = []
    for batch in jax.block_until_ready(batches):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(program(state, batch, spans))
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
