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
# Everything that the commands do can be called from Python: a study by plain arguments, its measurement into a folder,
# and the results as pandas tables. This page trains 40 small networks, which takes a minute at most on two cores, and
# keeps nothing: its store is a temporary folder. Yours would be a path, such as `"results/mine"`; every function takes
# a `str` or a `Path`.

# %%
import tempfile

import sweeps
from analysis.figures import batch_figures
from analysis.fitting import curve_fits
from analysis.plotting import picture
from analysis.trials import steps

FOLDER = tempfile.TemporaryDirectory()
STORE = FOLDER.name

# %% [markdown]
# ## A study
#
# `sweeps.study` takes what `python -m sweeps` takes, as arguments. Keys with dots are given as
# `**{"task.budget.steps": 100}`. It checks everything and runs nothing; what comes back is a plan, and a mistake is a
# `BadInput`, a `ValueError` of one line.

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
# In `sweeps.sweep` a list is an axis, and there is a study for every combination. The studies of a
# preset are `sweeps.sweep(experiment="quickstart")`.

# %%
studies = sweeps.sweep(task="digits_fc", optimizer="nesterov", batch_size=[16, 64, 256, 512, 1024], trials=8)
[each.study.name for each in studies]

# %% [markdown]
# `sweeps.measure` runs them in worker processes, one for every core, and returns three tables. A worker is a program of
# its own, which runs nothing of a notebook or a script: no `if __name__ == "__main__":` is needed, and no function of
# yours is sent to it. Calling it again runs only what the store lacks, so an interrupted call goes on where it was.

# %%
tables = sweeps.measure(studies, STORE)
tables.trials.groupby("status").size()

# %% [markdown]
# `studies` has a row for every study, `trials` one for every trial with its metaparameters, and `measurements` one for
# every evaluation of every trial. A store written elsewhere is read by `results.store.read("results/published")`.

# %%
tables.measurements[["trial", "step", "train_loss", "validation_error"]].tail()

# %% [markdown]
# ## Answers
#
# The tables of the commands are functions, too: `python -m analysis steps` prints this one, and
# `python -m analysis fit` the next. With eight trials a point the fit has little to say, and says so.

# %%
answers = steps.table(*steps.load(STORE))
answers[["batch_size", "target_metric", "target_value", "steps_low", "steps_high"]]

# %%
curve_fits.table(STORE)[["optimizer", "critical_batch_size", "verdict", "reason"]]

# %% [markdown]
# A figure is drawn from the same fits.

# %%
picture.show(batch_figures.steps_to_target(curve_fits.of_store(STORE)))
