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
# # Optimizers and learning rates
#
# How far a workload scales depends on how it is trained. Shallue et al. (2018) found that momentum holds perfect
# scaling to larger batch sizes than plain gradient descent (Figure 4), and that the best learning rate follows no
# rule of thumb across workloads (Figure 8). Zhang et al. (2019, arXiv 1907.04164) predict the first from a noisy
# quadratic, and expect more of preconditioned optimizers such as Adam.
#
# Here nine optimizers train two small networks on handwritten digits, each tuned afresh at every batch size, with
# equally many trials. They are small networks on small data: what is seen here is seen of these workloads.

# %%
import pandas as pd
from IPython.display import Markdown

from analysis import contradictions, releases, workload_studies
from analysis.figures import batch_figures, best_of_figures, registry, summaries
from analysis.figures.requests import FigureRequest
from analysis.fitting import curve_fits, fits, search_growth, selection_bias
from analysis.plotting import picture
from analysis.trials import medians, steps

pd.set_option("display.precision", 3, "display.max_colwidth", None, "display.max_rows", 200)
STORE = releases.release()
PLAIN = "schedule=constant,pruning=off"

# %%
fitted = curve_fits.of_store(STORE)
written = [one for one in fitted if one.curve.dataset == "digits"]
constant = [one for one in written if one.curve.shared["schedule"] == "constant"]
digits = [one for one in constant if not one.curve.pruned]  # the learning rate stays, and so do all curves

# %% [markdown]
# ## Steps to target, all optimizers
#
# Constant learning rates, one picture per network. A ring marks the critical batch size where it is identified; the
# legend has it with its 90 % interval. Look at two things apart: *how far to the right* the ring is, which is how far a
# larger batch pays off, and *how low* the curve is, which is what an optimizer needs at all.

# %%
picture.show(batch_figures.optimizers(digits))

# %% [markdown]
# In numbers. `E_min` is the fewest examples that reach the target, where scaling is perfect; `S_min` the fewest
# steps, on the plateau. Their ratio is the critical batch size, which can be large because few steps are needed at
# large batch sizes, or because many examples are needed at small ones. Only the first is a gain.

# %%
table = pd.DataFrame(
    [
        {
            "model": one.curve.model,
            "optimizer": one.curve.optimizer,
            "critical batch size": fits.critical_in_words(one.selected),
            "E_min": one.selected.fit and one.selected.fit.e_min,
            "S_min": one.selected.fit and one.selected.fit.s_min,
            **contradictions.stated_interval(one.selected)._asdict(),
        }
        for one in digits
    ]
).set_index(["model", "optimizer"])
table[["critical batch size", "E_min", "S_min"]].round({"E_min": 0, "S_min": 0})

# %% [markdown]
# Which optimizers can be told from plain gradient descent? Two critical batch sizes are called different if their
# 90 % intervals are disjoint, which is a careful rule: where they overlap a little they may still differ. An open end
# overlaps with everything on its side.

# %%
stated = table[["low", "high"]].astype(float)
plain = stated.xs("sgd", level="optimizer").add_suffix(" of sgd")
against = stated.drop(index="sgd", level="optimizer").join(plain, on="model")
against["than sgd's"] = "not told apart"
against.loc[against["low"] > against["high of sgd"], "than sgd's"] = "larger"
against.loc[against["high"] < against["low of sgd"], "than sgd's"] = "smaller"
against["than sgd's"].unstack("model")

# %% [markdown]
# A small Transformer on the text of Python's own manual, with three optimizers and fewer trials. It has fewer batch
# sizes, too, so that a verdict is sooner one-sided: read *at least* as what it is.

# %%
picture.show(batch_figures.optimizers([one for one in fitted if one.curve.dataset == "pydoc"]))

# %% [markdown]
# ## With decay and label smoothing
#
# The same network with linear decay over a number of steps that is searched, and with label smoothing, which is
# searched too; every trial goes on to the end of its budget. A smoothed loss cannot fall as far: where no trial
# reaches the target at a batch size, the curve has no point there, and with too few points nothing is identified.

# %%
picture.show(batch_figures.optimizers([one for one in written if one.curve.shared["schedule"] != "constant"]))

# %% [markdown]
# Trials by thirds of the label smoothing that was tried:

