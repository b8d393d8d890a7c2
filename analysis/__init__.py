"""From a store to numbers, regimes and figures. Reads results; needs no accelerator stack."""
