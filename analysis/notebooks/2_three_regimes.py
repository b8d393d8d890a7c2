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
# # The three regimes
#
# How many steps does a workload need to reach a target error at each batch size, if all metaparameters are tuned for
# that batch size? Shallue et al. (2018, arXiv 1811.03600, section 4.1 and Figure 1) found the same shape for all their
# workloads. At small batch sizes, doubling the batch halves the steps (*perfect scaling*). Then doubling saves less
# and less (*diminishing returns*), and finally it saves nothing (*maximal data parallelism*).
#
# This notebook draws the curve for the workloads of the dataset. It answers how far larger batches pay off and stay
# efficient, whatever the shape of the curve, and then estimates the knee, if the curve is a hyperbola. It tests the
# method on a workload with a known answer, on shortened sweeps, and on simulated searches.

# %%
import pandas as pd
from IPython.display import Markdown

from analysis import releases, text
from analysis.figures import batch_figures
from analysis.fitting import (
    assumptions,
    curve_fits,
    extent_coverage,
    fit_coverage,
    fit_tables,
    regimes,
    simulation,
)
from analysis.payoff import answer_tables
from analysis.plotting import picture

pd.set_option("display.precision", 3, "display.max_colwidth", None)
STORE = releases.release()

# %% [markdown]
# A curve consists of studies that differ only in batch size. Fit all curves of the store:

# %%
fitted = curve_fits.of_store(STORE)
print(f"{len(fitted)} curves")

# %% [markdown]
# ## One curve
#
# The workload is a network with one hidden layer on handwritten digits, trained with momentum. Each point is the best
# of all trials at its batch size. Its bar is the interval between the two evaluations in which that trial crossed the
# target, and is hidden if it is smaller than the point. Open points show the median and range of reruns of the best
# trial with fresh seeds.
#
# Along the dashed line of perfect scaling, the number of examples (batch size times steps) is constant. The strip
# above the axes names a regime if it is at least 80 % probable, and shows `?` otherwise. *Pays up to* with its 90 %
# interval is at the bottom. A diamond on the curve marks the critical batch size, if the curve is a hyperbola. Answers
# in doubt are dashed or hollow.

# %%
(one, *_) = [each for each in fitted if (each.curve.dataset, each.curve.optimizer) == ("digits", "momentum")]
picture.show(batch_figures.steps_to_target([one]))

# %% [markdown]
# ## How far do larger batches pay off?
#
# Two answers do not depend on the shape of the curve:
#
# - *pays up to*: the batch size after the last doubling of batch and devices that still trains at least 20 % faster, if
#   a step takes the same time.
# - *efficient up to*: the largest batch size that needs at most 1.2 times the fewest examples of any batch size tried.
#
# Each has a 90 % interval. If an end is open, the other one is a 95 % bound.

# %%
answers = {name: points_fit.extents_in_words for name, points_fit in curve_fits.answers(one)}
pd.DataFrame.from_dict(answers, "index", columns=["pays up to", "efficient up to"])

# %% [markdown]
# The next table lists the data of the picture and the probability of each regime. Perfect scaling is the
# regime in which at most 20 % more examples are needed than on the line of perfect scaling. Maximal data parallelism is
# the regime in which at most 20 % more steps are needed than on the plateau.

# %%
points = one.selected.points
shares = pd.DataFrame(regimes.probabilities(one.selected.fit, points.batch_size).T, columns=regimes.REGIMES)
pd.DataFrame({"batch size": points.batch_size, "steps_low": points.low, "steps_high": points.high}, dtype=int).join(
    shares.round(2)
).set_index("batch size")

# %% [markdown]
# ## If the curve is a hyperbola
#
# The model of the steps `S` at batch size `B` is
#
#     ln S = ln S_min + ln(1 + (B* / B)^a) / a
#
# with perfect scaling on the left, a plateau `S_min` on the right, and between them a knee of sharpness `a`. With a
# sharpness of 1 it is the hyperbola of McCandlish et al. (2018, arXiv 1812.06162, equation 2.11). The **critical batch
# size** `B* = E_min / S_min` is where the line of perfect scaling meets the plateau: the fewest examples that reach
# the target, over the fewest steps. It does not depend on the sharpness, and its interval is a profile over both, so
# that it does not rely on the knee being a hyperbola.

