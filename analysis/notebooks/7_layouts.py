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
# The third axis of the dataset is how a step of training is laid out on a mesh of devices: which axes of its tensors
# are split over which axes of the mesh, after Mesh-TensorFlow (Shazeer et al. 2018, arXiv 1811.02084). A layout changes
# what a step costs and never what it computes. The model is a small decoder Transformer, the devices are eight that a
# CPU emulates: they show results, redundancy, memory and bytes, and nothing about speed.

# %%
import pandas as pd
from IPython.display import Markdown

from analysis import measured_layouts, releases
from analysis.figures import layout_figures
from analysis.plotting import picture
from results.papers import published_numbers
from results.plans.layout import AHEAD, EMULATED

pd.set_option("display.precision", 4, "display.max_colwidth", None, "display.max_rows", 200)
STORE = releases.release()

# %% [markdown]
# ## What could be, and what could not
#
# A row for every mesh and layout, of eight emulated devices first. One that cannot be is a result, too: here is why.

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
# The loss before the last step, and how far the first gradient is from that of one device, relative to it, for the
# parameter where it is furthest. Sums are taken in another order; nothing else differs.

# %%
ran = table[~refused]
ran[["loss", "gradient_difference"]].describe().loc[["count", "min", "max"]]

# %% [markdown]
# ## Redundancy
#
# A layout that is right may still have devices repeat each other's work, silently. *Redundancy* is what all devices
# execute of matrix products, over what one step needs. With `batch:data` on `data:2;model:4` four devices do the same.
# Splitting the hidden layer over `model` as well leaves the rest of a block, and the last product, repeated:

# %%
d, ff, length, vocabulary, count = 128, 512, 64, 1024, 4
hidden = count * 2 * d * ff
others = count * (4 * d * d + 2 * length * d) + d * vocabulary
by_hand = (hidden + 4 * others) / (hidden + others)
case = ran[(ran["mesh"] == "data:2;model:4") & (ran["layout"] == "batch:data;mlp:model")]
Markdown(f"By hand {by_hand:.4g}; counted in the compiled program {case['redundancy'].item():.4g}.")

# %%
shown = ran.assign(**{"MB sent": ran["wire_bytes"] / 1e6, "MB held": ran["peak_bytes"] / 1e6})
shown = shown.set_index(["mesh", "layout"])[["redundancy", "MB sent", "MB held"]]
shown.sort_values(["redundancy", "MB sent"])

# %% [markdown]
# ## What a step would cost
#
# Seconds are predicted for a TPU v5p by a model in which nothing overlaps. A model this small is bound by latency, so
# the layout that exchanges nothing is the fastest and holds the most.

# %%
picture.show(layout_figures.cost(emulated))

# %%
picture.show(layout_figures.pareto(emulated))

# %% [markdown]
# ## Predicted and measured
#
# Two real cores, timed: each layout on two meshes that differ in the names of their axes alone. What these twins
# differ by is noise, and a prediction is at fault only beyond it.

# %%
picture.show(layout_figures.predicted(layouts))

# %% [markdown]
# ## Compiled for TPUs that are not there
#
# Mesh-TensorFlow's layout of BERT, and of its variant of 4.8 billion parameters, for 512 cores of TPU v3: what each
# would hold and send, and what does not fit.

# %%
ahead = measured_layouts.table([one for one in layouts if one.study.engine_name == AHEAD])
shown = ahead.assign(**{"GB held": ahead["peak_bytes"] / 1e9, "MB sent": ahead["wire_bytes"] / 1e6})
shown.set_index(["model", "mesh"])[["layout", "GB held", "MB sent", "redundancy", "refusal"]]

# %% [markdown]
# ## Layouts that others published
#
# Utilization as the sources state it, and of those that state it memory against time. A row that contradicts itself is
# kept, and ringed.

# %%
published = published_numbers.layouts()
published.loc[published["doubt"].notna(), ["source", "model", "hardware", "chips", "doubt"]]

# %%
picture.show(layout_figures.published([]))

# %%
published.drop_duplicates("source")[["source", "citation", "url", "terms"]].set_index("source")

# %% [markdown]
# ## What this does not show
#
# How fast any of it is on accelerators. Emulated devices share the cores of one machine and are never timed; two cores
# of a processor exchange through its memory. `engine=device` times steps on whatever devices there are.
