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
# How many devices pay off? The time to a target is the number of steps times the seconds per step. The number of steps
# decreases with the batch size up to a point, and the seconds depend on the batch size and the number of devices.
# Together they determine up to how many devices the next doubling still speeds up training, and at which cost.

# %%
import numpy as np
import pandas as pd

from analysis import releases
from analysis.cores import core_counts, measured_factorizations
from analysis.figures import payoff_figures
from analysis.fitting import curve_fits
from analysis.payoff import answer_tables, answers, subjects
from analysis.plotting import picture

pd.set_option("display.precision", 3, "display.max_colwidth", None, "display.max_rows", 200)
STORE = releases.release()

# %% [markdown]
# ## Independent of hardware
#
# If the batch and the devices are doubled together at constant seconds per step, only the curve matters. A doubling
# pays off if training is at least 20 % faster, where 100 % is perfect. *Pays up to* is the batch size after the last
# doubling of batch and devices that still trains at least 20 % faster, if a step takes the same time. *Efficient up to*
# is the largest batch size that needs at most 1.2 times the fewest examples of any batch size tried. Neither depends on
# the shape of the curve. For the published curves of Shallue et al. (2018):

# %%
ENDS = ["", "_low", "_high"]
PAYS = [f"batch_size{end}" for end in ENDS]
EFFICIENT = [f"efficient_batch_size{end}" for end in ENDS]
published = answer_tables.table(answers.answers(subjects.of_paper("shallue2018")))
published[["dataset", "model", *PAYS, "batch_verdict", *EFFICIENT]]

# %% [markdown]
# The critical batch size explains the numbers, if the curve is a hyperbola. With perfect scaling, S = E / B, and no
# communication, time decreases as 1/n and the cost in device-hours is constant. On a plateau with constant S, time is
# constant and the cost grows as n. In between, for a curve of sharpness 1, a doubling speeds training up by the factor
# (1 + B*/B) / (1 + B*/2B). This is a gain of 20 % at B = 2 B*, so the last doubling that pays off goes from there to
# four times the critical batch size.

# %%
critical = 64.0
batch = critical * 2.0 ** np.arange(-3, 4)
gain = (1 + critical / batch) / (1 + critical / (2 * batch)) - 1
pd.DataFrame({"B over B*": batch / critical, "gain of the next doubling": gain}).set_index("B over B*")

# %% [markdown]
# ## Measured and predicted seconds
#
# In this release, training used one device, so measured times do not contain a doubling. Predicted times for n devices
# are those of one device with 1/n of the batch, without communication. This is a best case, because a real network
# only adds time. Predictions are dashed with hatched bands and are never joined with measurements.

# %%
fitted = [one for one in curve_fits.of_store(STORE) if one.curve.model.startswith("simple_cnn")]
chosen = [one for one in fitted if one.curve.optimizer in ("sgd", "adam")]
picture.show(payoff_figures.of_curves(chosen))

# %%
found = answers.answers(subjects.of_curves(chosen))
columns = ["optimizer", "estimate", *PAYS, "batch_verdict", "predicted_devices", "predicted_verdict"]
answer_tables.table(found)[columns]

# %% [markdown]
# One factorization ran on one real core and on two. Two core counts show a speed-up but cannot determine a law. All
# others were timed on only one number of cores.

# %%
measured = measured_factorizations.load(STORE)
picture.show(payoff_figures.of_factorizations(measured))

# %%
cores = answers.answers(subjects.of_core_curves(core_counts.curves(measured)))
answer_tables.times_table([answer for answer in cores if len(answer.pay_offs["measured"].devices) > 1])[
    ["dataset", "model", "devices", "measured_seconds", "measured_device_hours", "measured_on_front"]
]

# %% [markdown]
# ## Limits
#
# These results do not show when doubling stops paying off on a cluster. For that, measure seconds per step on several
# devices, or predict them with their links (`python -m sweeps.plan … topology=v5e:4x4 step_times=FILE`), and pass them
# to `python -m analysis payoff --predicted FILE`.