# %%
fit_tables.table(*curve_fits.rows([one])).set_index("estimate").loc[:, "s_min":"reason"].transpose()

# %% [markdown]
# Such a fit makes assumptions. `fit --checks` lists each with the observed value. If the slope, the plateau, the knee
# or the search is in *doubt*, no interval is reported. Doubts about other assumptions are hints. *Cannot tell* means
# that there are too few data for the check.

# %%
print(assumptions.listing(one.selected.checks))

# %% [markdown]
# ## All curves
#
# The verdict is part of each answer. **Identified**: both ends of the interval are within the measured batch sizes.
# **Lower bound**, **upper bound**: only one end is, and it is a 95 % bound. **Unknown**: neither is. **In doubt** is
# added if the data contradict an assumption of that answer. *Pays up to* and *efficient up to* only assume that the
# search is as good at every batch size.

# %%
table = answer_tables.of_curves(fitted)
table[["pays up to", "efficient up to", "pays_halved_by", "efficient_halved_by"]]

# %%
verdicts = table[["pays_verdict", "efficient_verdict", "verdict"]].replace(text.IN_WORDS)
verdicts.apply(pd.Series.value_counts).fillna(0).astype(int)

# %% [markdown]
# `pays_halved_by` and `efficient_halved_by` are the multiples of the trials that would halve the interval. The
# critical batch sizes follow, if the curves are hyperbolas.

# %%
table[["critical batch size", "s_min", "sharpness", "half_trials_octaves", "model_error_octaves", "doubts"]]

# %%
identified = table.loc[table["verdict"] == "identified", "doubts"].fillna("")
doubts = identified[identified != ""].str.split(", ").explode().value_counts()
Markdown(
    f"{(identified != '').sum()} of the {len(identified)} identified critical batch sizes are in doubt: "
    + ", ".join(f"{count} about *{name}*" for name, count in doubts.items())
    + "."
)

# %% [markdown]
# `half_trials_octaves` is the shift of the critical batch size, in octaves, if only half of the trials count. It
# indicates whether the search was long enough. `model_error_octaves` is the share of the interval that allows for
# other shapes of the curve. `doubts` names the assumptions that the data contradict.
#
# ## A workload with a known answer
#
# Gradient descent on a noisy quadratic (Zhang et al. 2019, arXiv 1907.04164) has an analytic solution. The dataset
# contains it as one more workload, measured like all others, to compare the method with the truth. There are two true
# answers:
#
# - *by expectation*: the steps after which the *expected* loss reaches the target at the best learning rate.
# - *best of k*: the steps of the fastest of k trials, which differ in learning rate and noise. The fastest trial is
#   also the luckiest, especially with many trials and with the strong noise of small batch sizes.
#
# Measurements are always the second kind, a minimum over trials. The table shows the measured interval next to both.
# The file holds the true answers, which the tests compute anew (`tests/analysis/fitting/noisy_quadratic.py`).

# %%
(quadratic, *_) = [each for each in fitted if (each.curve.dataset, each.curve.optimizer) == ("noise", "sgd")]
truths = pd.read_csv(releases.ROOT / "analysis" / "notebooks" / "noisy_quadratic.csv", index_col="answer")
critical = truths.pop("critical batch size")
known = truths.T.rename_axis(index="batch size", columns=None).assign(
    **{"measured, low": quadratic.selected.points.low, "measured, high": quadratic.selected.points.high}
)
known.round(0).astype(int)

# %%
picture.show(batch_figures.steps_to_target([quadratic]))

# %% [markdown]
# Open points far above the measured ones show the winner's curse. With other seeds, the same learning rate takes
# longer or misses the target within its budget (a triangle at the top). If trials are noisy, the minimum measures
# luck. It is still fair to compare at equal numbers of trials, but a single run takes longer.
#
# Does the interval contain the truth?

