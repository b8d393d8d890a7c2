"""The --help text of every command. The meanings of the columns are defined in ``columns``."""

from collections.abc import Mapping

from results import definitions

TOP = """\
Numbers, regimes and figures from a store of results.

  python -m analysis steps --store results/local
  python -m analysis fit --store results/local
  python -m analysis epochs --store results/local
  python -m analysis payoff --store results/local
  python -m analysis compare results/local results/other
  python -m analysis figures --store results/local --out figures
  python -m analysis report --store results/local --out report.html
  python -m analysis all --store results/local --out figures

steps and fit cover studies over batch sizes, and epochs covers factorizations over cores. payoff, figures and report
cover both.
DIR of --store is the folder of a store or of a release, or its URL, such as gs://bucket/folder.
"""
STEPS = f"""\
Steps to target of the best trial of every study: {definitions.STEPS_TO_TARGET}.

  python -m analysis steps --store results/local
  python -m analysis steps --store results/local --csv > steps.csv
  python -m analysis steps --store results/local --metric test_error --value 0.05
  python -m analysis steps --store results/published --metric validation_error --value 0.01 --rule released

--rule minimum    a trial reaches a target at or below its value, and all trials count, however they ended
--rule released   the analysis published with Shallue et al. (2018): a trial must be strictly below the value, and only
                  the first COMPLETE trials of each study count, by number: --first 100, or all if there are fewer

Pruning cuts losing trials short, so only --rule minimum works for pruned studies. Run them with pruning=off for the
other.
"""
STEPS_COLUMNS = """\
columns of --csv, one row per study and target:
"""
_GAIN = definitions.PAYS_UP_TO.format(gain="--gain")
_ANSWERS = (
    f"pays up to is {_GAIN}. efficient up to is {definitions.EFFICIENT_UP_TO}. Neither assumes a shape of the curve. "
    "With `--assume curves` they average over 150,000 plausible curves. With `--assume nothing` they allow for every "
    f"convex curve. The critical batch size is {definitions.CRITICAL_BATCH_SIZE} of a model, in which steps S at batch "
    "size B are"
)
FIT = f"""\
How far larger batches pay off and stay efficient, and the critical batch size, for every curve, with 90 % intervals.

  python -m analysis fit --store results/local
  python -m analysis fit --points steps.csv --csv
  python -m analysis fit --store results/local --checks
  python -m analysis fit --store results/local --best-of 8,16,32,64

A curve is a set of studies that differ only in batch size. If the best trials were repeated, it has two estimates.
In the selected one, each point is the best of all trials, which is also the luckiest. In the confirmed one, each point
is the median of repeats with new seeds, which played no part in the choice.

{_ANSWERS}

  ln S = ln s_min + ln(1 + (critical_batch_size / B)^sharpness) / sharpness

The interval is a profile over both parameters, so it does not assume that the knee is a hyperbola.

--points takes a CSV file with batch_size and either steps, or steps_low and steps_high. Without steps_low, steps are
exact. An empty steps_low means that only the upper end is known. Rows that agree in all other columns make a curve.
`steps --csv` writes such a file.

--best-of fits the best of the first K trials of each study and shows how the critical batch size depends on K. Pruning
cuts losing trials short, so pruned studies have a row only for their own number of trials.

--checks lists the assumptions of each fit with the evidence and an outcome: pass, doubt or cannot tell. With --csv it
writes a row for each: the curve, then assumption, seen and outcome.
"""
FIT_COLUMNS = """\
columns of --csv, after those that name the curve:
"""
FIT_LIMITS = """
The interval includes a model error of up to 0.35 octaves. It is smaller if the shape can be judged on both sides of the
knee, or if the data are exact. Four findings change the verdict, and the reason names them: a slope other than -1 at
small batch sizes, a slope other than 0 at large ones, a knee that is sharper on one side, and a search that gets harder
with batch size. Then no interval is reported, only a lower bound if there is one. The interval does not cover
deviations that the data do not show. A true slope of -0.85 shifts the estimate by 0.75 octaves and is detected in half
of the low-noise curves (`coverage` reports the rate of detection for each). Look at the figures as well as the numbers.
"""
COVERAGE = """\
How often the statements of `fit` are true, on simulated searches with known answers.

--of extents has pays up to, efficient up to and the critical batch size for ten shapes of curve, five levels of luck
and 9, 11 or 13 batch sizes. --of fits has the critical batch size in more detail: six shapes of curve, 6, 9 or 13 batch
sizes, two levels of noise and two grids of evaluations, with knees in the middle, near an end, beyond it, or absent. A
second set of curves and searches violates an assumption of the fit, at 11 batch sizes, and shows how often the checks
name it. --of narrowing shows how much more trials, batch sizes or repeats narrow the intervals.

  python -m analysis coverage
  python -m analysis coverage --of fits --datasets 20 --seed 1 --csv > coverage.csv
  python -m analysis coverage --of cores --csv > coverage_of_cores.csv
"""
COVERAGE_OF_FITS = """\
columns of --of fits --csv, one row per scenario:
"""
COVERAGE_OF_NARROWING = """
columns of --of narrowing --csv, one row per shape, luck, way to spend trials and answer:
"""
COVERAGE_OF_EXTENTS = """
columns of --of extents --csv, one row per scenario and answer:
"""
COVERAGE_OF_CORES = """
The second table covers the statements of `epochs --fit` on simulated seconds per epoch. Some laws are those that are
fitted. Others are not, such as communication that grows as log2 c, or a second memory beyond half of the cores. There
are three sets of core counts and three spreads of epochs. Without --of all tables but that of suggestions are printed.
--csv writes one, by default that of extents.
"""
COVERAGE_OF_CORES_COLUMNS = """
columns of --of cores --csv, one row per scenario:
"""
COVERAGE_OF_SUGGESTIONS = """
--of suggestions compares the cost of following `suggest` with that of a full grid of batch sizes. It takes about 10
seconds per data set. Columns of --csv, one row per data set:
"""
SUGGEST = """\
Suggestions: the further runs that narrow `pays up to` most for their cost, five per curve.

  python -m analysis suggest --store results/local
  python -m analysis suggest --store results/local --where optimizer=momentum --budget 2

Candidates are a new batch size (between two others, above the largest or below the smallest), twice the trials at one
batch size, and repeats of the best trials. The result of each is simulated from the present fit, and the fit with
it gives the expected width. Rows are sorted by the narrowing per cost. Gaps of more than an octave near the answer come
first. Run the first row, and ask again: docs/statistics/coverage.md has the cost of doing so in simulations.

The cost of a trial is its expected steps times the seconds per step of the store, or times its examples if the store
has no times. A batch size above the largest so far is suggested only if `python -m sweeps.plan` accepts it on this
machine, because it might not fit in memory. For imported runs, the rows name the runs to make.
"""
SUGGEST_COLUMNS = """\
columns of --csv, a row per suggestion:
"""
PAYOFF = f"""\
Pay-off: up to how many devices another doubling still pays off, and what it costs.

  python -m analysis payoff --store results/published
  python -m analysis payoff --store results/published --gain 50 --times --price 2.5
  python -m analysis payoff --store results/mlperf --metric validation_shortfall --value 0
  python -m analysis payoff --paper shallue2018
  python -m analysis payoff --paper gpt3 --times
  python -m analysis payoff --points points.csv --predicted step_times.csv

Time to target is steps to target (the curve that `fit` fits) times seconds per step. A doubling pays off if it makes
training faster by --gain or more. The answer is the number of devices after the last doubling that pays off, if all
doublings before it do, too. Its interval includes the uncertainty of the curve and of the seconds per step. The answer
never extrapolates beyond the batch sizes and numbers of devices in the data, so it may be only a bound.
Each number of devices uses its fastest batch size within the curve and the timed range: ln seconds are interpolated
over ln batch size. If neighbours are more than a factor of 4 apart only bounds hold, and a note names them. An answer
ends at the first number of devices whose double has no times.

batch size          {_GAIN}: from the curve only, for any hardware
measured devices    with measured seconds per step from the store, or from --measured FILE. Emulated devices and steps
                    of several trials at once are left out.
predicted devices   with predicted seconds per step from --predicted FILE. By default they are those of one device with
                    its share of the batch, without communication. That is a best case for any network.
published devices   with seconds per step that others published, from --paper gpt3 or --published FILE.
"""
PAYOFF_FILES = """\
Measured, predicted and published times never share a column. FILE is CSV or Parquet with the columns device_kind,
devices, batch_size, seconds_per_step, low, high (its 90 % interval) and basis (measured, predicted or published). For
several workloads it also needs dataset, model or optimizer. A step of a factorization is an epoch without batch_size.

A measured or published FILE with a column steps has one run per row, whose steps to the target are known. Then low and
high are optional, --store, --points and --paper are not needed, and runs of one system are pooled. Optional columns:
steps_low, seconds_before_first_step, seconds_to_target and system (docs/payoff.md explains them).

columns of --csv, a row per curve and kind of device, after the names of the curve:
"""
PAYOFF_TIMES = """
--times: time to target and device-hours, a row per number of devices, with the Pareto front of the two.

columns of --csv with --times, after the names of the curve:
"""
COMPARE = """\
Two stores or releases side by side: two machines, two versions, or our results and published ones. The exit code is 1
if a result of A contradicts a result of B, 2 if they have nothing in common, and 0 otherwise.

  python -m analysis compare results/local results/other
  python -m analysis compare results/local results/other --csv > compared.csv
  python -m analysis compare results/local results/published --metric validation_error --value 0.01

Answers are compared between studies with the same workload, batch size and target. If the plans agree in everything
that decides a result, both tried the same trials. They differ if the censoring intervals of the trials in both are
disjoint. Independent searches differ if the 90 % bands of the median best of k' trials are disjoint, at equal
numbers of trials. Among many such pairs some differ by chance. Critical batch sizes differ if the intervals of their
verdicts are disjoint. Seconds per epoch are judged only on devices of the same kind, and recalls are only shown.
A result that only one place has does not count as a difference.
"""
COMPARE_COLUMNS = """\
columns of --csv, a row for everything that is compared:
"""
EPOCHS = """\
Factorizations: seconds per epoch and recall on every number of cores, one row per study.

  python -m analysis epochs --store results/local
  python -m analysis epochs --store results/local --csv > epochs.csv
  python -m analysis epochs --store results/local --fit
"""
KIND_COLUMNS = """\
columns of --csv, one row per study:
"""
EPOCHS_FIT = f"""
--fit shows how far more cores pay off. A curve is a set of studies that differ only in the number of cores, on devices
of one kind, without emulated ones. The law of seconds T on c cores is

  T = serial + parallel / c + communication (c - 1)

It is fitted to at least three core counts by relative errors. Moving (c - 1) / c of a table into every core cannot be
separated from the other two times, and counts as serial. Intervals allow for communication that grows as log2 c and
for a step beyond half of the cores. If one of these fits much better than the law, or no law fits, the fit reports
that the law misfits.

critical cores is {definitions.CRITICAL_CORES}.
"""
EPOCHS_FIT_COLUMNS = """
columns of --fit --csv, one row per curve:
"""
FIGURES = """\
Draws figures of a store as PNG and SVG.

  python -m analysis figures --list
  python -m analysis figures --store results/local --out figures
  python -m analysis figures --store results/local --out figures --name optimizers
  python -m analysis figures --store shallue --out figures --name shallue2018/figure4
  python -m analysis figures --store results/local --out figures --kind steps --where model=fully_connected*
  python -m analysis figures --store results/local --out figures --kind compare --by model --where optimizer=momentum

Without --name and --kind, it draws all figures that the store has studies for. A figure of a paper is drawn with the
workloads in the store, by the rule of the paper. Missing ones are listed in one line, or one per line with --name.
A kind can be drawn from any studies over batch sizes: --where takes conditions on dataset, model, optimizer,
batch_size, schedule, seed, pruning, stop and source, with * for any text. All conditions of one --where must hold.
Several --where select more studies. steps_to_target, optimizers and summary are also kinds.
"""
REPORT = """\
A store or a release as one page: curves with tooltips, filters and links, workloads with verdicts and regimes,
factorizations, ledger, provenance and licences. It is one file that any browser opens, and it makes no network
requests.

  python -m analysis report --store results/local --out report.html
  python -m analysis report --store results/published --out report.html
  python -m analysis report --store shallue --out report.html --metric validation_error --value 0.01

Workloads without a target, such as those of other sources, use the target of a figure of their paper, or that of
--metric and --value. Otherwise the page shows their best errors. The same studies give a bitwise identical page. It
needs vl-convert-python, which contains the chart library: pip install 'scaling-limits[report]'
"""


