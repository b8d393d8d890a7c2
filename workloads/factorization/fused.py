"""The fused kernel of a CPU: rotated conjugate gradients and their gathers in one program of C++, compiled on demand.

XLA copies the vectors of a row's links and passes over the copy for every product. ``fused.cc`` leaves them where they
are, and takes both products of a look at a link at once. The machine's own C++ compiler compiles it for its
processor and one length of vectors, which takes seconds. The library is cached in a folder that nobody else can write
to, with its sha256 beside it, so that nothing but the compiler's output is ever loaded.
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

from results import durable
from results.bad_input import BadInput
from workloads import caches

if TYPE_CHECKING:
    from jax import Array

SOURCE = Path(__file__).with_name("fused.cc")
# Sums may be taken in any order, but NaN and infinity are kept.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
LINKED = ("-fno-math-errno", "-shared", "-fPIC", "-w")
SECONDS = 300
NAME = "scaling_limits_fused"


def compiler() -> str:
    """The C++ compiler: CXX, or the first of c++, g++ and clang++ that is there; BadInput if none is."""
    named = os.environ.get("CXX")
    for name in (named,) if named else ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return path
    missing = (
        f"CXX={named}, which does not exist" if named else "a C++ compiler, but c++, g++ and clang++ are not installed"
    )
    raise BadInput(f"als.kernel=fused needs {missing}; install one, or use als.kernel=xla")


def rows(
    table: "Array", columns: "Array", counts: "Array", ridge: "Array", start: "Array", diagonal: "Array", *, steps: int
) -> "Array":
    """Solves rows as ``solvers.conjugate_gradients`` does with a diagonal αG.

    Args:
      table: float32[slots, d], of the other side.
      columns: int32[rows, length], slots of the links, those that are there first.
      counts: float32[rows], how many are.
      ridge, start, diagonal: float32[rows], [rows, d] and [d], as in ``solvers.System``.
      steps: at least 1.

    Returns:
      float32[rows, d].
    """
    import jax

    call = jax.ffi.ffi_call(_register(start.shape[-1]), jax.ShapeDtypeStruct(start.shape, start.dtype))
    return call(table, columns, counts, diagonal, ridge, start, steps=np.int64(steps))


@functools.cache
def library(dim: int) -> tuple[str, ctypes.CDLL]:
    """The kernel for vectors of one length, compiled unless it is cached, and a name for it.

    Raises:
      BadInput: there is no compiler, or it fails, or the cache cannot be written, or others can write to it.
    """
    import jax

    # The name holds everything that the binary depends on, so that another compiler or processor has another file.
    command = compiler()
    machine = _output([command, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])  # version, instructions of the processor
    parts = (SOURCE.read_bytes(), str(dim).encode(), " ".join((*FLAGS, *LINKED, jax.__version__)).encode(), machine)
    name = f"{NAME}_{dim}_{hashlib.sha256(b' '.join(parts)).hexdigest()[:16]}"
    path = _own_folder() / f"{name}.so"
    # A cached library is loaded if its hash is right; otherwise it is compiled, and has to load then.
    loaded = _load(path)
    if loaded is None:
        _build([command, *FLAGS, *LINKED, f"-DDIM={dim}", "-I", jax.ffi.include_dir(), str(SOURCE), "-o"], path)
        loaded = _load(path)
    if loaded is None:
        raise BadInput(
            f"als.kernel=fused: the library {command} compiled from {SOURCE.name} cannot be loaded; use als.kernel=xla"
        )
    return name, loaded


def discard(dim: int) -> None:
    """Removes the cached kernel for one length, which may have killed a process; it is compiled again then."""
    for path in caches.folder("kernels").glob(f"{NAME}_{dim}_*"):
        with contextlib.suppress(OSError):
            path.unlink()


@functools.cache
def _register(dim: int) -> str:
    """The name by which XLA knows the kernel."""
    import jax

    name, loaded = library(dim)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(loaded.scaling_limits_fused_rows), platform="cpu")
    return name


def _own_folder() -> Path:
    """The folder of cached kernels; BadInput if others could have put something there, or it cannot be made."""
    folder = caches.folder("kernels")
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise _unwritable(error) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise BadInput(
            f"als.kernel=fused: {folder} is not a folder that only you can write to; remove it, or choose another "
            "with SCALING_LIMITS_CACHE=DIR"
        )
    return folder


def _unwritable(error: OSError) -> BadInput:
    return BadInput(
        f"als.kernel=fused: {caches.folder('kernels')} cannot be written ({error.strerror}); choose another with "
        "SCALING_LIMITS_CACHE=DIR"
    )


def _load(path: Path) -> ctypes.CDLL | None:
    """The library; None if there is none, or its hash is not the one of the compiled file."""
    try:
        intact = path.with_suffix(".sha256").read_text() == caches.file_digest(path)
        return ctypes.CDLL(str(path)) if intact else None
    except OSError:
        return None


def _build(command: list[str], path: Path) -> None:
    """Runs a compiler, with the file to write as the last word, and caches the library with its hash beside it."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=durable.TEMPORARY) as folder:
            library = Path(folder) / path.name
            _output([*command, str(library)])
            durable.replace(path, library.read_bytes())
            durable.replace(path.with_suffix(".sha256"), caches.file_digest(library).encode())
    except OSError as error:
        raise _unwritable(error) from None


def _output(command: list[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"als.kernel=fused: {command[0]} cannot be run ({error}); use als.kernel=xla") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        why = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {done.returncode}")
        raise BadInput(f"als.kernel=fused: {command[0]} cannot compile the kernel ({why[:200]}); use als.kernel=xla")
    return done.stdout