# %%
low, high = quadratic.selected.fit.low, quadratic.selected.fit.high
critical.to_frame().assign(low=low, high=high, holds=critical.between(low, high))

# %% [markdown]
# The interval is for the best of k trials and must contain that row nine times out of ten. It is not for the other
# row: luck at small batch sizes ends perfect scaling earlier. A critical batch size is therefore always one *of the
# best of k trials*, and comparisons are fair at equal k.

# %% [markdown]
# ## Shorter sweeps
#
# What is the answer if the sweep stops earlier? Here is the first curve again, cut at increasingly large batch sizes.

# %%
curve = one.curve
workload = curve.workload
shorter = [
    curve_fits.of_workload(workload._replace(commits=workload.commits[:count]), curve.target)
    for count in range(3, len(workload.commits) + 1)
]
names = pd.DataFrame({"largest batch size": [max(cut.curve.batch_sizes) for cut in shorter]})
cuts = answer_tables.of_fits(names, [cut.selected for cut in shorter]).set_index("largest batch size")
cuts[["pays up to", "efficient up to", "critical batch size", "critical_batch_size", "reason"]]

# %% [markdown]
# Fewer than five batch sizes get no answer, because no data would remain to check it. In a short sweep, *pays up to* is
# only a lower bound: doubling still pays off at its end. Without a plateau, the critical batch size also gets only a
# lower bound. The column `critical_batch_size` is its estimate without the interval. Note how it moves. The picture
# shows the longest of these sweeps that only gets a bound.

# %%
bounded = [cut for cut in shorter if cut.selected.verdict == "at_least"] or shorter
picture.show(batch_figures.steps_to_target(bounded[-1:]))

# %% [markdown]
# ## Coverage
#
# Searches with a known curve can be simulated and answered with the same code. The first table is for answers that
# hold whatever the shape, at the luck that real searches have.

# %%
shapes = ("hyperbola", "slope -0.85", "knee 4 x sharper to its plateau", extent_coverage.FALLS)
cells = [simulation.Scenario("middle", shape, 11, "luck 0.22", "ratio 1.1") for shape in shapes]
columns = ["shape", "answer", "holds", "bound_holds", "two_sided", "wrong", "octaves"]
extent_coverage.run(50, 0, print, cells)[columns]

# %% [markdown]
# `holds` is the share of intervals that contain the truth. The last answer, `critical`, is the knee of a fitted
# hyperbola: compare it on the other shapes. `python -m analysis coverage` runs many more scenarios. Their tables are
# in `docs/statistics/coverage.md`.
#
# The second table is for critical batch sizes. Here are a few scenarios with 100 data sets each. The aim is a coverage
# of 85 to 97 % if the knee is inside the data. In scenarios with no knee inside the data, *identified* must be rare.

# %%
cases = [
    ("middle", "hyperbola", 9, "high"),
    ("middle", "sharp", 9, "high"),
    ("1 octave inside", "hyperbola", 9, "high"),
    ("middle", "noisy quadratic", 9, "low"),
    ("2 octaves beyond", "hyperbola", 9, "high"),
    ("absent: perfect scaling", "hyperbola", 9, "high"),
    ("middle", "slope -0.85", 11, "low"),
]
scenarios = [simulation.Scenario(*case, "ratio 1.1") for case in cases]
simulated = fit_coverage.run(100, 0, print, scenarios)
simulated[["knee", "shape", "noise", "covered", "identified", "at_least", "wrong", "failed", "octaves"]]

# %% [markdown]
# `covered` is the share of true statements, and `octaves` is the median width of an interval. `wrong` is the share of
# data sets that are identified but wrong. `failed` is the share in which a check prevented an interval. The last row
# is the known weakness of the method: a soft knee resembles another slope.
#
# ## Limits
#
# Steps are not seconds. Whether a step takes longer at a larger batch size depends on the hardware. The critical batch
# size belongs to a workload *and* a target, a search space, and a number of trials. If good metaparameters become
# rarer at large batch sizes, the search gets harder and the curve bends upwards, which looks like a knee. The notebook
# on optimizers and learning rates shows where the best trials are in their search spaces.
