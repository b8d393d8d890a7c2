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
# How many steps does a workload need to reach a target error, at every batch size, if the learning rate and
# everything else is tuned for that batch size? Shallue et al. (2018, arXiv 1811.03600, section 4.1 and Figure 1)
# found one shape for all workloads they tried. At small batch sizes twice the batch halves the steps (*perfect
# scaling*). Then it saves less and less (*diminishing returns*), and from some batch size on it saves nothing
# (*maximal data parallelism*).
#
# This notebook draws that curve for the workloads of the dataset, says where its knee is and how surely, and then
# asks whether to believe it: on a workload whose answer is known, on sweeps that are too short to know, and on
# simulated ones.

# %%
import pandas as pd
from IPython.display import Markdown

from analysis import releases
from analysis.figures import batch_figures, best_of_figures
from analysis.fitting import assumptions, coverage, curve_fits, fits, noisy_quadratic, regimes, simulation
from analysis.plotting import picture
from analysis.trials import medians, trials

pd.set_option("display.precision", 3, "display.max_colwidth", None)
STORE = releases.release()

# %% [markdown]
# A curve is the studies that differ in batch size alone. All curves of the store with their fits:

# %%
fitted = curve_fits.of_store(STORE)
print(f"{len(fitted)} curves")

# %% [markdown]
# ## One curve
#
# A network with one hidden layer on handwritten digits, trained with momentum. Each point is the best of all trials
# at its batch size, and its bar is the interval between two evaluations within which that trial crossed the target:
# steps to target are interval-censored, and where no bar is to be seen it is smaller than the point. Open points are
# the best trial run again on fresh seeds, the median and the range of these repeats.
#
# The dashed line is perfect scaling, on which batch size times steps, the number of examples, stays the same. The
# strip above the axes names the regime wherever one of the three is at least 80 % probable; between them, where a `?`
# stands, none is. The critical batch size, with its 90 % interval, is along the bottom.

# %%
(one, *_) = [each for each in fitted if (each.curve.dataset, each.curve.optimizer) == ("digits", "momentum")]
picture.show(batch_figures.steps_to_target([one]))

# %% [markdown]
# What the picture is drawn from, and how probable each regime is at every batch size. Perfect scaling here means
# within 20 % of the line, maximal data parallelism within 20 % of the plateau.

# %%
points = one.selected.points
shares = pd.DataFrame(regimes.probabilities(one.selected.fit, points.batch_size).T, columns=regimes.REGIMES)
pd.DataFrame({"batch size": points.batch_size, "steps_low": points.low, "steps_high": points.high}, dtype=int).join(
    shares.round(2)
).set_index("batch size")

# %% [markdown]
# ## The fit
#
# The model of the steps `S` at batch size `B` is
#
#     ln S = ln S_min + ln(1 + (B* / B)^a) / a
#
# with perfect scaling on the left, a plateau `S_min` on the right, and between them a knee of sharpness `a`. With a
# sharpness of 1 it is the hyperbola of McCandlish et al. (2018, arXiv 1812.06162, equation 2.11). The **critical
# batch size** `B* = E_min / S_min` is where the line of perfect scaling meets the plateau: the fewest examples that
# reach the target, over the fewest steps. It does not depend on the sharpness, and its interval is a profile over
# both, so that it does not rely on the knee being a hyperbola.

# %%
fit = one.selected.fit
pd.Series(
    {
        "plateau S_min, steps": fit.s_min,
        "fewest examples E_min": fit.e_min,
        "critical batch size B*": fit.critical_batch_size,
        "its 90 % interval, low": fit.low,
        "its 90 % interval, high": fit.high,
        "sharpness a": fit.sharpness,
        "verdict": one.selected.verdict.replace("_", " "),
        "notes": one.selected.reason,
    },
    name="",
).to_frame()

# %% [markdown]
# A fit takes things for granted, and `fit --checks` lists each with the number that was seen. *Doubt* about the slope,
# the plateau, the knee or the search changes the verdict: no interval is stated. About the others it says where to
# look. *Cannot tell* is said where there is too little to judge.

# %%
print(assumptions.listing(one.selected.checks))

# %% [markdown]
# ## All curves
#
# The verdict is part of the answer. **Identified**: both ends of the interval lie within the batch sizes that were
# tried, and a plateau was seen. **At least**, **at most**: only one end does, and it is a 95 % bound. **Not
# identified**: no statement.