# %%
decayed = "dataset=digits,model=fully_connected*,optimizer=adam,schedule=linear"
picture.show(registry.draw_kind(STORE, FigureRequest("split", where=(decayed,), by="label_smoothing")))

# %% [markdown]
# ## The best learning rate against batch size
#
# The linear rule has the learning rate grow like the batch size, the square-root rule like its root. Both are drawn
# from the best trial at the smallest batch size. Bars hold all trials that needed up to 1.25 times the fewest steps:
# they are nearly as good, and where a bar is long the choice hardly matters. With momentum μ what matters is rather
# the *effective* learning rate, learning rate / (1 − μ), which the last panel shows (Figure 8 of Shallue et al.).

# %%
conditions = [f"dataset=digits,model=fully_connected*,optimizer={name},{PLAIN}" for name in ("sgd", "momentum", "adam")]
picture.show(registry.draw_kind(STORE, FigureRequest("metaparameters", where=tuple(conditions))))

# %% [markdown]
# Does it grow linearly? The power of the batch size by which the rate grows: 1 is the linear rule, 0.5 that of the
# square root, 0 no growth. It is the slope of the logarithms, by least squares, of the geometric mean over trials
# that were nearly the best, with a 90 % interval from the scatter around it (`analysis/fitting/search_growth.py`). First
# over the batch sizes up to the critical one, where that is identified, as rules of thumb are meant to hold there; of
# other workloads over all:

# %%
chosen = workload_studies.of_store(STORE, [f"dataset=digits,{PLAIN}"])
drawn = [curve_fits.of_workload(one, one.commits[0].study.targets[0]) for one in chosen]
below = (
    search_growth.table(drawn, up_to_critical=True).drop(columns="dataset").set_index(["model", "optimizer", "rate"])
)
below.head(len(below))

# %%
words = below.dropna(subset="power")["agrees_with"].value_counts()
Markdown(
    "Of the rates above that can be judged: "
    + "; ".join(f"{count} agree with *{rule}*" for rule, count in words.items())
    + ". To agree is not to prove: a wide interval agrees with much."
)

# %% [markdown]
# And over all batch sizes. On the plateau a larger batch needs no larger rate, so powers should come out smaller here
# where the plateau was reached.

# %%
every = search_growth.table(drawn).drop(columns="dataset").set_index(["model", "optimizer", "rate"])
pd.DataFrame({"up to the critical one": below["power"], "all batch sizes": every["power"]})

# %% [markdown]
# ## Where good trials lie
#
# The plane of learning rate and 1 − momentum, a panel for every batch size (as Figure 9 of Shallue et al.). Dashed
# lines join equal effective learning rates. Watch where the filled points are, trials that reached the target: how
# large a part of the plane they take says how hard the search is at that batch size. If that part shrinks towards
# large batch sizes, the best of so many trials gets worse there for no other reason, and the critical batch size is
# pulled down.

# %%
picture.show(registry.draw_kind(STORE, FigureRequest("scatter", where=(conditions[1],))))

# %% [markdown]
# The share of trials that reached the target says the same in a number, for all optimizers:

# %%
overview, _ = steps.load(STORE)
answered, notes = medians.answer(overview)
answered = answered[answered["study"].isin([commit.name for one in chosen for commit in one.commits])]
success = answered.pivot_table(index=["model", "optimizer"], columns="batch_size", values="success")
(100 * success).round().astype("Int64").astype(str) + " %"

# %% [markdown]
# ## Were the search spaces wide enough?
#
# An optimum at the end of a range may lie beyond it, and then the answer is one of the range, not of the optimizer. A
# study is named here if its best tenth of trials crowds at an end (`analysis/trials/edges.py`); a question mark
# says that it may also lie some way off. Of studies whose metaparameters do not matter, one in twenty would be named
# by chance, and one in ten with a question mark.

# %%
edges = answered[~answered["at_edge"].isin(["no", "unclear"])]
edges.groupby(["model", "optimizer", "at_edge"]).agg(batch_sizes=("batch_size", list))

# %%
named, decidable = len(edges), int((answered["at_edge"] != "unclear").sum())
Markdown(f"{named} of {decidable} studies that could be judged have an optimum at an edge, or perhaps at one.")

