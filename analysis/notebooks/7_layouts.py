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
# # Layouts
#
# The third axis of the dataset is the layout of a training step on a device mesh. A layout assigns tensor axes to mesh
# axes, as in Mesh-TensorFlow (Shazeer et al. 2018, arXiv 1811.02084). It changes the cost of a step but not its
# result. The model is a small decoder Transformer on eight emulated CPU devices. These measure results, redundancy,
# memory and bytes, but not speed.

# %%
import pandas as pd
from IPython.display import Markdown

from analysis import measured_layouts, published_steps, releases
from analysis.figures import layout_figures
from analysis.plotting import picture
from results.papers import published_numbers
from results.plans.layout import AHEAD, EMULATED

pd.set_option("display.precision", 4, "display.max_colwidth", None, "display.max_rows", 200)
STORE = releases.release()

# %% [markdown]
# ## Rejected layouts
#
# The dataset has a row for every mesh and layout on eight emulated devices. Rejected layouts are results as well. The
# table lists the reasons.

# %%
layouts = measured_layouts.load(STORE)
emulated = [one for one in layouts if one.study.engine == EMULATED]
table = measured_layouts.table(emulated)
refused = table["refusal"].notna()
print(*measured_layouts.notes(emulated), sep="\n")
table[refused].groupby("refusal")["explanation"].agg(["size", "first"])

# %% [markdown]
# ## The same loss
#
# The table shows the loss before the last step, and the relative difference of the first gradient from that of one
# device, for the parameter with the largest difference. Only the order of sums differs.

# %%
ran = table[~refused]
ran[["loss", "gradient_difference"]].describe().loc[["count", "min", "max"]]

# %% [markdown]
# ## Redundancy
#
# In a correct layout, devices may still repeat each other's work. *Redundancy* is the number of matmul FLOPs that all
# devices execute, divided by the number that one step needs. With `batch:data` on `data:2;model:4`, four devices do
# the same work. If the hidden layer is split over `model` as well, the rest of a block and the last matmul are
# repeated:

# %%
d, ff, length, vocabulary, count = 128, 512, 64, 1024, 4
hidden = count * 2 * d * ff
others = count * (4 * d * d + 2 * length * d) + d * vocabulary
by_hand = (hidden + 4 * others) / (hidden + others)
case = ran[(ran["mesh"] == "data:2;model:4") & (ran["layout"] == "batch:data;mlp:model")]
Markdown(f"By hand {by_hand:.4g}; counted in the compiled program {case['redundancy'].item():.4g}.")

# %%
print(measured_layouts.as_text(emulated))

# %% [markdown]
# ## Predicted cost of a step
#
# Seconds are predicted for a TPU v5p. For this small network, data parallelism over all devices is predicted to be the
# fastest.

# %%
picture.show(layout_figures.cost(emulated))

# %%
picture.show(layout_figures.pareto(emulated))

# %% [markdown]
# ## Predicted and measured
#
# Steps are timed on two real cores, with each layout on two meshes that differ only in axis names. Differences between
# these twins are noise. A prediction is wrong only if its error is larger.

# %%
picture.show(layout_figures.predicted(layouts))

# %% [markdown]
# ## Compiled for TPUs without a TPU
#
# The table shows Mesh-TensorFlow's layout of BERT and of a BERT with 4.96 billion parameters, compiled for 512 TPU v3
# cores: bytes held and sent, and layouts that do not fit.

# %%
ahead = measured_layouts.table([one for one in layouts if one.study.engine_name == AHEAD])
shown = ahead.assign(**{"GB held": ahead["peak_bytes"] / 1e9, "MB sent": ahead["wire_bytes"] / 1e6})
shown.set_index(["model", "mesh"])[["layout", "GB held", "MB sent", "redundancy", "refusal"]]

# %% [markdown]
# ## Published layouts
#
# The pictures show utilization as published, and memory against time for sources that publish both. Rows that
# contradict themselves are kept and marked with a ring.

# %%
published = published_numbers.layouts()
published.loc[published["doubt"].notna(), ["source", "model", "hardware", "chips", "doubt"]]

# %%
picture.show(layout_figures.published([]))

# %%
published.drop_duplicates("source")[["source", "citation", "url", "terms"]].set_index("source")

# %% [markdown]
# ## Predicted steps of others
#
# The same cost model predicts the seconds of published steps on TPUs and GPUs. Each row is compared, or has a reason.
# The band of the picture is the stated range. Rings are mixtures of experts.

# %%
steps = published_steps.table()
steps.groupby("status", sort=False).size().rename("rows").to_frame()

# %%
compared = steps[steps["status"] == published_steps.COMPARED]
compared.groupby(["set", "chip"])["ratio"].describe().round(2)

# %%
picture.show(layout_figures.published_steps([]))

# %% [markdown]
# ## Limits
#
# These results do not show speed on accelerators. Emulated devices share the cores of one machine and are not timed.
# Two cores of a processor communicate through its memory. Use `engine=device` to time steps on your devices.
