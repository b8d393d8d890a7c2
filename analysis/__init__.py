"""Analyzes the results in a store: numbers, regimes and figures. Does not need an accelerator or its software."""

import results  # noqa: F401  (rejects a Python version that is too old)