# %% [markdown]
# Were there enough trials? *No* is said where the best of half of the trials is worse than that of all by more than a
# tenth: then still more trials would lower the answer.

# %%
answered.groupby(["model", "optimizer"])["sampled_enough"].value_counts().unstack(fill_value=0)

# %% [markdown]
# ## Selected and confirmed
#
# The best of many trials is also the luckiest. So the best of each study were run again on fresh seeds. Where several
# were, half of the repeats *chose* one of them, and the other half of that one's *report*; where the best trial alone
# was, all of its repeats do. Nothing was chosen by what reports: its median is what was *confirmed*. The rule is in
# `results/rules/confirmation.py`.
#
# What that does is known where all configurations are equal, so that whatever a search selects is luck alone. These
# are 200 simulated searches of 64 trials, through the same functions as everything else: what they selected, the
# median that their choice was made by, and what they confirmed, each over the truth.

# %%
selection_bias.bias(selection_bias.simulate(200)).to_frame("over the truth")

# %% [markdown]
# In the release: confirmed over selected steps, by data set and over all; above 1 is the winner's curse. `never` counts
# studies whose repeats did not reach the target within their budget, or half of them did not. They have no ratio, and
# ratios are of the others; `small` is up to batch size 16, `large` above. `same` is how often the confirmed trial is
# the best one of the search.

# %%
ratios = selection_bias.ratios(fitted)
selection_bias.summary(ratios)

# %%
selection_bias.summary(ratios[ratios["dataset"] == "digits"], by="optimizer")

# %% [markdown]
# If luck were alike at all batch sizes, a curve of what was confirmed would lie higher and have its knee at the same
# place. Here both are fitted by the same procedure. Points of the second are medians of few repeats, all weigh alike,
# and batch sizes are dropped where half of the repeats or more never reached.

# %%
both = curve_fits.moves(fitted).set_index(["dataset", "model", "optimizer"])
words = [
    [fits.critical_in_words(points_fit) for _, points_fit in curve_fits.answers(one)] for one in fitted if one.confirmed
]
both.assign(**dict(zip(curve_fits.ANSWERS, zip(*words, strict=True), strict=True)))

# %%
moved = both.dropna(subset="octaves")
Markdown(
    f"Of {len(moved)} workloads whose knee is identified both ways {int((moved['octaves'] > 0).sum())} have it at a "
    f"larger batch size once confirmed, by {moved['octaves'].median():+.2f} octaves in the median of all; "
    f"{len(moved) - int(moved['inside'].sum())} leave the 90 % interval of what was selected."
)

# %% [markdown]
# Where that is most of them, luck was not alike: the search was luckier at small batch sizes, where gradients are
# noisier and fewer trials reach. The critical batch size *of the best of k trials* is then smaller than that of a
# typical run with tuned metaparameters. Both are answers; they answer different questions, and stand side by side
# everywhere.
#
# ## How the knee moves with the number of trials
#
# A minimum falls as the search grows. The first 8, 16, 32, ... trials of each study are searches of their own, so that
# their critical batch sizes say how far the answer depends on k. Losing trials of pruned studies were cut short: these
# stand at their own k alone. Blue is selected, with 90 % intervals; orange is confirmed.

# %%
picture.show(best_of_figures.knees(fitted))

# %% [markdown]
# In numbers, as `python -m analysis fit --best-of 8,16,32,64,1024` prints them:

# %%
by_number = curve_fits.table_by_k(curve_fits.refit_by_k(fitted, [8, 16, 32, 64, 1024]))
by_number.fillna("")

# %% [markdown]
# ## All there is on one workload
#
# The summary puts all of this on a page: the curve with its fit and what the fit assumes, the metaparameters of the
# best trials, the share of trials that reached, the ledger, and selected against confirmed.

# %%
(momentum, *_) = [one for one in digits if one.curve.optimizer == "momentum" and not one.curve.pruned]
picture.show(summaries.summary([momentum]))

# %% [markdown]
# ## What this does not show
#
# Which optimizer is better. A target on the validation loss of digits, two networks, two schedules and one budget
# of trials are a comparison of just that; optimizers with more metaparameters are given no more trials to tune them
# with. Neither does it show what happens below the target: but for those with decay, trials stop there.
