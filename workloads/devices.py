"""The kind of device that a program is traced for. Some layers have a faster implementation on GPUs."""

import contextlib
from contextvars import ContextVar
from typing import Any

from workloads import axes

_DEVICE: ContextVar[Any] = ContextVar("device", default=None)
FLASH_CAPABILITY = 8.0  # least CUDA compute capability of cuDNN's attention


def traced_for(device: Any) -> contextlib.AbstractContextManager[Any]:
    """Traces programs for a ``jax.Device``. The default is for CPUs and TPUs. GPUs can run these programs, too."""
    return axes.set_to(_DEVICE, device)


def unrolls_layers() -> bool:
    """Returns whether stacked layers are unrolled. On a GPU, a loop would copy the slice of each layer."""
    device = _DEVICE.get()
    return device is not None and device.platform == "gpu" and not axes.are_divided()


def has_flash_attention() -> bool:
    """Returns whether cuDNN's attention can be used. It never writes the matrix of attention weights to memory."""
    capability = getattr(_DEVICE.get(), "compute_capability", "0")
    return unrolls_layers() and float(capability) >= FLASH_CAPABILITY