# %%
names = pd.DataFrame([one.curve.workload._asdict() for one in fitted])[["dataset", "model", "optimizer"]]
table = fits.table(names, [one.selected for one in fitted])
table["critical batch size"] = [fits.critical_in_words(one.selected) for one in fitted]
table[[*names, "critical batch size", "s_min", "sharpness", "half_trials_octaves", "model_error_octaves", "doubts"]]

# %%
counts = table["verdict"].str.replace("_", " ").value_counts()
identified = table.loc[table["verdict"] == "identified", "doubts"].fillna("")
doubts = identified[identified != ""].str.split(", ").explode().value_counts()
Markdown(
    "Of all curves: "
    + ", ".join(f"{count} *{verdict}*" for verdict, count in counts.items())
    + f". Of the {len(identified)} that are identified, {(identified != '').sum()} are in doubt: "
    + ", ".join(f"{count} about *{name}*" for name, count in doubts.items())
    + "."
)

# %% [markdown]
# `half_trials_octaves` is how far the critical batch size would move if only half of the trials counted, in factors
# of two: a first look at whether the search was long enough. `model_error_octaves` is the part of the interval that is
# for curves of another shape. `doubts` names the assumptions that the data do not bear out.
#
# ## Where the answer is known
#
# Gradient descent on a noisy quadratic (Zhang et al. 2019, arXiv 1907.04164) can be worked out on paper. The dataset
# holds it as one more workload, measured like all others, so that the procedure can be held against the truth. There
# are two truths to tell apart:
#
# - *by expectation*: the steps after which the *expected* loss is at the target, at the best learning rate;
# - *best of k*: the steps that the quickest of k trials needs, each with a learning rate of its own and with its own
#   noise. The quickest is also the luckiest, the more so the more trials there are, and the noisier they are: at
#   small batch sizes.
#
# What is measured is the second, always: a minimum over trials. The table has the measured interval beside both.

# %%
(quadratic, *_) = [each for each in fitted if (each.curve.dataset, each.curve.optimizer) == ("noise", "sgd")]
by_size = {commit.study.batch_size: commit.study for commit in quadratic.curve.workload.commits}
noisy = [by_size[size] for size in sorted(by_size)]
tried = quadratic.selected.points.trials
known = pd.DataFrame(
    {
        "batch size": [study.batch_size for study in noisy],
        "by expectation": [noisy_quadratic.least_steps(study) for study in noisy],
        f"best of {tried}": [noisy_quadratic.best_of(study, tried) for study in noisy],
        "measured, low": quadratic.selected.points.low,
        "measured, high": quadratic.selected.points.high,
    }
).set_index("batch size")
known.round(0).astype(int)

# %%
picture.show(batch_figures.steps_to_target([quadratic]))

# %% [markdown]
# Open points far above the measured ones are the winner's curse made visible: the same learning rate with other seeds
# takes longer, or never gets there within its budget (a triangle at the top). Where trials are noisy the minimum says
# how lucky the luckiest was. It is still a fair thing to compare, at equal numbers of trials; it is not what one run
# will take.
#
# Does the interval hold the truth?

# %%
truths = {"by expectation": None, f"best of {tried}": tried}
critical = {name: noisy_quadratic.critical_batch_size(noisy[0], count) for name, count in truths.items()}
low, high = quadratic.selected.fit.low, quadratic.selected.fit.high
pd.DataFrame(
    [(truth, low, high, low <= truth <= high) for truth in critical.values()],
    columns=["true critical batch size", "interval, low", "interval, high", "holds it"],
    index=list(critical),
)

# %% [markdown]
# The interval is made for the best of so many trials, and that is the row it has to hold, nine times out of ten. It
# is not made for the other: a search that is lucky at small batch sizes leaves perfect scaling sooner. So a critical
# batch size is always one *of the best of k trials*, and comparisons are fair at equal k.
#
# ## The median best of k
#
# Since the minimum falls with every further trial, one may ask for something that does not: what *half of all random
# searches* of k trials reach their target in. All that is needed are the ranks of the trials there are, and its band
# is free of any assumption about how steps are distributed (`analysis/trials/best_of.py`).

# %%
picture.show(best_of_figures.draw_searches([quadratic, one], [2, 5, 14]))

