"""JAX's persistent compilation cache, on for every program however small."""

import os

from workloads import caches


def enable() -> None:
    """Caches compiled programs in JAX_COMPILATION_CACHE_DIR, or else in our cache folder. Initialises no backend."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(caches.folder("xla")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
