"""Reads configurations into plans of kind ``layout``."""

import dataclasses
from collections.abc import Sequence

from harness.compiled import topologies
from harness.processes import processors
from results.bad_input import BadInput, check_choice, nearest, number_of
from results.costs.hardware import HARDWARE, described, hardware_of
from results.plans.layout import AHEAD, DEVICE, EMULATED, PRECISIONS, LayoutStudy
from results.plans.search_space import SearchSpace
from results.plans.study import check_int
from sweeps import choices, network_config
from sweeps.configured_study import Config, ConfiguredStudy
from workloads import packages, registry
from workloads.layouts import shapes
from workloads.layouts.notation import Layout, Refused, Tensors, read_layout, read_mesh
from workloads.layouts.shapes import SHAPES, Shape
from workloads.workload import STACKED

ON_INVALID = ("error", "record")
MOST_EMULATED = 64  # devices, because XLA's threads deadlock with several hundred


def read(config: Config) -> ConfiguredStudy[LayoutStudy]:
    """Returns the study of a configuration. Raises BadInput if it is invalid, unless ``on_invalid=record``."""
    step = config["step"]
    for key, lowest in {"batch_size": 1, "length": 1, "attention_block": 0}.items():
        check_int(f"step.{key}", step[key], lowest)
    check_choice("on_invalid", config["on_invalid"], ON_INVALID)
    check_choice("step.precision", step["precision"], PRECISIONS)
    registry.check("optimizer", step["optimizer"])
    engine = config["engine"]
    hardware = _hardware(engine, config["hardware"])
    for key in ("mesh", "layout"):
        if config[key] is None:
            raise BadInput(f"{key}=null: a value is needed")
    source, fields, tensors = _of_shape(step) if step["task"] is None else _of_task(config)
    text = shapes.layout_text(config["layout"].strip(), tensors.sizes)
    mesh, layout, count = _read(config, tensors, text)
    study = LayoutStudy(
        **fields,
        batch_size=step["batch_size"],
        mesh=mesh,
        layout=str(layout),
        strict=config["strict"] or isinstance(layout, Layout),
        device_count=count,
        engine=engine,
        hardware=hardware,
        precision=step["precision"],
        rematerialization=step["rematerialization"],
        budget_steps=1 if engine.startswith(AHEAD) else step["steps"],
        space=SearchSpace({}),
        seed=config["seed"],
        trials=1 if config["trials"] is None else config["trials"],
        optimizer=step["optimizer"],
        attention_block=step["attention_block"],
    )
    if kept := study.kept:
        _check_kept(kept, study, source)
    _check_devices(study)
    return ConfiguredStudy(study, source)


def _of_shape(step: Config) -> tuple[None, Config, Tensors]:
    """Returns a plan's fields that describe a Transformer, and the Transformer's named axes."""
    shape = _shape(step)
    changed = [f"{name}{value}".lower() for name, value in sorted(step["shape"].items())]
    fields = {
        "model": "_".join([step["model"], *changed]),
        "model_options": shape.plan(),
        "length": step["length"],
    }
    if packages.is_qualified(step["optimizer"]):
        fields["packages"] = {"optimizer": packages.identity("optimizer", step["optimizer"])}
    return None, fields, shapes.tensors(shape, step["batch_size"], step["length"])


def _of_task(config: Config) -> tuple[Config | None, Config, Tensors]:
    """Returns the options of a task's own data set, the plan's fields about a step, and the model's named axes."""
    from harness.step import shardings

    step = config["step"]
    task = choices.task(step["task"])
    if step["shape"]:
        raise BadInput(f"step.shape changes a Transformer of step.model. Leave it out with step.task={step['task']}.")
    name, optimizer = task["dataset"], step["optimizer"]
    registry.check("dataset", name)
    source = dict(config[name] or {}) if name in registry.OWN_DATASETS else None
    dataset = registry.dataset(name, source)
    options, model = network_config.model_options(task, dataset)
    if step["batch_size"] % model.group:
        raise BadInput(
            f"step.batch_size={step['batch_size']} cuts groups of {model.group} examples that the model normalizes "
            f"together. Use a multiple of {model.group}."
        )
    if step["attention_block"] and "attention_block" not in registry.model_options(task["model"]["name"]):
        raise BadInput(f"step.attention_block: {task['model']['name']} has no blocked attention. Leave it out.")
    workload = registry.workload(dataset, task["model"]["name"], options, optimizer, step["precision"])
    labels = workload.shapes.validation.labels.shape
    fields = {
        "model": task["model"]["name"],
        "model_options": options,
        "length": labels[1] if len(labels) > 1 else 1,
        "dataset": name,
        "dataset_version": dataset.version(),
        "packages": registry.package_identities(name, task["model"]["name"], optimizer),
    }
    tensors = shardings.tensors(workload, step["batch_size"])
    rematerialization = step["rematerialization"]
    if rematerialization != "none" and not any(STACKED in name for name in tensors.tensors):
        raise BadInput(
            f"step.rematerialization={rematerialization}: the model has no stacked layers to compute again. "
            "Leave it out."
        )
    return source, fields, tensors


