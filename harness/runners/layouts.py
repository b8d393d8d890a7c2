"""Runs the trials of a layout study: compiles a step for the mesh and counts its costs. Some engines also time it."""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from harness.compiled import hlo, jaxpr_cost, topologies
from harness.run import COMPILING, TRAINING, OnFinished, OnProgress, Record, RunProgress, Source
from harness.step import shardings
from harness.step.partitioned import PartitionedStep, drawn, partitioned, placements
from harness.step.training import TrainState, with_rows
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
Options = Mapping[str, Any]  # of a compiler
LOST = 1e-3  # share of a step's FLOPs that a compiler may remove as unused
WARM = 3  # untimed steps
TIMED = 20  # timed steps
# Emulated devices are not timed, so their programs may be slow. This halves compile time.
UNHURRIED: Options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


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

    def on_one_device(self) -> "LaidOutStudy":
        """Returns the study on a single device."""
        return self._replace(mesh=Mesh({"data": 1}), layout=Layout({}))


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
    inputs = with_rows(workload.shapes.validation, 1).inputs
    return axes.kept_names(workload.predict, *workload.variable_shapes, inputs)


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


def _run_here(laid_out: LaidOutStudy, trial: Trial, on_progress: OnProgress, *, timed: bool) -> Record:
    """Runs the steps of a trial on the devices of this process, then times additional steps."""
    began = time.perf_counter()
    study = laid_out.study
    running = _compiled(laid_out, trial, {} if timed or jax.default_backend() != "cpu" else UNHURRIED)
    row = accounts(laid_out, running.program)
    compiled = time.perf_counter()
    on_progress(RunProgress(TRAINING))
    state, losses = running.train(running.start(), range(1))
    if not timed:
        row["gradient_difference"] = _difference(_changes(running.first_state(), state), _reference(laid_out, trial))
    state, later_losses = running.train(state, range(1, study.budget_steps))
    losses += later_losses
    train_seconds = time.perf_counter() - compiled
    if timed:
        row |= running.timed(state)
    finite = bool(np.isfinite(losses).all())
    end = TrialOutcome("COMPLETE" if finite else "INFEASIBLE", None, len(losses))
    on_progress(RunProgress(TRAINING, {study.budget_steps: 1}, {}, len(losses), train_seconds, 0.0))
    return _record(trial, losses, row, end, compiled - began, train_seconds)


def _compile_ahead(laid_out: LaidOutStudy, trial: Trial, on_progress: OnProgress) -> Record:
    """Compiles a step for TPUs that are not attached."""
    began = time.perf_counter()
    study, mesh = laid_out.study, laid_out.mesh
    devices = topologies.devices(study.topology)
    if len(devices) != mesh.size:
        message = f"mesh {str(mesh)!r} has {mesh.size} devices, but {study.topology} has {len(devices)}"
        raise Refused("devices", None, message)
    made = laid_out.on(devices).compiled_ahead(study.batch_size)
    if made.program is None:
        raise Refused("memory", None, made.why)
    row = accounts(laid_out, made.program)
    return _record(trial, [], row, TrialOutcome("COMPLETE", None, 1), time.perf_counter() - began)


ENGINES: dict[str, Callable[[LaidOutStudy, Trial, OnProgress], Record]] = {
    plans.EMULATED: functools.partial(_run_here, timed=False),
    plans.DEVICE: functools.partial(_run_here, timed=True),
    plans.AHEAD: _compile_ahead,
}


def accounts(laid_out: LaidOutStudy, program: jax.stages.Compiled) -> Row:
    """Returns the counts of a compiled step, as columns of ``results.plans.layout``.

    Predictions are not stored. They are derived from these columns when results are read.

    Args:
      laid_out: the study with its parsed mesh and layout.
      program: compiled step of the study.

    Raises:
      Unparsed: part of the compiled program cannot be parsed.
    """
    text = program.as_text()
    memory = program.memory_analysis()
    assert text is not None and memory is not None  # CPUs, GPUs and TPUs have both
    contents = hlo.read(text).check()
    ideal = ideal_flops(laid_out)
    executed = contents.flops * laid_out.mesh.size
    # A device with a single element of an axis computes some products as sums.
    thin = any(laid_out.sizes[name] == laid_out.mesh[axis] for name, axis in laid_out.layout.items())
    if executed < (1 - LOST) * ideal and not contents.loops[1] and not thin:
        raise hlo.Unparsed(
            f"the readable products of the compiled step have {executed:.6g} FLOPs, fewer than {ideal:.6g}"
        )
    totals = collectives.totals(contents.collectives, laid_out.mesh)
    return {
        "ideal_flops": float(ideal),
        "executed_flops": float(executed),
        "redundancy": executed / ideal if ideal else 1.0,  # without matmuls, none is repeated
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "peak_bytes": jaxpr_cost.peak_bytes(program),
        "wire_bytes": sum(wire for _, _, wire in totals.values()),
        "collectives": json.dumps(
            [
                {"operation": operation, "axes": axes, "count": count, "bytes": size, "wire_bytes": wire}
                for (operation, axes), (count, size, wire) in sorted(totals.items())
            ]
        ),
        "unknown_loops": contents.loops[1],
        "hardware": laid_out.study.hardware,
        "scheduled_cycles": contents.cycles or None,
    }


