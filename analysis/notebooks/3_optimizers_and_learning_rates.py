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
# How far a workload scales depends on the optimizer. Shallue et al. (2018) found that momentum keeps perfect scaling
# up to larger batch sizes than plain gradient descent (Figure 4), and that the best learning rate does not follow a
# common rule across workloads (Figure 8). Zhang et al. (2019, arXiv 1907.04164) predict the first result from a noisy
# quadratic, and expect larger gains from preconditioned optimizers such as Adam.
#
# Here nine optimizers train two small networks on handwritten digits. Each is tuned separately at every batch size
# with the same number of trials. The networks and the data are small, so the results hold for these workloads only.

# %%
import numpy as np
import pandas as pd
from IPython.display import Markdown
from scipy import stats

from analysis import releases, workload_studies
from analysis.figures import batch_figures, registry, summaries
from analysis.figures.requests import FigureRequest
from analysis.fitting import curve_fits, fit_tables
from analysis.payoff import answer_tables
from analysis.plotting import picture, tuning
from analysis.trials import metaparameters, trials

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
# Learning rates are constant, with one picture per network. A ring marks an identified critical batch size, and the
# legend lists it with its 90 % interval. Compare two things: *how far to the right* the ring is, which shows how far a
# larger batch pays off, and *how low* the curve is, which shows the number of steps the optimizer needs.

# %%
picture.show(batch_figures.optimizers(digits))

# %% [markdown]
# The table lists the numbers: how far doubling pays off and stays efficient, and then the critical batch size, if the
# curve is a hyperbola. `E_min` is the smallest number of examples that reaches the target, under perfect
# scaling. `S_min` is the smallest number of steps, on the plateau. Their ratio is the critical batch size. It can be
# large because few steps suffice at large batch sizes, or because small batch sizes need many examples. Only the first
# is a gain.

# %%
table = answer_tables.of_curves(digits).droplevel("dataset")
table["e_min"] = table["s_min"] * table["critical_batch_size"]
table[[*fit_tables.KEPT, "e_min", "s_min"]].round({"e_min": 0, "s_min": 0})

# %% [markdown]
# Which optimizers differ from plain gradient descent? Two critical batch sizes count as different if their 90 %
# intervals are disjoint. This rule is conservative, because intervals with a small overlap may still differ. An open
# end overlaps with everything on its side.

# %%
low, high = table["critical_batch_size_low"].unstack("model"), table["critical_batch_size_high"].unstack("model")
against = pd.DataFrame("not distinguished", low.index, low.columns)
against[low > high.loc["sgd"]] = "larger"
against[high < low.loc["sgd"]] = "smaller"
against.drop(index="sgd")

# %% [markdown]
# The next workload is a small Transformer on the text of Python's documentation, with three optimizers and fewer
# trials. It also has fewer batch sizes, so verdicts are more often one-sided: *at least* is only a lower bound.

# %%
picture.show(batch_figures.optimizers([one for one in fitted if one.curve.dataset == "pydoc"]))

# %% [markdown]
# ## With decay and label smoothing
#
# The same network is trained with linear decay and label smoothing. The search includes the number of decay steps and
# the smoothing, and every trial runs to the end of its budget. A smoothed loss cannot fall as far. If no trial reaches
# the target at a batch size, the curve has no point there. With too few points, the knee is not identified.

# %%
picture.show(batch_figures.optimizers([one for one in written if one.curve.shared["schedule"] != "constant"]))

# %% [markdown]
# Split the trials into thirds by label smoothing:

# %%
decayed = "dataset=digits,model=fully_connected*,optimizer=adam,schedule=linear"
picture.show(registry.draw_kind(STORE, FigureRequest("split", where=(decayed,), by="label_smoothing")))

# %% [markdown]
# ## The best learning rate against batch size
#
# The linear rule scales the learning rate with the batch size, and the square-root rule with its square root. Both
# start from the best trial at the smallest batch size. Bars span all trials that needed at most 1.25 times the fewest
# steps. These are nearly as good, so a long bar means that the choice hardly matters. With momentum μ, the relevant
# quantity is the *effective* learning rate, learning rate / (1 − μ), in the last panel (Figure 8 of Shallue et al.).

# %%
conditions = [f"dataset=digits,model=fully_connected*,optimizer={name},{PLAIN}" for name in ("sgd", "momentum", "adam")]
picture.show(registry.draw_kind(STORE, FigureRequest("metaparameters", where=tuple(conditions))))

