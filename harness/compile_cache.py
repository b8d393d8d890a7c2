"""JAX's persistent compilation cache, on for every program however small."""

import os
from pathlib import Path


def enable() -> None:
    """Keeps compiled programs in JAX_COMPILATION_CACHE_DIR, or else in the user's cache folder. Starts no backend."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "scaling-limits" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
