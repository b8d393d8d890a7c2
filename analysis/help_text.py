"""Text of --help of every command, but for the meanings of columns, which are in ``columns``."""

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

steps and fit are about studies of batch sizes, epochs about factorizations on several cores, payoff, figures and report
about all.
DIR of --store is the folder of a store or of a release, or a URL that fsspec knows, such as gs://bucket/folder.
"""
STEPS = """\
Steps to target: how many steps the best trial of every study needed to reach its target.

  python -m analysis steps --store results/local
  python -m analysis steps --store results/local --csv > steps.csv
  python -m analysis steps --store results/local --metric test_error --value 0.05
  python -m analysis steps --store results/published --metric validation_error --value 0.01 --rule released

--rule minimum    a trial reached a target once it is at or below it; all trials count, however they ended
--rule released   the analysis published with Shallue et al. (2018): strictly below, and of each study only the first
                  trials that are COMPLETE count, by number: --first 100 of them, or all if there are fewer
--rule median     what a search of so many trials needs half of the time, with a 90 % band, and two verdicts: were
                  enough trials sampled, and is the optimum at an edge of its search space; see below

columns of --csv, one row per study and target, by the rules minimum and released:
"""
MEDIANS = """
--rule median: the minimum over trials falls the more of them are run, and by luck. The median best of k' does not:
it is what half of all random searches of k' trials reach their target in. It comes from the k trials of each study:

  python -m analysis steps --store results/local --rule median
  python -m analysis steps --store results/local --rule median --k 100 --best-of 20 --csv > medians.csv

--k N        the first N trials of every study count; without it, as many of every study of a curve as its study with
             the fewest has. A study with fewer has no answer.
--best-of N  k', the trials of one search; without it the most for which the band of k trials has a lower end, .23 k

Trials count if they diverged, used up their budget or reached the target. So do trials that a time limit stopped, or
that ended for an unrecorded reason, as they may have been stopped for doing badly: they had not reached the target, and
every interval allows for any later outcome. Left out are trials that were lost, failed, or never got to an evaluation.
The band is distribution-free, by order statistics of the k trials, diverged ones at infinity: each end alone is a
95 % bound, as are those of success, by Clopper and Pearson. Both take trials for independent. Those of a scrambled
Halton search are more even than that, so bands are wider than necessary, and medians are those of random search.

Sampled enough? No if the best of half of the k trials takes more than 10 % more steps than the best of all, on the
geometric mean over all halves (their median is of the best two trials alone). Yes if it does not, and the bands of the
median best of k/8.6 and of k/4.3 also lie within 10 % of each other. Otherwise unclear.
At an edge: the best tenth of the trials, three at least, crowd at an end of a range, in its own scale (LOG, ...): half
of them in the outer tenth of it, or, with a ?, closer to it than by chance and not off it. Below 30 trials the
answer is never no, as an optimum at the edge is often missed by so few.

Losing trials of a pruned study are cut short, so only the rule minimum answers for it; run it with pruning=off.

columns of --csv by the rule median, after those up to target_value:
"""
FIT = """\
The critical batch size of every curve: up to where a larger batch keeps saving steps, with a 90 % interval.

  python -m analysis fit --store results/local
  python -m analysis fit --points steps.csv --csv
  python -m analysis fit --store results/local --checks
  python -m analysis fit --store results/local --best-of 8,16,32,64

A curve is the studies that differ in batch size alone. It has two answers where the best trials were run again: as
selected, each point the best of all trials, which is also the luckiest; and as confirmed, each point the median of
repeats on fresh seeds, by which nothing was chosen. The model of steps S at batch size B is

  ln S = ln s_min + ln(1 + (critical_batch_size / B)^sharpness) / sharpness;

the interval is a profile over both parameters, so it does not rely on the knee being a hyperbola.

--points takes a CSV file with batch_size and either steps, or steps_low and steps_high; rows that agree in all
other columns make a curve. What `steps --csv` writes is such a file.