def _check_kept(kept: Sequence[str], study: LayoutStudy, source: Config | None) -> None:
    """Raises BadInput unless the model has all tensors that should be kept."""
    from harness.runners import layouts

    names = layouts.kept_names(study, source)
    for name in kept:
        check_choice("step.rematerialization", name, ("none", "full", *names))


def notes(studies: Sequence[LayoutStudy]) -> list[str]:
    """Returns notes on the studies, for users who read their plans."""
    engines = {study.engine_name for study in studies}
    texts = {
        EMULATED: "emulated devices show results, redundancy, memory and bytes, but not speed",
        AHEAD: "programs compiled ahead are predicted and counted, not measured",
        DEVICE: "measured steps run one layout after another",
    }
    return [text for name, text in texts.items() if name in engines]


def _shape(step: Config) -> Shape:
    check_choice("step.model", step["model"], SHAPES)
    names = [field.name for field in dataclasses.fields(Shape)]
    for key, value in step["shape"].items():
        if key not in names:
            raise BadInput(f"step.shape.{key}: unknown key; {nearest(key, names)}")
        default = getattr(SHAPES[step["model"]], key)
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise BadInput(f"step.shape.{key} must be true or false, not {value!r}")
        else:
            check_int(f"step.shape.{key}", value, 0 if key in shapes.OMITTED else 1)
    shape = dataclasses.replace(SHAPES[step["model"]], **step["shape"])
    if shape.kv % 2:
        raise BadInput(f"step.shape.kv={shape.kv} must be even, because positions rotate pairs of numbers")
    if shape.key_heads and shape.heads % shape.key_heads:
        raise BadInput(f"step.shape.key_heads={shape.key_heads} does not divide heads={shape.heads}")
    return shape


def _hardware(engine: str, asked: str | None) -> str:
    """Returns the device that costs are predicted for: the topology's device, otherwise the requested device."""
    if asked is not None:
        check_choice("hardware", asked.partition(";")[0], HARDWARE)
        described(asked)  # checks the options
    if not engine.startswith(f"{AHEAD}:"):
        return asked or "v5p"
    topology = engine.partition(":")[2]
    topologies.check(topology)
    named = topology.partition(":")[0]
    row = hardware_of(named if named.startswith("tpu") else f"TPU {named}")
    assert row is not None  # every version has hardware
    if asked is None:
        return row
    if asked.partition(";")[0] != row:
        raise BadInput(f"hardware={asked}: engine={engine} predicts costs of {row}. Leave out hardware.")
    return asked


def _devices(engine: str, asked: int | None) -> int | None:
    """Returns a mesh's number of devices: the topology's, otherwise the requested number. None if neither is given."""
    if asked is not None:
        check_int("devices", asked, 1)
    if not engine.startswith(f"{AHEAD}:"):
        return asked
    count = topologies.count(engine.partition(":")[2])
    if asked not in (None, count):
        raise BadInput(f"devices={asked}: engine={engine} has {number_of(count, 'device')}")
    return count


def _read(config: Config, tensors: Tensors, text: str) -> tuple[str, Layout | str, int]:
    """Reads the mesh, the layout and the number of devices. With ``on_invalid=record``, invalid texts are kept."""
    given = config["mesh"].strip()
    asked = _devices(config["engine"], config["devices"])
    mesh = None
    try:
        mesh = read_mesh(given, asked)
        layout = read_layout(text, mesh, tensors, strict=config["strict"])
    except Refused:
        if config["on_invalid"] == "error":
            raise
        return given, text, asked or (mesh.size if mesh else 1)
    return str(mesh), layout, mesh.size


def _check_devices(study: LayoutStudy) -> None:
    """Raises BadInput if this machine does not have enough devices for a study."""
    kind, devices = processors.accelerators()
    physical = len(processors.physical_cores())
    if study.engine_name == DEVICE and study.device_count > (devices or physical):
        available = number_of(devices, f"{kind} device") if devices else number_of(physical, "physical core")
        raise BadInput(
            f"engine={DEVICE}: mesh {study.mesh} has {number_of(study.device_count, 'device')}, but this machine has "
            f"{available}. Use engine={EMULATED}, which emulates devices on a CPU."
        )
    if study.engine_name == EMULATED and study.device_count > max(MOST_EMULATED, physical):
        raise BadInput(
            f"engine={EMULATED} has at most {MOST_EMULATED} devices, not {study.device_count}. "
            f"Use engine={AHEAD}:TOPOLOGY to compile for more."
        )
