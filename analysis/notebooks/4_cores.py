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
# # Cores
#
# The second axis of the dataset is the number of cores. One workload, an implicit matrix factorization by alternating
# least squares (implicit ALS) of a graph of links, is sharded over more and more of them, as ALX did it on TPUs
# (Mehta et al. 2021, arXiv 2112.02194). An epoch solves a small least-squares problem for every row, then for every
# column. What is asked is how many seconds an epoch takes on so many cores, and whether the recommendations stay as
# good: with other solvers, in fewer bits, at other metaparameters.
#
# The graph is synthetic: degrees follow a power law, pages form communities and topics. It was made for this
# measurement and is nobody's web. Every study ran alone, in a process bound to as many physical cores as its plan
# says; cores that are not there are emulated on none of the curves below.

# %%
import numpy as np
import pandas as pd
from IPython.display import Markdown

from analysis import releases
from analysis.cores import core_counts, factorizations, scaling
from analysis.figures import recall_figures, scaling_figures
from analysis.plotting import picture
from results.papers import published_numbers

pd.set_option("display.precision", 4, "display.max_colwidth", None, "display.max_rows", 200)
STORE = releases.release()

# %% [markdown]
# ## What was run
#
# A row for every factorization, that of its best trial. Half of the rows with held-out links are validation, half are
# test: the best trial has the best Recall@20 of validation at its last epoch, and the recall shown is that of test.
# Studies of software 0.1 measured test alone, which chose their best trials too; a note below names them. `complete`
# and `infeasible` count trials: the latter diverged, and where all did there is none to show. Graphs are told apart by
# their number of links.

# %%
measured = factorizations.load(STORE)
table = factorizations.table(measured).assign(links=[one.study.dataset_options.get("links") for one in measured])
named = table.set_index(["links", "dim", "solver", "table_dtype", "solver_dtype", "cores"])
named.filter(["seconds_per_epoch", "recall_20", "recall_50", "complete", "infeasible"])

# %%
print(*(factorizations.notes(measured) or ["nothing more has to be known of these"]), sep="\n")

# %% [markdown]
# ## Two cores: a gain, and no law
#
# Seconds per epoch on one core and on two. Points are medians over epochs, bars their middle half. The panel beside
# it has what ALX says of its own epochs: other data, hundreds of times as large, on TPU cores. It is there for the
# shape of the question, not for comparison.

# %%
picture.show(scaling_figures.epochs_against_cores(measured))

# %%
core_fits = [core_counts.of_curve(curve) for curve in core_counts.curves(measured)]
(several, *_) = [one for one in core_fits if len(one.curve.members) > 1]
print(core_counts.as_text([several]))

# %% [markdown]
# The speed-up is the ratio of the medians, the efficiency that speed-up over the one that perfect scaling would have
# given. An efficiency somewhat above 100 % is no mistake of arithmetic: every further core brings a cache of its own,
# and what does not fit into one may fit into two. It may also be that something else slowed the one core down while
# it was measured. Two numbers do not tell these apart.

# %%
picture.show(scaling_figures.speedup(measured))

# %% [markdown]
# Why does the verdict refuse to say what more cores would bring? An epoch has time that every core spends (*serial*),
# time that is shared (*parallel*), and time that grows with every core beside the first (*communication*): three
# unknowns, and two measurements. Take an epoch of 1 second on one core and 0.55 on two. Two laws that both pass
# through both points exactly:

# %%
cores, seconds = np.array([1, 2]), np.array([1.0, 0.55])
serial, parallel = np.linalg.solve(np.stack([np.ones(2), 1 / cores], axis=1), seconds)
alone, communication = np.linalg.solve(np.stack([1 / cores, cores - 1], axis=1), seconds)
more = np.array([1, 2, 4, 8, 16, 32, 64])
pd.DataFrame(
    {
        f"{serial:.2f} + {parallel:.2f} / c": serial + parallel / more,
        f"{alone:.2f} / c + {communication:.2f} (c − 1)": alone / more + communication * (more - 1),
    },
    index=pd.Index(more, name="cores c"),
)

# %% [markdown]
# They agree where something was measured and nowhere else: by the first an epoch becomes ever shorter, by the second
# more cores soon make it longer. A picture with either of them drawn to 64 cores would look like a result.
#
# Three numbers of cores or more are fitted, with 90 % intervals found by profile. The dataset has no such curve, so
# the fit is shown on made-up times that follow a known law, with noise as large as between epochs and runs here.

