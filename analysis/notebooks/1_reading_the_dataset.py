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
# # Reading the dataset
#
# The dataset is a record of training runs. A **trial** is one run, a **study** all trials of one workload at one
# batch size (or, of a factorization, on one number of cores), and a **sweep** the studies along an axis. This
# notebook goes from files to answers and back: what is there, whether it is whole, what the three tables say, and how
# a single statement such as "this workload needs so many steps at batch size 64" comes from rows that you can look
# at.
#
# It reads the release that comes with the repository, in `results/published`. To look at a store of your own instead,
# set `SCALING_LIMITS_STORE` to its folder before the notebook is started: stores and releases are read by the same
# functions.

# %%
import hashlib
import json

import pandas as pd
import polars as pl
from IPython.display import Markdown

from analysis import releases
from analysis.figures import learning_curves
from analysis.plotting import picture
from analysis.trials import steps
from results import store
from results.catalog import overview, scan
from results.checks import verify
from results.plans import schema
from results.rules import answers
from results.rules.confirmation import SEARCH

pd.set_option("display.precision", 6, "display.max_colwidth", None)
STORE = releases.release()

# %% [markdown]
# ## What is there
#
# The catalogue lists the studies. Each comes with its plan, which is all that decides its result, with a ledger of
# its trials, and with the files that hold its tables. Nothing has been read of those files yet.

# %%
commits = store.catalogue(STORE)
studies = pd.DataFrame(
    [
        {
            "kind": commit.plan["kind"],
            "dataset": commit.study.dataset,
            "model": commit.study.model_label,
            "optimizer": commit.study.optimizer,
            "batch_size": commit.study.batch_size,
            "measurements": commit.files["measurements"].rows,
            "bytes": sum(file.bytes for file in commit.files.values()),
            **commit.ledger._asdict(),
        }
        for commit in commits
    ]
)
workloads = studies.groupby(["kind", "dataset", "model", "optimizer"])
workloads.agg(
    studies=("batch_size", "size"),
    largest_batch=("batch_size", "max"),
    trials=("planned", "sum"),
    measurements=("measurements", "sum"),
).astype("Int64")

# %% [markdown]
# ## The ledger
#
# No trial is left out for how it went. Every one that was planned is complete, or diverged (*infeasible*), or stopped
# for a stated reason (*incomplete*), or it is missing; and the sum is checked, study by study. Columns without any
# trial are left out here. A search that drops its diverged trials flatters itself: they are what it costs to look
# there.

# %%
ends = list(commits[0].ledger._asdict())
ledger = studies.groupby(["kind", "dataset", "model"])[ends].sum()
adds_up = ledger["planned"] == ledger[ends[1:]].sum(axis=1)
ledger.loc[:, (ledger != 0).any()].assign(adds_up=adds_up)

# %% [markdown]
# ## Is it what was written?
#
# Every file is immutable, and its sha256 stands in the record that lists it. The records in turn end in their own
# hash. `verify` hashes every byte, opens every table, compares it with the plan, counts the ledger again, and says
# what is wrong, a line for each fault. It is the same as `python -m results verify --store results/published`.

# %%
findings = verify.examine(STORE, print)
print(*[fault.line for finding in findings for fault in finding.faults], verify.summary(findings), sep="\n")

# %% [markdown]
# The check by hand, of one file: its hash is the one on record, and with a single bit changed it is not.

# %%
(commit, *_) = [one for one in commits if one.study.batch_size == 64 and one.study.optimizer == "momentum"]
file = commit.files["measurements"]
content = file.path.read_bytes()
changed = bytes([content[0] ^ 1]) + content[1:]
pd.Series(
    {
        "on record": file.sha256,
        "of the file": hashlib.sha256(content).hexdigest(),
        "with one bit changed": hashlib.sha256(changed).hexdigest(),
    },
    name=f"sha256 of {file.path.name}, which has the measurements of {commit.name}",
).to_frame()

# %% [markdown]
# ## One study, three tables
#
# `studies` says what was asked for, where it ran and what it took; a study that grew has a row for every run.

# %%
study = commit.study
tables = store.read(STORE, commit.name)
tables.studies.T.rename(columns="run {}".format).drop(index=["plan", "package_versions"])

# %% [markdown]
# `trials` has the metaparameters of each trial and how it ended. `role` tells the trials of the search from those
# that ran its best trial again on fresh seeds (*confirm*).

# %%
tables.trials.groupby(["role", "status"]).size().unstack(fill_value=0)

# %%
tables.trials.drop(columns="study").head()

# %% [markdown]
# `measurements` has all metrics at every evaluation. Every metric is an error: lower is better.

# %%
tables.measurements.drop(columns="study").head()

# %% [markdown]
# What a column means is said in one place, `results/plans/schema.py`; a release carries it along as `DICTIONARY.md`.

# %%
dictionary = pd.DataFrame([*schema.TRIALS, *schema.MEASUREMENTS]).drop_duplicates("name")
dictionary[["name", "type", "meaning"]].set_index("name")

# %% [markdown]
# The plan is plain JSON, and its hash is the end of the study's name: a different plan is a different study, never a
# new version of the same. Metaparameters, seeds, initial parameters and the order of the data all derive from it.

# %%
print(json.dumps(dict(commit.plan), indent=1)[:1400])

# %% [markdown]
# ## From measurements to an answer
#
# The study has a target: a metric and the value it has to come down to. A trial crosses it somewhere between the last
# evaluation above the target and the first one at or below it. Nothing is known of the steps in between, so the
# answer is an interval: *steps to target* are **interval-censored**, and an answer reads `(steps_low, steps_high]`.
#
# In the picture each thin line is a trial. The thick one is the best that any of them had measured so far. The shaded
# strip is the interval in which the first trial crossed: after its left end, and at its right end at the latest. A
# cross stands where a trial diverged, at the top of the picture if it had left that.

