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
# The dataset is a record of training runs. A **trial** is one run. A **study** contains all trials of one workload at
# one batch size (or, for factorizations, on one number of cores). A **sweep** contains the studies along an axis. This
# notebook lists the studies, verifies the files, shows the three tables, and traces one answer, the steps that a
# workload needs at batch size 64, back to the rows it comes from.
#
# It reads the release in `results/published`. To read your own store instead, set `SCALING_LIMITS_STORE` to its folder
# before you start the notebook. The same functions read stores and releases.

# %%
import hashlib
import json

import pandas as pd
import polars as pl
from IPython.display import Markdown

from analysis import releases
from analysis.figures import learning_curves
from analysis.plotting import picture
from analysis.trials import steps_to_target
from results import store
from results.catalog import overview, scan
from results.checks import verify
from results.plans import plan_columns, schema
from results.rules import answers
from results.rules.confirmation import SEARCH

pd.set_option("display.precision", 6, "display.max_colwidth", None)
STORE = releases.release()

# %% [markdown]
# ## The studies
#
# The catalogue lists the studies. Each has a plan, which determines its result completely, a ledger of its trials, and
# the files of its tables. Listing the catalogue does not read those files.

# %%
commits = store.catalogue(STORE)
studies = pd.DataFrame(
    [
        {
            "kind": commit.plan["kind"],
            **plan_columns.names(commit.study),
            "measurements": commit.files["measurements"].rows,
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
# No trial is dropped because of its result. Every planned trial is complete, diverged (*infeasible*), stopped for a
# stated reason (*incomplete*) or missing, and the sum is checked for each study. Empty columns are hidden here. A
# search that drops its diverged trials looks better than it is, because those trials are part of its cost.

# %%
ends = list(commits[0].ledger._asdict())
ledger = studies.groupby(["kind", "dataset", "model"])[ends].sum()
adds_up = ledger["planned"] == ledger[ends[1:]].sum(axis=1)
ledger.loc[:, (ledger != 0).any()].assign(adds_up=adds_up)

# %% [markdown]
# ## Are the files intact?
#
# Files are immutable, and the record that lists a file contains its sha256. Each record ends with its own hash.
# `verify` hashes every byte, opens every table, compares it with the plan, recounts the ledger, and reports each fault
# in one line. The command is `python -m results verify --store results/published`.

# %%
findings = verify.examine(STORE, print)
print(*[fault.line for finding in findings for fault in finding.faults], verify.summary(findings), sep="\n")

# %% [markdown]
# Check one file by hand: its hash matches the record, and changing a single bit breaks the match.

# %%
(commit, *_) = [one for one in commits if one.plan.get("batch_size") == 64 and one.plan.get("optimizer") == "momentum"]
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
# `studies` records the request, the machine and the cost. A study that was extended has one row per run.

# %%
study = commit.study
tables = store.read(STORE, commit.name)
tables.studies.T.rename(columns="run {}".format).drop(index=["plan", "package_versions"])

# %% [markdown]
# `trials` has the metaparameters and the ending of each trial. `role` separates the trials of the search from reruns
# of its best trials with fresh seeds (*confirm*).

# %%
tables.trials.groupby(["role", "status"]).size().unstack(fill_value=0)

# %%
tables.trials.drop(columns="study").head()

# %% [markdown]
# `measurements` has all metrics at every evaluation. Every metric is an error: lower is better.

# %%
tables.measurements.drop(columns="study").head()

# %% [markdown]
# All columns are defined in `results/plans/schema.py`. A release includes the definitions as `DICTIONARY.md`.

# %%
dictionary = pd.DataFrame([*schema.TRIALS, *schema.MEASUREMENTS]).drop_duplicates("name")
dictionary[["name", "type", "meaning"]].set_index("name")

# %% [markdown]
# The plan is plain JSON, and the study's name ends with its hash. A different plan is therefore a different study and
# never a new version of an old one. Metaparameters, seeds, initial parameters and data order derive from the plan.

# %%
print(json.dumps(dict(commit.plan), indent=1)[:1400])

# %% [markdown]
# ## From measurements to an answer
#
# The study has a target: a metric and the value it must reach. A trial crosses the target between the last evaluation
# above it and the first one at or below it. The steps in between are not measured, so the answer is an interval:
# *steps to target* are **interval-censored**, written `(steps_low, steps_high]`.
#
# Each thin line in the picture is a trial. The thick line is the best value so far. The first trial crossed the target
# within the shaded strip, after its left end and at its right end at the latest. A cross marks a diverged trial, at
# the top if its value is off the picture.

# %%
(target, *_) = study.targets
picture.show(learning_curves.draw_study(commit, target))

# %% [markdown]
# Orange lines are reruns of the best trial with other seeds. The trial was selected because it was fast *and lucky*.
# Its reruns were not selected. The next two notebooks measure how much of the lead was luck.
#
# Now the same in numbers. First, the intervals of all trials of the search that reached the target, computed from
# rows:

# %%
searched = tables.trials.loc[tables.trials["role"] == SEARCH, "trial"]
rows = tables.measurements[tables.measurements["trial"].isin(searched)]
crossed = answers.of_frame(rows, target)
pd.DataFrame(crossed._asdict()).sort_values(["high", "trial"]).head()

# %% [markdown]
# The answer of the study is the smallest interval. Ties go to the smallest trial number. Four computations must agree:
# the rows in memory (above), a scan of the files, the *envelope*, and the table that `python -m analysis
# steps` prints.
#
# An envelope contains the few rows at which the best value so far improves. They answer any target without reading the
# measurements. Hashes link an envelope to the tables it was made from.

# %%
survey = overview.survey(STORE)
table = steps_to_target.table(survey)
row = table[(table["study"] == commit.name) & (table["target_metric"] == target.metric)].iloc[0]
ways = {
    "rows in memory": crossed.answer(),
    "scan of the files": scan.reached(commit, target).answer(),
    "envelope": survey.answers(target, {commit.name})[commit.name],
    "table of steps": answers.Answer(*(int(row[name]) for name in answers.Answer._fields)),
}
assert len(set(ways.values())) == 1, "all computations give the same answer"
pd.DataFrame(ways.values(), index=list(ways))

# %%
sizes = pd.DataFrame(
    {name: [commit.files[name].rows, commit.files[name].bytes] for name in ("measurements", "envelope")},
    index=["rows", "bytes"],
)
sizes.assign(share=(sizes["envelope"] / sizes["measurements"]).map("{:.1%}".format))

# %% [markdown]
# An envelope also answers targets that were chosen after the study was planned. Trials stop once they have reached all
# targets of their study, so there is little information on *harder* targets. The table of steps warns about them.

# %%
easier = [float(f"{target.value * times:.3g}") for times in (1.0, 1.25, 1.5, 2.0, 3.0)]
by_value = [survey.answers(type(target)(target.metric, value), {commit.name})[commit.name] for value in easier]
pd.DataFrame(by_value, index=pd.Index(easier, name=f"{target.metric} ≤"))

# %% [markdown]
# ## Width of the intervals
#
# Evaluations are spaced by a factor of about 1.1, so answers are known to about 10 %. Evaluations are less frequent if
# they would cost more than a stated share of the work. The table shows the factor between the ends of the intervals of
# all studies that reached their target. At very few steps the spacing is coarser, because steps are integers.

# %%
reached = table.dropna(subset="steps_high")
reached = reached.assign(factor=reached["steps_high"] / reached["steps_low"].clip(lower=1))
reached.groupby(["dataset", "model"])["factor"].quantile([0.1, 0.5, 0.9]).unstack().rename_axis(columns="quantile")

# %%
never = int(table["steps_high"].isna().sum())
Markdown(
    f"{len(reached):,} of {len(table):,} answers are intervals, and {never:,} are open: no trial reached the target "
    "within its budget. An open answer is also a result: *more steps than the budget*. Tables show it as an empty cell."
)

# %% [markdown]
# ## Reading the data without this software
#
# The tables are ordinary Parquet files. A release has one file per table with all studies, which pandas, polars,
# DuckDB and Arrow open in one line. For example, polars finds the lowest validation loss of each data set:

# %%
measured = [c for c in commits if "validation_loss" in c.metrics]
datasets = pl.LazyFrame({"study": [c.name for c in measured], "dataset": [c.study.labels.dataset for c in measured]})
files = sorted({c.files["measurements"].path for c in measured})
finite = pl.col("validation_loss").filter(pl.col("validation_loss").is_finite())
rows = pl.scan_parquet(files, hive_partitioning=False).with_columns(pl.col("study").cast(pl.String))
rows.join(datasets, on="study").group_by("dataset").agg(pl.len().alias("measurements"), finite.min()).collect()

# %% [markdown]
# ## Devices and versions
#
# Results can be compared if their `comparable` versions agree. On one kind of CPU they are then bit-identical,
# regardless of workers, lanes and interruptions. Times depend on the device, which is recorded for every run.

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
# ## Citation and next steps
#
# A release includes a dataset card (`README.md`), the data dictionary, licences, `CITATION.cff` and Croissant
# metadata. The next notebooks cover the three regimes (2), optimizers and learning rates (3), cores (4) and published
# data (5).