# %%
truth = pd.Series({"serial": 0.05, "parallel": 0.94, "communication": 0.01})
counts = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
lawful = truth["serial"] + truth["parallel"] / counts + truth["communication"] * (counts - 1)
spread = scaling.spread([one.seconds for one in several.curve.members])
noise = np.random.default_rng(0).normal(0, np.hypot(spread, scaling.BETWEEN_RUNS), len(counts))
fit = scaling.fit(counts, lawful * np.exp(noise), spread)
estimates = pd.DataFrame([fit.serial, fit.parallel, fit.communication], index=truth.index).assign(truth=truth)
estimates.assign(holds=(estimates["low"] <= estimates["truth"]) & (estimates["truth"] <= estimates["high"]))

# %%
critical = fit.critical_cores
Markdown(
    f"Half of the cores' time is lost at {critical.best:.1f} cores, 90 % interval [{critical.low:.1f}, "
    f"{critical.high:.1f}]. Of this made-up example with up to {counts[-1]:g} cores the verdict is "
    f"*{fit.verdict.replace('_', ' ')}*. {fit.doubt}"
)

# %% [markdown]
# ## Is it still the same factorization?
#
# Recall@20 and Recall@50 on held-out links of test rows, of the two graphs that were factorized in several ways. What
# can be compared stands in one picture; recalls of different graphs cannot.

# %%
ways = table.groupby("data")["study"].transform("size")
picture.show(recall_figures.recall([one for one, count in zip(measured, ways, strict=True) if count > 2]))

# %% [markdown]
# Sharding must not change what is learnt. By number of cores, from the same seed, metaparameters and initial tables;
# sums are taken in another order on other numbers of cores, so that recalls agree to rounding, not bit by
# bit.

# %%
members = several.curve.members
pd.DataFrame(
    [(one.study.cores, one.result("recall_20"), one.result("recall_50"), one.result("objective")) for one in members],
    columns=["cores", "recall@20", "recall@50", "objective"],
).set_index("cores").map("{:.5g}".format)

# %% [markdown]
# ## Solvers
#
# A row's least squares can be solved exactly (Cholesky, LU, QR) or nearly, by a few steps of conjugate gradients,
# warm-started from the epoch before. The same trial with each of them, against seconds of solving on one core. If the
# curves end at one height, the solver does not matter for what is learnt, and only the seconds do.

# %%
picture.show(recall_figures.solvers(measured))

# %% [markdown]
# ## Number formats
#
# Tables and solver in 32 or 16 bits. In bfloat16 tables take half of the memory and of the traffic, but 8 bits of
# mantissa have to carry the sums. A norm penalty makes the systems better conditioned; the pictures are of a strong
# one and of a weak one. A line that ends in a cross *diverged*: a table or the objective was not a number any more.

# %%
picture.show(recall_figures.precision(measured))

# %%
ways = [one for one in measured if one.study.dim == 128 and one.study.solver == "cholesky"]
formats = factorizations.table(ways).assign(norm_penalty=[one.trials["norm_penalty"].iloc[0] for one in ways])
formats = formats.set_index(["norm_penalty", "table_dtype", "solver_dtype"]).sort_index()
formats.filter(["recall_20", "objective", "seconds_per_epoch", "bytes_per_core", "complete", "infeasible"])

# %% [markdown]
# ## Tuning
#
# Two metaparameters decide how good the recommendations are: the weight α of all pairs that are no link, and the norm
# penalty λ. A search over both, each trial a point, the Recall@20 that chooses the best of them as colour:

# %%
picture.show(recall_figures.tuning(measured))

# %%
(tuned, *_) = [one for one in measured if len(one.trials) > 1]
ranked = tuned.last[tuned.chosen_by].sort_values(ascending=False)
Markdown(
    f"By {factorizations.SPLITS[tuned.chosen_by]} the best of {len(ranked)} trials has Recall@20 {ranked.iloc[0]:.4f}, "
    f"the median one {ranked.median():.4f}, the worst {ranked.iloc[-1]:.4f}. What solver and number format change is "
    "to be held against that."
)

# %% [markdown]
# ## ALX's data, for scale
#
# The six variants of WebGraph as their public description gives them. `python -m workloads.prepare web_graph` brings
# them onto a machine that has room for them; none of the numbers above is of these.

# %%
variants = published_numbers.webgraph()
variants[["variant", "min_links", "nodes_millions", "edges_billions", "size_gib"]].set_index("variant")

# %%
published = published_numbers.points("alx2022")
published[["dataset", "cores", "seconds_per_epoch", "bound", "note"]].set_index("dataset")

# %% [markdown]
# ## What this does not show
#
# How anything scales beyond the cores of one small machine. The two cores share one memory, so communication is cheap
# and bandwidth is shared; a machine with more of them, `python -m sweeps +experiment=alx2022/scaling cores=1,2,4,8
# -m` and the same pictures would say more, and the fit would then have something to fit.