--best-of fits the best of the first K trials of each study: how the critical batch size moves with K. Losing trials
of pruned studies were cut short, so that these answer only for their own number of trials; a curve has no row for
any other K.

--checks lists what each fit assumes, with the number that was seen and whether it bears that out: pass, doubt or
cannot tell. With --csv it writes a row for each: the curve, then assumption, seen and outcome.

columns of --csv, after those that name the curve:
"""
FIT_LIMITS = """
The interval has a model error in it: up to 0.35 octaves, and less where the shape can be judged on both sides of the
knee or the data are exact. Four things change the verdict where the data show them, and it says so: a slope other than
-1 at small batch sizes, one other than 0 at large ones, a knee that is sharper on one side, and a search that gets
harder with batch size. No interval is stated then, but a lower bound where there is one. What the data do not show is
not in the interval: a slope of -0.85, seen in half of all curves with little luck, moves it by 0.75 octaves (`coverage`
says how often each is seen). Look at the figures beside the numbers.
"""
COVERAGE = """\
How often the statements of `fit` are true, on simulated searches whose critical batch sizes are known. Six shapes of
curve, 6, 9 or 13 batch sizes, little luck or much, two grids of evaluations; knees in the middle, near an end, beyond,
absent. Then curves and searches that are not as the fit assumes, at 11 batch sizes, and how often the checks name the
violated assumption.

  python -m analysis coverage
  python -m analysis coverage --datasets 20 --seed 1 --csv > coverage.csv
  python -m analysis coverage --of cores --csv > coverage_of_cores.csv

columns of --csv, one row per scenario:
"""
COVERAGE_OF_CORES = """
The second table is of what `epochs --fit` says of simulated seconds per epoch: laws that are fitted, and others that
are not, such as communication that grows as log2 c, or a second memory beyond half of the cores; three sets of core
counts, three spreads of epochs. Without --of both are printed; --csv writes one, that of fits by default.

columns of --of cores --csv, one row per scenario:
"""
PAYOFF = """\
Pay-off: up to how many devices the next doubling of their number still pays off, and what it costs.

  python -m analysis payoff --store results/published
  python -m analysis payoff --store results/published --gain 50 --times --price 2.5
  python -m analysis payoff --store results/mlperf --metric validation_shortfall --value 0
  python -m analysis payoff --paper shallue2018
  python -m analysis payoff --points points.csv --predicted step_times.csv

Time to target is steps to target (the curve that `fit` fits) times seconds per step. A doubling pays off if it makes
training faster by --gain or more; the answer is the number of devices that the last doubling leads to which does, as
all before it do. Its interval carries both uncertainties, of the curve and of the seconds per step. Nothing is said
beyond the batch sizes and the numbers of devices that there are: an answer on one side is all that they may support.
Every number of devices takes the batch size that is there soonest, of those of the curve between the ones that were
timed: ln seconds are interpolated over ln batch size. Where neighbours are more than a factor of 4 apart only bounds
hold, which a note names. An answer ends at the first number of devices whose double has no times.

batch size          devices and batch doubled together at the same seconds per step: the curve alone, no hardware
measured devices    by measured seconds per step: those of the store (emulated devices, and steps of several trials at
                    once, are left out), or of --measured FILE
predicted devices   by predicted ones: of --predicted FILE, or else those of one device with its share of the batch,
                    without communication. That is a best case: no network makes training on so many devices faster.

Measured and predicted times are never in one column. FILE is CSV or Parquet with the columns device_kind, devices,
batch_size, seconds_per_step, low, high (its 90 % interval) and basis (measured or predicted), and where there are
several workloads dataset, model or optimizer. A step of a factorization is an epoch, without a batch_size.

columns of --csv, a row per curve and kind of device, after the names of the curve:
"""
PAYOFF_TIMES = """
--times: time to target and device-hours, a row per number of devices, with the Pareto front of the two.