def meanings(columns: Mapping[str, str]) -> str:
    """Returns one line for each column, with its name and meaning."""
    width = max(map(len, columns)) + 2
    return "\n".join(f"  {name:{width}}{meaning}" for name, meaning in columns.items()) + "\n"


LAYOUTS = """\
Layouts of one training step on meshes of devices: the costs of each, one row per study. Numbers counted in the
compiled step, predicted ones and measured ones have separate columns. Emulated devices are never timed.

  python -m analysis layouts --store results/local
  python -m analysis layouts --store results/local --csv > layouts.csv
  python -m analysis layouts --published
  python -m analysis layouts --published --anchor R048 --csv > steps.csv
"""
LAYOUTS_PUBLISHED = """
With --published, published training steps are listed next to the seconds that the cost model predicts, one row per
step. Rows that cannot be compared are counted by reason. Predictions cannot rank layouts on GPUs. --anchor ROW scales
all predictions of a chip generation, so that they agree with this row.
"""
LAYOUTS_PUBLISHED_COLUMNS = """
columns of --published:
"""
ALL = """\
Runs epochs, layouts, steps, fit and figures of a store in one process, which imports everything once.

  python -m analysis all --store results/local --out figures

It skips epochs and layouts if the store has no such studies, and steps and fit if it has only such studies.
"""