def ideal_flops(laid_out: LaidOutStudy) -> float:
    """Returns the FLOPs of a step and its optimizer if every matmul and convolution is executed only once."""
    step = laid_out.on_one_device().on(jax.devices())
    step = step._replace(sharding=step.sharding._replace(rematerialized=False))
    return jaxpr_cost.matrix_flops(step.jaxpr(laid_out.study.batch_size))


_KEPT: dict[str, tuple[Hashable, Any]] = {}  # the last result of each kind, which many layouts share


def _kept(name: str, key: Hashable, compute: Callable[[], Any]) -> Any:
    if _KEPT.get(name, (None, None))[0] != key:
        _KEPT[name] = key, compute()
    return _KEPT[name][1]


@dataclasses.dataclass(frozen=True)
class _CompiledStep:
    """The step of a trial on the devices of this process."""

    laid_out: LaidOutStudy
    trial: Trial
    step: PartitionedStep
    program: jax.stages.Compiled

    def first_state(self) -> TrainState:
        """Returns the initial state as NumPy arrays."""
        start = jax.jit(self.step.start)
        key = self.laid_out.study.stream, self.trial.seed
        return _kept("state", key, lambda: jax.tree.map(np.asarray, start(self.step.spans(self.trial.seed))))

    def start(self) -> TrainState:
        """Returns the initial state, placed on its devices."""
        shardings_of_state = placements(self.step.carry)
        if jax.default_backend() == "cpu":  # all layouts share it and differ only in sharding
            return jax.device_put(self.first_state(), shardings_of_state)
        return jax.jit(self.step.start, out_shardings=shardings_of_state)(self.step.spans(self.trial.seed))

    def batch(self, index: int) -> Examples:
        """Returns a batch of random numbers for a step, placed on its devices."""
        study, seed = self.laid_out.study, self.trial.seed
        draw = functools.partial(drawn, self.laid_out.workload, self.laid_out.classes, study.batch_size, seed, index)
        batch = _kept(f"batch {index}", (study.stream, seed, index), draw)
        return jax.device_put(batch, placements(self.step.batch(study.batch_size)))

    def train(self, state: TrainState, steps: range) -> tuple[TrainState, list[float]]:
        """Returns the state after some steps, and the loss before each step."""
        losses = []
        for index in steps:
            state, loss = self.program(state, self.batch(index), self.step.spans(self.trial.seed, index))
            losses.append(float(loss))
        return state, losses

    def timed(self, state: TrainState) -> Row:
        """Returns the seconds of each timed step, after some warm-up steps."""
        done = self.laid_out.study.budget_steps
        batches = jax.block_until_ready([self.batch(done + i) for i in range(WARM + TIMED)])
        spans = jax.device_put(self.step.spans(self.trial.seed, done), NamedSharding(self.step.on, PartitionSpec()))
        seconds = []
        for batch in batches:
            began = time.perf_counter()
            state, _ = jax.block_until_ready(self.program(state, batch, spans))
            seconds.append(time.perf_counter() - began)
        low, median, high = np.percentile(seconds[WARM:], [25, 50, 75])
        return {"step_seconds": median, "step_seconds_low": low, "step_seconds_high": high, "timed_steps": TIMED}


def _compiled(laid_out: LaidOutStudy, trial: Trial, options: Options) -> _CompiledStep:
    step = laid_out.on(jax.devices())
    program = step.lowered(laid_out.study.batch_size).compile(compiler_options=dict(options))
    return _CompiledStep(laid_out, trial, step, program)


def _changes(before: TrainState, after: TrainState) -> Gradients:
    """Returns the change of the first array that the optimizer keeps for each parameter.

    After the first step, this is a multiple of the gradient if the optimizer has momentum.
    """
    parameters = {shardings.names(path) for path, _ in jax.tree_util.tree_leaves_with_path(before.params)}
    pairs = zip(jax.tree_util.tree_leaves_with_path(before.optimizer), jax.tree.leaves(after.optimizer), strict=True)
    changes: Gradients = {}
    for (path, old), new in pairs:
        names = shardings.names(path)
        parameter = next((names[i:] for i in range(len(names) + 1) if names[i:] in parameters), None)
        if parameter is not None and parameter not in changes:
            changes[parameter] = np.asarray(new, np.float64) - old
    return changes


def _reference(laid_out: LaidOutStudy, trial: Trial) -> Gradients:
    """Returns ``_changes`` of a step on one device, which all layouts must reproduce."""

    def compute() -> Gradients:
        running = _compiled(laid_out.on_one_device(), trial, UNHURRIED)
        state, _ = running.train(running.start(), range(1))
        return _changes(running.first_state(), state)

    study = laid_out.study
    key = (study.stream, study.precision, study.rematerialization, study.attention_block, trial.seed)
    return _kept("reference", key, compute)


def _difference(gradients: Gradients, others: Gradients) -> float:
    """Returns the largest relative difference between two gradients of any parameter, in the Euclidean norm."""
    pairs = [(gradients[name], others[name]) for name in others]
    return max(float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0)) for a, b in pairs)


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
