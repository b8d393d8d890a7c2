"""Slots of this machine: the logical processors and the environment of each worker process."""

import os
from collections.abc import Sequence

from harness.processes import processors
from harness.processes.processors import Cpus
from results.bad_input import BadInput, number_of
from results.storage import attempts
from workloads import data_stream

Slot = tuple[Cpus, dict[str, str]]  # logical processors and environment of a process


def slots(workers: int | None, per_worker: int = 1) -> list[Slot]:
    """Returns the logical processors and the environment of each worker.

    On accelerators, a worker owns the devices that one batch is split across, and additional workers share devices
    evenly. On a CPU, a worker has one physical core, which emulates several devices if necessary, and additional
    workers share cores.

    Args:
      workers: number of workers. By default, all devices or cores are used.
      own: number of devices that each trial is split across.

    Raises:
      BadInput: the machine has too few devices.
    """
    kind, devices = processors.accelerators()
    if not devices:
        cores = processors.physical_cores()
        if attempts.VARIABLE in os.environ:  # other attempts may share the machine
            cores = processors.unclaimed_cores(workers or 1) or cores
        emulated = {"JAX_NUM_CPU_DEVICES": str(per_worker)} if per_worker > 1 else {}
        return [(cores[i % len(cores)], emulated) for i in range(workers or len(cores))]
    if per_worker > devices or (kind == "tpu" and per_worker not in (1, devices)):
        possible = f"1 or {devices}" if kind == "tpu" else f"at most {devices}"
        available = number_of(devices, kind.upper())
        raise BadInput(
            f"each trial is divided over {per_worker} devices, but this machine has {available}. Use {possible}."
        )
    groups = len(processors.devices_of_chips()) if kind == "tpu" and per_worker == 1 else devices // per_worker
    count = workers or groups
    share = f"{0.9 / -(-count // groups):.3f}"

    def environment(i: int) -> dict[str, str]:
        ids = range(i % groups * per_worker, (i % groups + 1) * per_worker)
        if kind == "gpu":
            return {"CUDA_VISIBLE_DEVICES": ",".join(map(gpu_name, ids)), "XLA_PYTHON_CLIENT_MEM_FRACTION": share}
        if per_worker > 1:
            return {}
        bounds = dict.fromkeys(("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_PROCESS_BOUNDS"), "1,1,1")
        return {"TPU_VISIBLE_CHIPS": str(ids[0])} | bounds

    return [((), environment(i)) for i in range(count)]


def occupied(slots: Sequence[Slot], studies: int) -> list[Slot]:
    """Returns a slot for each study, as long as slots are left. Unbound workers get the number of workers."""
    taken = slots[:studies]
    return [
        (cpus, environment if cpus else environment | {data_stream.SHARED_BY: str(len(taken))})
        for cpus, environment in taken
    ]


def slot_alone(cores: int | None) -> Slot:
    """Returns the logical processors and the environment of an exclusive process.

    On a CPU, each core is a physical core and a JAX device, and other libraries use a single thread. If there are more
    devices than physical cores, the devices share the cores. On accelerators, each core is a device.

    Args:
      cores: number of cores. With None, all cores are used, and the process is not bound.
    """
    if cores is None:
        return (), {}
    kind, devices = processors.accelerators()
    if devices:
        return (), {"CUDA_VISIBLE_DEVICES": ",".join(map(gpu_name, range(cores)))} if kind == "gpu" else {}
    bound = tuple(sorted(cpu for core in processors.physical_cores()[:cores] for cpu in core))
    return bound, {"JAX_NUM_CPU_DEVICES": str(cores), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def gpu_name(device: int) -> str:
    """Returns the name of one of the GPUs that this process may use."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices.split(",")[device] if devices else str(device)
