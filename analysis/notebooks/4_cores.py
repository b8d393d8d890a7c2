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
# The second axis of the dataset is the number of cores. One workload, an implicit matrix factorization of a link graph
# by alternating least squares (implicit ALS), is sharded over an increasing number of cores, as ALX did on TPUs (Mehta
# et al. 2021, arXiv 2112.02194). An epoch solves a small least-squares problem for every row and then for every
# column. The questions are how many seconds an epoch takes, and whether recommendations stay as good with other
# solvers, fewer bits and other metaparameters.
#
# The graph is synthetic: degrees follow a power law, and pages form communities and topics. Every study had the
# machine to itself and was pinned to the number of physical cores in its plan. The curves below do not contain
# emulated cores.

# %%
import numpy as np
import pandas as pd
from IPython.display import Markdown

from analysis import columns, releases
from analysis.cores import core_counts, law_coverage, measured_factorizations
from analysis.figures import recall_figures, scaling_figures
from analysis.plotting import picture
from results.papers import published_numbers

pd.set_option("display.precision", 4, "display.max_colwidth", None, "display.max_rows", 200)
STORE = releases.release()

# %% [markdown]
# ## The studies
#
# The table has one row per factorization, for its best trial. Half of the rows with held-out links are for validation
# and half for test. The best trial has the best validation Recall@20 at the last epoch, and the table shows its test
# recall. Studies of software 0.1 only measured test recall and also selected by it; they are named in a note below.
# `complete` and `infeasible` count trials, and infeasible ones diverged. Graphs differ in their number of links.

# %%
measured = measured_factorizations.load(STORE)
table = measured_factorizations.table(measured).assign(
    links=[one.study.dataset_options.get("links") for one in measured]
)
named = table.set_index(["links", "dim", "solver", "table_dtype", "solver_dtype", "cores"])
named.filter(["seconds_per_epoch", "recall_20", "recall_50", "complete", "infeasible"])

# %%
print(*(measured_factorizations.notes(measured) or ["no notes"]), sep="\n")

# %% [markdown]
# ## Two cores show a speed-up but not a law
#
# The picture shows seconds per epoch on one core and on two. Points are medians over epochs, and bars span their
# middle half. The other panel shows the epochs of ALX on TPU cores, with different data that are hundreds of times
# larger. It is shown for context rather than comparison.

# %%
picture.show(scaling_figures.epochs_against_cores(measured))

# %%
(several, *_) = [curve for curve in core_counts.curves(measured) if len(curve.members) > 1]
print(core_counts.as_text([several]))

# %% [markdown]
# In the printed row, the speed-up is the ratio of the medians. The efficiency is the speed-up divided by that of
# perfect scaling. It can be slightly above 100 %, because each core adds its own cache, and data that exceed one cache
# may fit into two. Another possible cause is a disturbance while one core was measured. Two numbers cannot distinguish
# these causes.

# %% [markdown]
# Why is the speed-up of more cores not identified? An epoch has time that every core spends (*serial*), time that is
# shared (*parallel*), and time that grows with every additional core (*communication*). These are three unknowns with
# two measurements. For example, let an epoch take 1 second on one core and 0.55 on two. These two laws pass through
# both points exactly:

# %%
cores = pd.Index([1, 2, 4, 8, 16, 32, 64], name="cores c")
pd.DataFrame({"0.1 + 0.9 / c": 0.1 + 0.9 / cores, "1 / c + 0.05 (c − 1)": 1 / cores + 0.05 * (cores - 1)}, cores)

# %% [markdown]
# They only agree at the measured points. In the first law, epochs keep getting shorter. In the second, more cores soon
# make them longer. A picture of either law up to 64 cores would look like a result.
#
# Curves with at least three core counts are fitted, with 90 % profile intervals. The dataset does not contain such a
# curve. The fit is therefore shown on synthetic times that follow a known law, with noise between epochs and runs.
# `python -m analysis coverage --of cores` simulates many such curves.

# %%
scenario = law_coverage.CoreScenario("all three", "1 … 64", spread=0.04)
(fit,) = law_coverage.fit(scenario, law_coverage.draw(scenario, 1, np.random.default_rng(0)))
estimates = pd.DataFrame([fit.serial, fit.parallel, fit.communication], index=columns.TIMES)
estimates = estimates.assign(truth=law_coverage.LAWS[scenario.law].times)
estimates.assign(holds=estimates["truth"].between(estimates["low"], estimates["high"]))