# %%
(target, *_) = study.targets
picture.show(learning_curves.draw_study(commit, target))

# %% [markdown]
# Orange lines are the same best trial, run again with other seeds. It was chosen because it was quick *and lucky*;
# its repeats were not chosen for anything. How much of its lead was luck is asked in the next two notebooks.
#
# Now the same in numbers. First the interval of every trial of the search that reached the target, from its rows
# alone:

# %%
searched = tables.trials.loc[tables.trials["role"] == SEARCH, "trial"]
rows = tables.measurements[tables.measurements["trial"].isin(searched)]
crossed = answers.intervals(rows, target)
crossed.sort_values(["steps_high", "trial"]).head()

# %% [markdown]
# The answer of the study is the least of them; of equals the trial with the smallest number. There are four ways to
# it from here, and they must agree: the rows in memory (above), a streaming scan of the files, the *envelope*, and
# the table that `python -m analysis steps` prints.
#
# An envelope holds the few rows at which the best so far improves. From them any target can be answered without
# opening the measurements, and it is bound by hashes to the tables it was made from.

# %%
survey = overview.survey(STORE)
table = steps.table(survey)
row = table[(table["study"] == commit.name) & (table["target_metric"] == target.metric)].iloc[0]
ways = {
    "rows in memory": answers.best(crossed)[commit.name],
    "scan of the files": answers.best(scan.intervals([commit], target))[commit.name],
    "envelope": survey.answers(target, {commit.name})[commit.name],
    "table of steps": answers.Answer(*(int(row[name]) for name in answers.Answer._fields)),
}
assert len(set(ways.values())) == 1, "an answer does not depend on the way to it"
pd.DataFrame(ways.values(), index=list(ways))

# %%
sizes = pd.DataFrame(
    {name: [commit.files[name].rows, commit.files[name].bytes] for name in ("measurements", "envelope")},
    index=["rows", "bytes"],
)
sizes.assign(share=(sizes["envelope"] / sizes["measurements"]).map("{:.1%}".format))

# %% [markdown]
# An envelope answers targets that nobody thought of when the study was planned, as far as its trials went. Trials
# stop once they have reached all targets of their study, so of a *harder* target little can be said, and the table of
# steps warns of it.

# %%
easier = [float(f"{target.value * times:.3g}") for times in (1.0, 1.25, 1.5, 2.0, 3.0)]
by_value = {value: survey.answers(type(target)(target.metric, value), {commit.name}) for value in easier}
pd.DataFrame(
    [each.get(commit.name, (None,) * 3) for each in by_value.values()],
    columns=answers.Answer._fields,
    index=pd.Index(easier, name=f"{target.metric} ≤"),
).astype("Int64")

# %% [markdown]
# ## What the interval is worth
#
# Evaluations come at steps that grow by a tenth, so an answer is known to about a tenth, wherever it lies; and they
# are rarer where they would otherwise cost more than a stated share of the work. Here is how wide intervals really
# are: the factor between their ends, over all studies that reached their target. At very few steps the grid is coarse
# in ratio, because steps are whole numbers.

# %%
reached = table.dropna(subset="steps_high")
reached = reached.assign(factor=reached["steps_high"] / reached["steps_low"].clip(lower=1))
reached.groupby(["dataset", "model"])["factor"].quantile([0.1, 0.5, 0.9]).unstack().rename_axis(columns="quantile")

# %%
never = int(table["steps_high"].isna().sum())
Markdown(
    f"Of {len(table):,} answers {len(reached):,} are intervals, and {never:,} are open: no trial reached the target "
    "within its budget. An open answer is a result, too: *more than so many steps*. It is in every table, as an empty "
    "cell."
)

# %% [markdown]
# ## The data without this software
#
# The tables are ordinary Parquet files. A release has one for each table, with every column of every study, which
# pandas, polars, DuckDB or Arrow open in a line without any of the code above. One query with polars over all
# measurements, for the lowest value that each data set's trials ever came to:

# %%
measured = {c.study.dataset: [] for c in commits if "validation_loss" in c.metrics}
measured = {name: [c for c in commits if c.study.dataset == name] for name in measured}
pl.concat(
    pl.scan_parquet(sorted({c.files["measurements"].path for c in own}), hive_partitioning=False)
    .filter(pl.col("study").cast(pl.String).is_in([c.name for c in own]))
    .select(
        pl.lit(name).alias("dataset"),
        pl.len().alias("measurements"),
        pl.col("validation_loss").filter(pl.col("validation_loss").is_finite()).min().alias("lowest validation loss"),
    )
    .collect()
    for name, own in measured.items()
)

# %% [markdown]
# ## Where it was measured
#
# Results are comparable where their `comparable` version agrees. On one kind of CPU they are then the same to the
# bit, however many workers or lanes there were, and however often they were interrupted. Times are another matter:
# they belong to a device, which every run names.

# %%
runs = store.read(STORE, tables=("studies",)).studies
runs = runs.join(pd.json_normalize(runs["plan"].map(json.loads).tolist())[["comparable"]])
runs.groupby(["comparable", "device_kind", "code_version", "python_version"]).agg(
    studies=("study", "nunique"),
    first=("started_at", "min"),
    last=("started_at", "max"),
    seconds=("run_seconds", "sum"),
)

# %% [markdown]
# ## To cite, and what comes next
#
# A release brings a dataset card (`README.md`), the data dictionary, licences, `CITATION.cff` and Croissant metadata.
# The next notebooks ask the questions: the three regimes (2), optimizers and learning rates (3), cores (4), and what
# others published (5).