# %% [markdown]
# Bands are 90 %, each end alone is a 95 % bound. Where a band leaves the picture, that end is open: too few trials
# reached the target. Longer searches lie lower. If they lay lower by one and the same factor, the critical batch size
# would be the same for all of them; where the factor in the last column changes along batch sizes, it is not.

# %%
of_quadratic = trials.of_commits(quadratic.curve.workload.commits, quadratic.curve.target).values()
answers = {
    f"median best of {k}": [medians.summarize(each, tried, k).median.high for each in of_quadratic] for k in (2, 14)
}
searches = pd.DataFrame(answers, index=pd.Index([each.study.batch_size for each in of_quadratic], name="batch size"))
searches.assign(factor=searches["median best of 2"] / searches["median best of 14"]).sort_index()

# %% [markdown]
# ## When the honest answer is less
#
# What would have been said had the sweep stopped earlier? Here is the first curve again, with only the batch sizes up
# to some largest one. The data are the same, only fewer.

# %%
curve = one.curve
workload = curve.workload
shorter = {
    largest: tuple(commit for commit in workload.commits if commit.study.batch_size <= largest)
    for largest in curve.batch_sizes[2:]
}
fewer = {
    largest: curve_fits.of_workload(workload._replace(commits=kept), curve.target) for largest, kept in shorter.items()
}
cut = {largest: each.selected for largest, each in fewer.items()}
pd.DataFrame(
    [
        (
            largest,
            points_fit.fit and points_fit.fit.critical_batch_size,
            fits.critical_in_words(points_fit),
            points_fit.reason,
        )
        for largest, points_fit in cut.items()
    ],
    columns=["largest batch size", "best fit", "critical batch size", "reason"],
).set_index("largest batch size")

# %% [markdown]
# Fewer than five batch sizes are refused: nothing would be left to judge the fit by. As long as no plateau is in
# sight the verdict is *at least*, a bound below which the knee is not. The column *best fit* is the number that the
# same curve would name without its interval; watch it move. Below, the longest of these sweeps that is given no more
# than a bound.

# %%
bounded = [largest for largest, points_fit in cut.items() if points_fit.verdict == "at_least"] or list(cut)
chosen = bounded[-1]
picture.show(batch_figures.steps_to_target([fewer[chosen]]))

# %% [markdown]
# ## How often such statements hold
#
# Searches can be simulated, with curves whose knee is known, and fitted by the same code. A few scenarios with 100
# data sets each; `python -m analysis coverage` runs 504 of them with 300 each, and `docs/statistics/coverage.md` has its
# table. The aim is 85 to 97 % where the knee is inside the data. In the last two rows no knee lies inside the data:
# *identified* has to be rare there.

# %%
scenarios = [
    simulation.Scenario("middle", "hyperbola", 9, "high", "ratio 1.1"),
    simulation.Scenario("middle", "sharp", 9, "high", "ratio 1.1"),
    simulation.Scenario("1 octave inside", "hyperbola", 9, "high", "ratio 1.1"),
    simulation.Scenario("middle", "noisy quadratic", 9, "low", "ratio 1.1"),
    simulation.Scenario("2 octaves beyond", "hyperbola", 9, "high", "ratio 1.1"),
    simulation.Scenario("absent: perfect scaling", "hyperbola", 9, "high", "ratio 1.1"),
    simulation.Scenario("middle", "slope -0.85", 11, "low", "ratio 1.1"),
]
simulated = coverage.run(100, 0, print, scenarios)
simulated[["knee", "shape", "noise", "covered", "identified", "at_least", "wrong", "failed", "octaves"]]

# %% [markdown]
# `covered` is the share of statements that were true, `octaves` the median width of an interval in factors of two.
# `wrong` is the share of data sets that are identified and wrong, `failed` that in which a check kept an interval from
# being stated. The last row is where the procedure is known to be weakest: a soft knee looks much like another slope.
#
# ## What none of this shows
#
# Steps are not seconds: whether a larger batch takes as long per step as a small one is a question to the hardware.
# The critical batch size belongs to a workload *and* a target, a search space, and a number of trials. And a search
# that gets harder with batch size, because good metaparameters become rarer, bends the curve upwards at large batch
# sizes, which looks like a knee: see the notebook on optimizers and learning rates for where the best trials lie in
# their search spaces.
