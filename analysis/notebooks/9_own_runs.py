# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own runs
#
# You do not have to train with this package to use its fits. This notebook takes 40 small networks that a NumPy script
# trained and logged for TensorBoard, and imports the logs. The rest works like for a sweep: a curve, its interval, and
# the runs to make next.

# %%
import runpy
import tempfile
from pathlib import Path

import pandas as pd

from analysis import next_runs, releases
from analysis.figures import payoff_figures
from analysis.fitting import curve_fits, fit_tables
from analysis.plotting import picture
from results.importers.runs import importer, run_map, suggestion

pd.set_option("display.precision", 3, "display.max_colwidth", None)
FOLDER = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Runs of another trainer
#
# `docs/examples/softmax_runs.py` trains softmax regression on handwritten digits, at eight batch sizes and five
# learning rates. Each run logs its training loss at every step, and its validation loss at steps that grow by about
# 10 %.

# %%
example = runpy.run_path(str(releases.ROOT / "docs" / "examples" / "softmax_runs.py"))
example["main"](FOLDER / "logs")

# %% [markdown]
# ## A map
#
# A map states how logs become studies. `scaling-limits import runs logs --suggest-map --map runs.yaml` writes a first
# version from what it finds. It proposes a target that every batch size reaches. Change the names and the target, and
# state what only you know, such as the devices.

# %%
lines = suggestion.suggest(FOLDER / "logs", FOLDER / "suggested.yaml")
print("\n".join(lines))

# %%
text = "\n".join(lines).replace("my_data", "digits").replace("my_model", "softmax_regression")
text = text.replace("???", "momentum").replace(lines[-1], "targets: {validation_loss: 0.4}")
text += "\ndevice_kind: one processor core\ndevice_count: 1\n"
(FOLDER / "runs.yaml").write_text(text)
print(text)

# %% [markdown]
# ## Import
#
# `scaling-limits import runs logs --map runs.yaml --store store`. The training loss was logged at every step, so it is
# averaged over windows: the first of many noisy values below a target comes too early.

# %%
importer.run(
    FOLDER / "logs",
    FOLDER / "store",
    run_map.read(FOLDER / "runs.yaml"),
    raw=False,
    dry_run=False,
    replace=False,
    report=print,
)

# %% [markdown]
# ## Pay-off
#
# `scaling-limits fit --store store` and `scaling-limits figures --store store --out figures`:

# %%
curves = curve_fits.of_store(FOLDER / "store")
table = fit_tables.table(*curve_fits.rows(curves))
names = ["optimizer", "pays_up_to", "pays_up_to_low", "pays_up_to_high", "pays_verdict", "efficient_up_to", "reason"]
table[names]

# %% [markdown]
# The map has the kind and the number of devices, so the logged times are seconds per step on this processor. Several
# devices are predicted as one with its share of the batch, without communication.

# %%
picture.show(payoff_figures.of_curves(curves))

# %% [markdown]
# ## The runs to make next
#
# `scaling-limits suggest --store store` lists the further runs that narrow the interval most for their cost.

# %%
print(next_runs.as_text(next_runs.of_store(FOLDER / "store")))
