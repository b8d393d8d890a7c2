"""Turns a store into numbers, regimes and figures. Reads results without needing an accelerator stack."""

import results  # noqa: F401  (rejects a Python version that is too old)