# %%
critical = fit.critical_cores
Markdown(
    f"Half of the cores' time is lost at {critical.best:.1f} cores, 90 % interval [{critical.low:.1f}, "
    f"{critical.high:.1f}]. The verdict on this synthetic example with up to {scenario.most:g} cores is "
    f"*{fit.verdict.replace('_', ' ')}*. {fit.doubt}"
)

# %% [markdown]
# ## Is the factorization unchanged?
#
# The table shows Recall@20 and Recall@50 on held-out links of test rows, for the graphs with several factorizations.
# Recalls can be compared within a graph but not between graphs.

# %%
ways = table[table.groupby("data")["study"].transform("size") > 2]
ways.set_index(["links", "dim", "solver", "table_dtype", "solver_dtype", "cores"])[["recall_20", "recall_50"]]

# %% [markdown]
# Sharding must not change the learned tables. These runs differ only in the number of cores and share seed,
# metaparameters and initial tables. The order of sums depends on the number of cores, so recalls agree up to rounding
# but not bit by bit.

# %%
recalls = measured_factorizations.table(several.members).set_index("cores")[["recall_20", "recall_50", "objective"]]
recalls.map("{:.5g}".format)

# %% [markdown]
# ## Solvers
#
# The least-squares problem of a row can be solved exactly (Cholesky, LU, QR) or approximately with a few steps of
# conjugate gradients, warm-started from the previous epoch. The picture shows the same trial with each solver against
# seconds of solving on one core. If the curves end at the same height, solvers only differ in time.

# %%
picture.show(recall_figures.solvers(measured))

# %% [markdown]
# ## Number formats
#
# Tables and solver use 32 or 16 bits. bfloat16 tables halve memory and traffic, but sums then have only 8 bits of
# mantissa. A norm penalty improves the condition of the systems. The pictures show a strong penalty and a weak one. A
# line that ends with a cross *diverged*: a table or the objective was no longer finite.

# %%
picture.show(recall_figures.precision(measured))

# %%
ways = [one for one in measured if one.study.dim == 128 and one.study.solver == "cholesky"]
formats = measured_factorizations.table(ways).assign(norm_penalty=[one.trials["norm_penalty"].iloc[0] for one in ways])
formats = formats.set_index(["norm_penalty", "table_dtype", "solver_dtype"]).sort_index()
formats.filter(["recall_20", "objective", "seconds_per_epoch", "bytes_per_core", "complete", "infeasible"])

# %% [markdown]
# ## Tuning
#
# Two metaparameters determine the quality of recommendations: the weight α of all pairs without a link, and the norm
# penalty λ. The picture shows a search over both. Each point is a trial, coloured by the Recall@20 that selects the
# best:

# %%
picture.show(recall_figures.tuning(measured))

# %%
(tuned, *_) = [one for one in measured if len(one.trials) > 1]
ranked = tuned.last[tuned.chosen_by].sort_values(ascending=False)
Markdown(
    f"On {measured_factorizations.SPLITS[tuned.chosen_by]}, the best of {len(ranked)} trials has Recall@20 "
    f"{ranked.iloc[0]:.4f}, the median one {ranked.median():.4f}, and the worst {ranked.iloc[-1]:.4f}. Compare the "
    "effects of solvers and number formats with this range."
)

# %% [markdown]
# ## ALX's data, for scale
#
# The table lists the six published variants of WebGraph. `python -m workloads.prepare web_graph` downloads them. The
# numbers above do not use these data.

# %%
variants = published_numbers.webgraph()
variants[["variant", "min_links", "nodes_millions", "edges_billions", "size_gib"]].set_index("variant")

# %%
published = published_numbers.points("alx2022")
published[["dataset", "cores", "seconds_per_epoch", "bound", "note"]].set_index("dataset")

# %% [markdown]
# ## Limits
#
# These results do not extend beyond the cores of one small machine. The two cores share one memory, so communication
# is cheap and bandwidth is shared. To learn more, run `python -m sweeps +experiment=alx2022/scaling cores=1,2,4,8 -m`
# on a machine with more cores. The same pictures then include a fit.
