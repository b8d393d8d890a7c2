"""Enables JAX's persistent compilation cache for all programs, regardless of size.

JAX is imported inside functions because planning commands import this module.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from harness.processes import multihost
from results.bad_input import BadInput
from workloads import caches

if TYPE_CHECKING:
    from jax.stages import Compiled, Lowered


def obstacle() -> str | None:
    """Returns a one-line reason why compiled programs cannot be cached, or None if they can."""
    if named := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        # Compiled programs are native code, which every writer of the bucket could replace.
        return f"JAX_COMPILATION_CACHE_DIR={named} is not a local folder. Unset it." if "://" in named else None
    try:
        folder = caches.folder("xla")
    except BadInput as error:
        return str(error)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror}). Choose another with SCALING_LIMITS_CACHE=DIR."


def enable() -> None:
    """Enables the cache in JAX_COMPILATION_CACHE_DIR or the default folder, or disables it if it cannot be used.

    Does not initialize a backend.
    """
    import jax

    if obstacle():  # JAX would warn for every program
        jax.config.update("jax_compilation_cache_dir", None)
        return
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(caches.folder("xla")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def compiled(program: "Lowered") -> "Compiled":
    """Compiles a program. If several processes need it at once, one compiles it and the others read the cache.

    Processes of a multi-host run do not wait for each other here. On GPUs, XLA splits autotuning between them, so all
    of them must compile concurrently.
    """
    import jax

    takes_turns = jax.config.values["jax_compilation_cache_dir"] and not multihost.are_many()
    with _in_turn(program.as_text()) if takes_turns else contextlib.nullcontext():
        return program.compile()


@contextlib.contextmanager
def _in_turn(text: str) -> Iterator[None]:
    """Holds a lock while compiling, so processes on this machine take turns. Different programs may share a lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, BadInput):  # if the folder is not writable, there is no cache either
            folder = caches.folder("compiling")
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(folder / hashlib.sha256(text.encode()).hexdigest()[:2], "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
