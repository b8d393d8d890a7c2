"""The fused CPU kernel: one C++ function for rotated conjugate gradients and their gathers, compiled on demand.

XLA copies the vectors of a row's links and reads the copy once per product. ``fused.cc`` does not copy them, and
computes both products when it reads a vector. The local C++ compiler compiles it for this processor and one vector
length, which takes a few seconds. The library is cached together with its sha256 in a folder that only the user can
write to, so only the compiler's output is ever loaded.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workloads import caches
from workloads.base import BadInput, durable

if TYPE_CHECKING:
    from jax import Array

SOURCE = Path(__file__).with_name("fused.cc")
# Sums may be reordered, but NaN and infinity are preserved.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
LINKED = ("-fno-math-errno", "-shared", "-fPIC", "-w")
SECONDS = 300
NAME = "scaling_limits_fused"


def compiler() -> str:
    """Returns the C++ compiler: CXX, or the first found of c++, g++ and clang++. Raises BadInput if all are missing."""
    named = os.environ.get("CXX")
    for name in (named,) if named else ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return path
    missing = (
        f"CXX={named}, which does not exist" if named else "a C++ compiler, but c++, g++ and clang++ are not installed"
    )
    raise BadInput(f"als.kernel=fused needs {missing}. Install one, or use als.kernel=xla.")


def rows(
    table: "Array", columns: "Array", counts: "Array", ridge: "Array", start: "Array", diagonal: "Array", *, steps: int
) -> "Array":
    """Solves rows like ``solvers.conjugate_gradients`` does for a diagonal αG.

    Args:
      table: float32[slots, d], table of the other side.
      columns: int32[rows, length], slots of each row's links, followed by padding.
      counts: float32[rows], number of links of each row.
      ridge, start, diagonal: float32[rows], [rows, d] and [d], as in ``solvers.System``.
      steps: number of steps, at least 1.

    Returns:
      float32[rows, d].
    """
    import jax

    call = jax.ffi.ffi_call(_register(start.shape[-1]), jax.ShapeDtypeStruct(start.shape, start.dtype))
    return call(table, columns, counts, diagonal, ridge, start, steps=np.int64(steps))


@functools.cache
def library(dim: int) -> tuple[str, ctypes.CDLL]:
    """Returns a name for the kernel for one vector length, and its library. Compiles the library unless it is cached.

    Raises:
      BadInput: there is no compiler, compilation fails, or the cache is not writable or can be written to by others.
    """
    import jax

    # The name contains a hash of everything that the binary depends on, including the compiler and the processor.
    command = compiler()
    machine = _output([command, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])  # compiler version and instruction set
    parts = (SOURCE.read_bytes(), str(dim).encode(), " ".join((*FLAGS, *LINKED, jax.__version__)).encode(), machine)
    name = f"{NAME}_{dim}_{hashlib.sha256(b' '.join(parts)).hexdigest()[:16]}"
    path = _own_folder() / f"{name}.so"
    # Loads a cached library if its hash is correct, otherwise compiles it.
    loaded = _load(path)
    if loaded is None:
        _build([command, *FLAGS, *LINKED, f"-DDIM={dim}", "-I", jax.ffi.include_dir(), str(SOURCE), "-o"], path)
        loaded = _load(path)
    if loaded is None:
        raise BadInput(
            f"als.kernel=fused: the library {command} compiled from {SOURCE.name} cannot be loaded. Use als.kernel=xla."
        )
    return name, loaded


def discard(dim: int) -> None:
    """Removes the cached kernel for one vector length, so it is recompiled. Call it if the kernel may have crashed."""
    for path in caches.folder("kernels").glob(f"{NAME}_{dim}_*"):
        with contextlib.suppress(OSError):
            path.unlink()


@functools.cache
def _register(dim: int) -> str:
    """Registers the kernel with XLA and returns its name."""
    import jax

    name, loaded = library(dim)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(loaded.scaling_limits_fused_rows), platform="cpu")
    return name


def _own_folder() -> Path:
    """Returns the folder of cached kernels. Raises BadInput if others can write to it or if it cannot be created."""
    folder = caches.folder("kernels")
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise _unwritable(error) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise BadInput(
            f"als.kernel=fused: {folder} is not a folder that only you can write to. Remove it, or choose another "
            "with SCALING_LIMITS_CACHE=DIR."
        )
    return folder


def _unwritable(error: OSError) -> BadInput:
    return BadInput(
        f"als.kernel=fused: {caches.folder('kernels')} cannot be written ({error.strerror}). Choose another with "
        "SCALING_LIMITS_CACHE=DIR."
    )


def _load(path: Path) -> ctypes.CDLL | None:
    """Returns the library, or None if it is missing or its hash is wrong."""
    try:
        intact = path.with_suffix(".sha256").read_text() == durable.sha256(path)
        return ctypes.CDLL(str(path)) if intact else None
    except OSError:
        return None


def _build(command: list[str], path: Path) -> None:
    """Runs a compile command with the output file appended, and caches the library together with its hash."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=durable.TEMPORARY) as folder:
            library = Path(folder) / path.name
            _output([*command, str(library)])
            durable.replace(path, library.read_bytes())
            durable.replace(path.with_suffix(".sha256"), durable.sha256(library).encode())
    except OSError as error:
        raise _unwritable(error) from None


def _output(command: list[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"als.kernel=fused: {command[0]} cannot be run ({error}). Use als.kernel=xla.") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        why = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {done.returncode}")
        raise BadInput(f"als.kernel=fused: {command[0]} cannot compile the kernel ({why[:200]}). Use als.kernel=xla.")
    return done.stdout