# %% [markdown]
# Does it grow linearly? The table lists the power of the batch size by which the rate grows: 1 is the linear rule,
# 0.5 the square-root rule, and 0 no growth. The power is a least-squares slope in logarithms of the geometric mean
# over nearly best trials, with a 90 % interval from the scatter, if there are at least four batch sizes. The first
# table stops at the critical batch size if it is identified, because the rules are meant for that range. Otherwise it
# uses all batch sizes.

# %%
chosen = workload_studies.of_store(STORE, [f"dataset=digits,{PLAIN}"])
drawn = [curve_fits.of_workload(one, one.commits[0].study.targets[0]) for one in chosen]
rates = [metaparameters.metaparameter("learning_rate", log=True), metaparameters.effective_learning_rate()]
rows = []
for curve in drawn:
    best = set(curve.best).intersection(curve.selected.points.usable().batch_size)
    critical = curve_fits.critical_batch_size(curve.selected)
    for rate in rates[: 2 if "momentum" in curve.curve.tuned else 1]:
        below = [size for size in best if not size > critical]
        for part, sizes in (("up to the critical one", below), ("all batch sizes", list(best))):
            row = {"model": curve.curve.model, "optimizer": curve.curve.optimizer, "rate": rate.label, "to": part}
            rows.append(row | {"batch_sizes": len(sizes)})
            if len(sizes) >= 4:
                logs = [np.log(rate.values(tuning.nearly_best(curve, size))).mean() for size in sizes]
                line = stats.linregress(np.log(sizes), logs)
                half = stats.t.ppf(0.95, len(sizes) - 2) * line.stderr
                low, high = line.slope - half, line.slope + half
                agreeing = [rule for rule, power in tuning.POWERS.items() if low <= power <= high]
                rows[-1] |= {"power": line.slope, "power_low": low, "power_high": high}
                rows[-1]["agrees_with"] = ", ".join(agreeing) or "neither"
powers = pd.DataFrame(rows).set_index(["model", "optimizer", "rate", "to"])
below = powers.xs("up to the critical one", level="to")
below.head(len(below))

# %%
words = below["agrees_with"].value_counts()
Markdown(
    "Rates above that can be judged: "
    + ", ".join(f"{count} agree with *{rule}*" for rule, count in words.items())
    + ". Agreement is not proof: a wide interval agrees with many rules."
)

# %% [markdown]
# The second table uses all batch sizes. On the plateau, a larger batch does not need a larger rate, so powers should be
# smaller here if the plateau was reached.

# %%
powers["power"].unstack("to")

# %% [markdown]
# ## Where good trials lie
#
# Each panel shows the plane of learning rate and 1 − momentum at one batch size (as Figure 9 of Shallue et al.).
# Dashed lines connect equal effective learning rates. Filled points are trials that reached the target. The smaller
# their part of the plane, the harder the search. If that part shrinks towards large batch sizes, the best of k trials
# gets worse for this reason alone, and the critical batch size decreases.

# %%
picture.show(registry.draw_kind(STORE, FigureRequest("scatter", where=(conditions[1],))))

# %% [markdown]
# The share of trials that reached the target measures this for all optimizers:

# %%
reached = [
    pd.Series({size: 100 * (rows["outcome"] == trials.REACHED).mean() for size, rows in curve.trials.items()})
    for curve in drawn
]
names = pd.MultiIndex.from_tuples([curve.curve.workload[1:3] for curve in drawn], names=["model", "optimizer"])
success = pd.DataFrame(reached, names)
success.round().astype("Int64").astype(str) + " %"

# %% [markdown]
# ## Were the search spaces wide enough?
#
# If the best trials are at the end of a range, the optimum may be outside, and the answer depends on the range rather
# than the optimizer. The table shows at how many batch sizes the best tenth of the trials clusters at an end
# (`analysis/trials/edges.py`). A question mark means that the optimum may also be some distance away. If
# metaparameters did not matter, one in twenty studies would be listed by chance, and one in ten with a question mark.

# %%
ends = [
    (one.curve.model, one.curve.optimizer, str(end))
    for one in fitted
    for at_edge in one.selected.points.at_edge
    for end in at_edge or ()
]
pd.DataFrame(ends, columns=["model", "optimizer", "at an edge"]).value_counts().sort_index()

# %% [markdown]
# ## Selected and confirmed
#
# The best of many trials is also the luckiest. The best trials of each study were therefore rerun with fresh seeds. If
# several were rerun, half of the reruns *choose* one trial, and the other half of that trial's reruns *report*. If
# only the best trial was rerun, all of its reruns report. Reporting reruns take no part in the choice, and their
# median is the *confirmed* value. The rule is in `results/rules/confirmation.py`.
#
# The effect is known exactly if all configurations are equal, because any lead of the selected trial is then luck. The
# table shows 200 simulated searches of 64 trials: the selected value, the median that chose the trial among five, and
# the confirmed value, each divided by the truth. The tests simulate the same with the code that reads a store
# (`tests/analysis/fitting/selection_bias.py`).

