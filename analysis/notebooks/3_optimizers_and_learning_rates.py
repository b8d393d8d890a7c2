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

from analysis import contradictions, figures, shipped, workloads
from analysis.drawing import draw, gallery
from analysis.fitting import fits, pairs
from analysis.kinds.asked import Asked
from analysis.named import batch_figures, summaries
from analysis.panels import line as lines
from analysis.searches import confirmations, growth, medians, steps

pd.set_option("display.precision", 3)
pd.set_option("display.max_colwidth", None)
pd.set_option("display.max_rows", 200)
STORE = shipped.release()

# %%
fitted = pairs.of_store(STORE)
digits = [one for one in fitted if one.curve.dataset == "digits"]

# %% [markdown]
# ## Steps to target, all optimizers
#
# One picture per network. A ring marks the critical batch size where it is identified; the legend has it with its
# 90 % interval. Look at two things apart: *how far to the right* the ring is, which is how far a larger batch pays
# off, and *how low* the curve is, which is what an optimizer needs at all.

# %%
gallery.show(batch_figures.optimizers(digits))

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
            "critical batch size": draw.critical_in_words(one.judged),
            "E_min": one.judged.fit and one.judged.fit.e_min,
            "S_min": one.judged.fit and one.judged.fit.s_min,
            **contradictions.stated(one.judged)._asdict(),
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
gallery.show(batch_figures.optimizers([one for one in fitted if one.curve.dataset == "pydoc"]))

# %% [markdown]
# ## The best learning rate against batch size
#
# The linear rule has the learning rate grow like the batch size, the square-root rule like its root. Both are drawn
# from the best trial at the smallest batch size. Bars hold all trials that needed up to 1.25 times the fewest steps:
# they are nearly as good, and where a bar is long the choice hardly matters. With momentum μ what matters is rather
# the *effective* learning rate, learning rate / (1 − μ), which the last panel shows (Figure 8 of Shallue et al.).

# %%
asked = [f"dataset=digits,model=fully_connected*,optimizer={name}" for name in ("sgd", "momentum", "adam")]
gallery.show(figures.of_kind(STORE, Asked("metaparameters", where=tuple(asked))))

# %% [markdown]
# Does it grow linearly? The power of the batch size by which the rate grows: 1 is the linear rule, 0.5 that of the
# square root, 0 no growth. It is the slope of the logarithms, by least squares, of the geometric mean over trials
# that were nearly the best, with a 90 % interval from the scatter around it (`analysis/searches/growth.py`). First
# over the batch sizes up to the critical one, where that is identified, as rules of thumb are meant to hold there; of
# other workloads over all:

# %%
chosen = [one for one in workloads.of_store(STORE, ["dataset=digits"]) if not one.pruned]
drawn = [lines.of("", one.commits, one.commits[0].study.targets[0]) for one in chosen]
below = growth.table(drawn, up_to_critical=True).drop(columns="dataset").set_index(["model", "optimizer", "rate"])
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
every = growth.table(drawn).drop(columns="dataset").set_index(["model", "optimizer", "rate"])
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
gallery.show(figures.of_kind(STORE, Asked("scatter", where=(asked[1],))))

# %% [markdown]
# The share of trials that reached the target says the same in a number, for all optimizers:

# %%
held, _ = steps.load(STORE)
answered, notes = medians.answer(held)
answered = answered[answered["dataset"] == "digits"]
success = answered.pivot_table(index=["model", "optimizer"], columns="batch_size", values="success")
(100 * success).round().astype("Int64").astype(str) + " %"

# %% [markdown]
# ## Were the search spaces wide enough?
#
# An optimum at the end of a range may lie beyond it, and then the answer is one of the range, not of the optimizer. A
# study is named here if its best tenth of trials crowds at an end (`analysis/searches/edges.py`); a question mark
# says that it may also lie some way off. Of studies whose metaparameters do not matter, one in twenty would be named
# by chance, and one in ten with a question mark.

# %%
edges = answered[~answered["at_edge"].isin(["no", "unclear"])]
edges.groupby(["model", "optimizer", "at_edge"]).agg(batch_sizes=("batch_size", list))

