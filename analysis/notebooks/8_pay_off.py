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
# # Pay-off
#
# How many devices are worth buying? The time to a target is the number of steps it takes, which falls with the batch
# size up to a point, times the seconds of a step, which depend on the batch size and on the number of devices. Together
# they say up to where the next doubling of devices still makes training faster by so much, and what that costs.

# %%
import numpy as np
import pandas as pd

from analysis import releases
from analysis.cores import core_counts, factorizations
from analysis.figures import payoff_figures
from analysis.fitting import curve_fits
from analysis.payoff import answers
from analysis.plotting import picture

pd.set_option("display.precision", 3, "display.max_colwidth", None, "display.max_rows", 200)
STORE = releases.release()

# %% [markdown]
# ## Without any hardware
#
# Double batch and devices together, and let a step take as long as before: then the curve alone decides. A doubling is
# said to pay off while it is 20 % faster or more; 100 % is perfect. Of the curves that Shallue et al. (2018) published:

# %%
NAMES = ["dataset", "model", "batch_size", "batch_size_low", "batch_size_high", "batch_verdict"]
answers.table(answers.answers(answers.of_paper("shallue2018")))[NAMES]

# %% [markdown]
# With a perfectly scaling curve S = E / B and no communication, time falls like 1/n and the cost in device-hours is the
# same for all n. On a plateau, S constant, time stays and the cost grows like n. Between them the gain of a doubling is
# (1 + B*/B) / (1 + B*/2B) for a curve of sharpness 1, which is 20 % at B = 2 B*: the last doubling that pays off leads
# from there to four times the critical batch size.

# %%
critical = 64.0
batch = critical * 2.0 ** np.arange(-3, 4)
gain = (1 + critical / batch) / (1 + critical / (2 * batch)) - 1
pd.DataFrame({"B over B*": batch / critical, "gain of the next doubling": gain}).set_index("B over B*")

# %% [markdown]
# ## With measured and with predicted seconds
#
# Nothing in this release was trained on several devices, so that measured times say nothing of a doubling. Predicted
# ones are those of one device with its n-th of the batch, without communication: no network makes training on n devices
# faster. They are dashed, with hatched bands, and never in one line with what was measured.

# %%
fitted = [one for one in curve_fits.of_store(STORE) if one.curve.model.startswith("simple_cnn")]
chosen = [one for one in fitted if one.curve.optimizer in ("sgd", "adam")]
picture.show(payoff_figures.of_curves(chosen))

# %%
found = answers.answers(answers.of_curves(chosen))
columns = ["optimizer", "estimate", "batch_size_low", "batch_size_high", "predicted_devices", "predicted_verdict"]
answers.table(found)[columns]

# %% [markdown]
# One factorization ran on one core and on two, which were real ones: two core counts show a gain, and no law. All
# others were timed on one number of cores alone.

# %%
measured = factorizations.load(STORE)
picture.show(payoff_figures.of_factorizations(measured))

# %%
cores = answers.answers(answers.of_core_curves(core_counts.curves(measured)))
answers.times_table([one for one in cores if one.measured and len(one.measured.devices) > 1])[
    ["dataset", "model", "devices", "measured_seconds", "measured_device_hours", "measured_on_front"]
]

# %% [markdown]
# ## What this does not show
#
# Where a doubling stops to pay off on a cluster: for that, seconds per step on several devices have to be measured, or
# predicted with their links (`python -m sweeps.plan … topology=v5e:4x4 step_times=FILE`), and given by
# `python -m analysis payoff --predicted FILE`.
