"""From a store to numbers, regimes and figures. Reads results and needs no accelerator stack."""

import results  # noqa: F401  (refuses a Python that is too old)
