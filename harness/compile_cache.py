"""JAX's persistent compilation cache, on for every program however small."""

import os
import tempfile

from results.bad_input import BadInput
from workloads import caches


def obstacle() -> str | None:
    """The reason why compiled programs cannot be kept, in one line; None if they can."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return None
    try:
        folder = caches.folder("xla")
    except BadInput as error:
        return str(error)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror}); choose another with SCALING_LIMITS_CACHE=DIR"


def enable() -> None:
    """Caches compiled programs in JAX_COMPILATION_CACHE_DIR, or else in our cache folder, unless there is an obstacle.

    Initialises no backend.
    """
    import jax

    if obstacle():  # of which JAX would warn at every program
        return
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(caches.folder("xla")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