columns of --csv, likewise:
"""
COMPARE = """\
Two stores or releases side by side: two machines, two versions, ours and what others published. The exit code is 1 if
anything that A says and anything that B says cannot both be true, else 0; 2 if they have nothing in common.

  python -m analysis compare results/local results/other
  python -m analysis compare results/local results/other --csv > compared.csv
  python -m analysis compare results/local results/published --metric validation_error --value 0.01

Answers are of studies that agree in workload, batch size and target. Where both tried the same trials, because all
that decides a result is the same in their plans, they differ if their censoring intervals are disjoint, over the trials
that both have. Independent searches differ if the 90 % bands of the median best of k' trials are disjoint, at equal
numbers of trials; of many such pairs some differ by chance. Critical batch sizes differ if the intervals that their
verdicts state are disjoint. Seconds per epoch are judged on devices of one kind alone, and recalls are only shown.
A result that only one place has does not count as a difference.

columns of --csv, a row for everything that is compared:
"""
EPOCHS = """\
Factorizations: seconds per epoch and recall on every number of cores, one row per study.

  python -m analysis epochs --store results/local
  python -m analysis epochs --store results/local --csv > epochs.csv
  python -m analysis epochs --store results/local --fit

columns of --csv, one row per study:
"""
EPOCHS_FIT = """
--fit asks of every curve how far more cores pay off. A curve is the studies that differ in the number of cores
alone, on devices of one kind, each of them a core of its own: emulated ones are left out. The law of seconds T on
c cores is T = serial + parallel / c + communication (c - 1), fitted by relative errors to three counts or more; what
moves (c - 1) / c of a table into every core cannot be told from the other two times, and is counted in serial.
Intervals allow for communication that grows as log2 c and for a step beyond half of the cores; where one of them, or
none, fits much better than the law does, the fit says that the law misfits.

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

Without --name and --kind, all figures by name that the store has studies for. A figure of a paper is drawn as far as
its workloads are in the store, by the rule of the paper; what is missing is named: all of it in one line, or, with
--name, a line each. A kind can be drawn from any studies over batch sizes: --where takes conditions on dataset,
model, optimizer, batch_size, schedule, seed, pruning, stop and source, with * for any text. All conditions of one
--where must hold; several --where ask for more studies. steps_to_target, optimizers, summary and best_of are kinds,
too.
"""
REPORT = """\
All of a store or a release as one page: curves to hover over, filter and link to, workloads with verdicts and
regimes, factorizations, ledger, provenance and licences. It is one file that any browser opens, and makes no
network requests.

  python -m analysis report --store results/local --out report.html
  python -m analysis report --store results/published --out report.html
  python -m analysis report --store shallue --out report.html --metric validation_error --value 0.01

Workloads that name no target, as those of other sources, have curves where a figure of a paper has a target for them,
or where --metric and --value give one; of others the best errors are shown. The same studies give a
bitwise identical page. It needs vl-convert-python, which brings the charts as JavaScript:
pip install 'scaling-limits[report]'
"""


def meanings(columns: dict[str, str]) -> str:
    """One line for every column: its name, and what it means."""
    width = max(map(len, columns)) + 2
    return "\n".join(f"  {name:{width}}{meaning}" for name, meaning in columns.items()) + "\n"


LAYOUTS = """\
Layouts of one step of training on meshes of devices: what each costs, one row per study. What was counted in the
compiled step, what is predicted and what was measured are different columns; emulated devices are never timed.

  python -m analysis layouts --store results/local
  python -m analysis layouts --store results/local --csv > layouts.csv

columns of --csv, one row per study:
"""
ALL = """\
What epochs, layouts, steps, fit and figures tell of a store, one after the other: one process, which imports once.

  python -m analysis all --store results/local --out figures

epochs and layouts are left out where the store has none, steps and fit where it has nothing else.
"""