# %%
rng = np.random.default_rng(0)
search, choosing, reporting = (np.exp(0.15 * rng.standard_normal((200, *shape))) for shape in ((64,), (5, 3), (3,)))
simulated = {
    "selected": search.min(axis=1),
    "median that chose": np.median(choosing, axis=2).min(axis=1),
    "confirmed": np.median(reporting, axis=1),
}
pd.DataFrame(simulated).median().to_frame("over the truth")

# %% [markdown]
# The next table shows confirmed over selected steps in the release, by data set and in total. Ratios above 1 are the
# winner's curse. `never` counts studies in which at least half of the reruns missed the target within their budget.
# They do not have a ratio. `small` means batch sizes up to 16, and `large` those above. `same` is the share of studies
# whose confirmed trial is the best one of the search.

# %%
ratios = pd.DataFrame(
    [
        (one.curve.dataset, one.curve.optimizer, each.batch_size, each.ratio, each.chosen == each.best)
        for one in fitted
        for each in one.confirmations
    ],
    columns=["dataset", "optimizer", "batch_size", "ratio", "same"],
)
finite = ratios["ratio"].where(np.isfinite(ratios["ratio"]))
ratios = ratios.assign(
    studies=1,
    never=finite.isna(),
    ratio=finite,
    small=finite.where(ratios["batch_size"] <= 16),
    large=finite.where(ratios["batch_size"] > 16),
)
how = {"studies": "sum", "never": "sum", "ratio": "median", "small": "median", "large": "median", "same": "mean"}
pd.concat([ratios, ratios.assign(dataset="all")]).groupby("dataset", sort=False).agg(how)

# %%
ratios[ratios["dataset"] == "digits"].groupby("optimizer", sort=False).agg(how)

# %% [markdown]
# If luck were the same at all batch sizes, the confirmed curve would be higher with an unchanged knee. Both curves are
# fitted with the same method. Confirmed points are medians of a few reruns with equal weights. Batch sizes at which at
# least half of the reruns missed the target are dropped.

# %%
both = curve_fits.moves(fitted).set_index(["dataset", "model", "optimizer"])
words = [[points_fit.critical_in_words for _, points_fit in curve_fits.answers(one)] for one in fitted if one.confirmed]
both[list(curve_fits.ANSWERS)] = words
both.head(len(both))

# %%
moved = both.dropna(subset="octaves")
Markdown(
    f"{len(moved)} workloads have an identified knee both selected and confirmed. The confirmed knee is at a larger "
    f"batch size in {int((moved['octaves'] > 0).sum())} of them, and the median shift is "
    f"{moved['octaves'].median():+.2f} octaves. "
    f"{len(moved) - int(moved['inside'].sum())} leave the 90 % interval of the selected knee."
)

# %% [markdown]
# If most knees shift, luck was not the same: the search was luckier at small batch sizes, at which gradients are
# noisier and fewer trials reach the target. The critical batch size *of the best of k trials* is then smaller than
# that of a typical run with tuned metaparameters. The two values answer different questions, and both are always
# shown.
#
# ## Answers against the number of trials
#
# A minimum decreases as the search grows. The first 8, 16, 32, ... trials of each study form smaller searches, whose
# answers show the dependence on k. Losing trials of pruned studies were cut short, so these studies appear at their own
# k only. `python -m analysis fit --best-of 8,16,32,64,1024` prints the same table:

# %%
by_number = fit_tables.table(*curve_fits.rows_by_k(fitted, [8, 16, 32, 64, 1024]))
names = ["dataset", "model", "optimizer", "target_value", "trials_per_point"]
by_number[[*names, "pays_up_to", "critical_batch_size", "verdict"]]

# %% [markdown]
# ## Summary of one workload
#
# A summary page combines the above: the curve with its fit and the assumptions of the fit, the metaparameters of the
# best trials, the share of trials that reached the target, the ledger, and selected against confirmed steps.

# %%
(momentum, *_) = [one for one in digits if one.curve.optimizer == "momentum" and not one.curve.pruned]
picture.show(summaries.summary([momentum]))

# %% [markdown]
# ## Limits
#
# These results do not show which optimizer is better. They compare one validation target on digits with two networks,
# two schedules and one budget of trials. Optimizers with more metaparameters do not get more trials. The results also
# do not show anything below the target, because trials without decay stop there.
