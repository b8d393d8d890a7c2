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
# # As a library
#
# You can call everything that the commands do from Python: define a study with plain arguments, measure it into a
# folder, and read the results as pandas tables. This page trains 40 small networks in at most a minute on two cores.
# Its store is a temporary folder. Use a path such as `"results/mine"` to keep results. All functions accept a `str` or
# a `Path`.

# %%
import tempfile

import sweeps
from analysis.figures import batch_figures
from analysis.fitting import curve_fits
from analysis.plotting import picture
from analysis.trials import steps_to_target

FOLDER = tempfile.TemporaryDirectory()
STORE = FOLDER.name

# %% [markdown]
# ## A study
#
# `sweeps.study` takes the options of `python -m sweeps` as arguments. Pass keys with dots as `**{"task.budget.steps":
# 100}`. The function checks everything, runs nothing, and returns a plan. Mistakes raise `BadInput`, a `ValueError`
# with a one-line message.

# %%
one = sweeps.study(task="digits_fc", optimizer="nesterov", batch_size=64, trials=4)
print(one.study.name, one.study.budget_steps, one.study.space, sep="\n")

# %%
try:
    sweeps.study(task="digits_fc", optimizer="nesterof")
except ValueError as error:
    print(error)

# %% [markdown]
# ## A sweep
#
# In `sweeps.sweep`, a list is an axis, and every combination is a study. `sweeps.sweep(experiment="quickstart")`
# returns the studies of a preset.

# %%
studies = sweeps.sweep(task="digits_fc", optimizer="nesterov", batch_size=[16, 64, 256, 512, 1024], trials=8)
[each.study.name for each in studies]

# %% [markdown]
# `sweeps.measure` runs them in worker processes, one per core, and returns three tables. Workers do not import your
# notebook or script, so you do not need `if __name__ == "__main__":`. Calling it again runs only studies that the
# store lacks, so an interrupted call resumes.

# %%
tables = sweeps.measure(studies, STORE)
tables.trials.groupby("status").size()

# %% [markdown]
# `studies` has one row per study, `trials` one per trial with its metaparameters, and `measurements` one per
# evaluation. Read an existing store with `results.store.read("results/published")`.

# %%
tables.measurements[["trial", "step", "train_loss", "validation_error"]].tail()

# %% [markdown]
# ## Answers
#
# The tables of the commands are also functions. `python -m analysis steps` prints this one, and `python -m analysis
# fit` the next one. With only eight trials per point, the answers are uncertain, as their verdicts state.

# %%
answers = steps_to_target.table(*steps_to_target.load(STORE))
answers[["batch_size", "target_metric", "target_value", "steps_low", "steps_high"]]

# %%
found = curve_fits.table(STORE)
found[["optimizer", "pays_up_to_low", "pays_up_to", "pays_up_to_high", "pays_verdict", "efficient_up_to"]]

# %% [markdown]
# The critical batch size is in the same table, if the curve is a hyperbola:

# %%
found[["optimizer", "critical_batch_size", "verdict", "doubts", "reason"]]

# %% [markdown]
# Draw a figure from the same fits:

# %%
picture.show(batch_figures.steps_to_target(curve_fits.of_store(STORE)))