# %%
named, judged = len(edges), int((answered["at_edge"] != "unclear").sum())
Markdown(f"{named} of {judged} studies that could be judged have an optimum at an edge, or perhaps at one.")

# %% [markdown]
# Were there enough trials? *No* is said where the best of half of the trials is worse than that of all by more than a
# tenth: then still more trials would lower the answer.

# %%
answered.groupby(["model", "optimizer"])["sampled_enough"].value_counts().unstack(fill_value=0)

# %% [markdown]
# ## Selected and confirmed
#
# The best of many trials is also the luckiest. Each study's best trial was therefore run again on fresh seeds, with
# nothing chosen any more. The ratio is the median of the repeats over what the trial was selected for; above 1 is the
# winner's curse.

# %%
again = pd.DataFrame(
    [
        {
            "model": one.curve.model,
            "optimizer": one.curve.optimizer,
            "batch size": each.batch_size,
            "selected": sum(each.selected) / 2,
            "repeats": each.repeats,
            "reached": each.reached,
            "median": sum(each.median) / 2,
        }
        for one in digits
        for each in confirmations.of(one.commits, one.curve.target)
    ]
)
again["ratio"] = again["median"] / again["selected"]
by_optimizer = again.groupby(["model", "optimizer"])
by_optimizer.agg(
    studies=("ratio", "size"),
    repeats=("repeats", "sum"),
    reached=("reached", "sum"),
    median_ratio=("ratio", "median"),
    worst_ratio=("ratio", "max"),
)

# %% [markdown]
# `reached` counts repeats that came to the target within their budget at all. A ratio is infinite where more than
# half of them did not, and so is a median of ratios where that is so of half of the studies.

# %%
finite = again["ratio"][again["ratio"] < float("inf")]
Markdown(
    f"Of {len(again)} best trials {len(again) - len(finite)} did not reach the target in most of their repeats. The "
    f"median ratio of the others is {finite.median():.2f}; at batch sizes up to 16 it is "
    f"{finite[again['batch size'] <= 16].median():.2f}, above 16 {finite[again['batch size'] > 16].median():.2f}."
)

# %% [markdown]
# If luck were alike at all batch sizes, a curve through the medians of repeats would lie higher and have its knee at
# the same place. Here both are fitted by the same procedure. Points of the second are few repeats each, all weigh
# alike, and batch sizes are dropped where half of the repeats or more never reached.

# %%
medians_again = [fits.judge(confirmations.points(confirmations.of(one.commits, one.curve.target))) for one in digits]
pd.DataFrame(
    {
        "selected": [draw.critical_in_words(one.judged) for one in digits],
        "confirmed": [draw.critical_in_words(one) for one in medians_again],
        "batch sizes confirmed": [len(one.points.batch_size) for one in medians_again],
    },
    index=table.index,
)

# %%
pairs = [(a.judged.fit.critical_batch_size, b) for a, b in zip(digits, medians_again, strict=True) if a.judged.fit]
told = [(before, b.fit.critical_batch_size) for before, b in pairs if b.verdict == "identified"]
Markdown(
    f"Of {len(told)} workloads whose knee is identified after confirmation {sum(a < b for a, b in told)} have it at a "
    "larger batch size than before."
)

# %% [markdown]
# Where that is most of them, luck was not alike: the search was luckier at small batch sizes, where gradients are
# noisier and fewer trials reach. The critical batch size *of the best of k trials* is then smaller than that of a
# typical run with the same metaparameters. Both are answers; they answer different questions.
#
# ## All there is on one workload
#
# The summary puts all of this on a page: the curve with its fit and what the fit assumes, the metaparameters of the
# best trials, the share of trials that reached, the ledger, and selected against confirmed.

# %%
(momentum, *_) = [one for one in digits if one.curve.optimizer == "momentum" and not one.curve.pruned]
gallery.show(summaries.summary([momentum]))

# %% [markdown]
# ## What this does not show
#
# Which optimizer is better. A target on the validation loss of digits, two networks, fixed schedules and one budget
# of trials are a comparison of just that; optimizers with more metaparameters are given no more trials to tune them
# with. Neither does it show what happens below the target: trials stop there.
