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
# # Published data
#
# Others have measured what this dataset asks, at scales that no small machine reaches. Their results come in by the
# same commands and are answered by the same code:
#
# - **points of papers**, single numbers read off figures or quoted from text, in `results/papers`;
# - **MLPerf's reference convergence points**, under Apache-2.0, imported and shipped in `results/mlperf`;
# - **the archive of Shallue et al. (2018)**, all their trials with all measurements. It states no licence, so that it
#   is converted on your machine and never passed on. If `SHALLUE_STORE` names a store it was imported to, the figures
#   below are of it. Otherwise they are of a *synthetic* archive in its format, and say nothing about any network.

# %%
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from IPython.display import Markdown

from analysis import contradictions, releases, workload_studies
from analysis.figures import batch_figures, definitions, shallue2018
from analysis.fitting import curve_fits, fits
from analysis.plotting import picture
from results import store
from results.papers import published_numbers

pd.set_option("display.precision", 3, "display.max_colwidth", None, "display.max_rows", 200)
SCRATCH = tempfile.TemporaryDirectory()

# %% [markdown]
# ## Points of papers
#
# Figure 1 of Shallue et al. shows steps to target against batch size for nine workloads. Its points were read off the
# pictures in the authors' notebook and are good to about half a percent. Each of these papers has to be cited for its
# numbers:

# %%
points = published_numbers.points("shallue2018")
published_numbers.points().drop_duplicates("source").set_index("source")[["citation", "url"]]

# %% [markdown]
# The fit takes a file of points as well as a store: `python -m analysis fit --points FILE`. Points come without their
# trials, so that it is not known how much luck is in each, and all weigh alike.

# %%
file = Path(SCRATCH.name) / "figure1.csv"
points[["panel", "batch_size", "steps"]].to_csv(file, index=False)
names, points_fits = fits.of_file(file)
figure1 = names.assign(**{"critical batch size": [fits.critical_in_words(one) for one in points_fits]})
figure1.join(fits.table(names, points_fits)[["s_min", "sharpness", "doubts"]].round({"s_min": 0})).set_index("panel")

# %% [markdown]
# ## MLPerf's reference convergence points
#
# MLPerf trains each of its benchmarks with a reference implementation until a quality target is met, several seeds at
# each of several batch sizes, with metaparameters set by hand. What is published of a run is where it ended, and not
# the curve before. So there is one measurement a trial, and it says *at or before this*: the metric is
# `validation_shortfall`, 0 once the target is met.

# %%
mlperf = store.catalogue(releases.mlperf())
print(
    f"{len(mlperf)} studies of {len({one.study.dataset + one.study.model for one in mlperf})} benchmarks, "
    f"{sum(one.ledger.planned for one in mlperf):,} runs, licence {mlperf[0].study.details['licence']}"
)

# %% [markdown]
# Steps to target are still intervals. Where the source tells how far evaluations were apart, the target was met
# within that distance before the end; that bracket is the interval. Where a curve has a study that does not tell it,
# the others' is taken, and the notes say so.

# %%
reference = curve_fits.of_store(releases.mlperf(), ("validation_shortfall", 0.0))
naming = ["dataset", "model", "optimizer"]
summary = pd.DataFrame(
    {
        **{name: [getattr(one.curve, name) for one in reference] for name in naming},
        "batch sizes": [len(one.curve.batch_sizes) for one in reference],
        "critical batch size": [fits.critical_in_words(one.selected) for one in reference],
        "verdict": [one.selected.verdict for one in reference],
        "doubts": [", ".join(fits.doubts(one.selected)) for one in reference],
    }
)
fittable = summary[summary["verdict"] != "not_identified"]
fittable.set_index(naming)

# %%
refused = summary[summary["verdict"] == "not_identified"].drop(columns=["critical batch size", "verdict", "doubts"])
Markdown(
    f"{len(fittable)} of {len(summary)} curves get a statement, and of these "
    f"{int((fittable['verdict'] != 'identified').sum())} are one-sided. The others are refused, for the reasons below. "
    "Reference points were made to check submissions, and not to find a knee."
)

# %%
refused.assign(reason=[reference[i].selected.reason for i in refused.index]).set_index(naming)

# %% [markdown]
# A curve that several studies share at one batch size is not fitted: they are of the same benchmark with other
# metaparameters, and to take the better of them would be a search that nobody made. The curves that do get a
# statement: *at least* is said where no plateau is in sight, as nobody runs a reference far beyond the batch sizes
# that pay off. The best of a few seeds with metaparameters chosen by experts is not the best of a search, so these
# critical batch sizes are of another kind than those of the notebooks before.

# %%
picture.show(batch_figures.steps_to_target([reference[i] for i in fittable.index]))

# %% [markdown]
# ## The archive of Shallue et al.
#
# Eleven figures of the paper can be drawn by name from the released archive: `python -m analysis figures --store DIR
# --out figures --name shallue2018`. Without the archive at hand one is made up in its format: all 454 studies, with a
# share of their trials. Its trials are drawn so that every workload of Figure 1 has about the fewest examples and
# steps that were published, and the others lie near those. **What the next pictures show of curves is therefore put
# in by hand.** What they do show is that the whole path works, from files in the published format to the figures of
# the paper.

# %%
given = os.environ.get("SHALLUE_STORE")
archive, imported = Path(SCRATCH.name) / "archive.tar", Path(SCRATCH.name) / "imported"
make = [sys.executable, "benchmarks/archives.py", archive, "--plausible", "--trials", "0.03", "--rows", "30"]
convert = [sys.executable, "-m", "results", "import", "shallue2018", archive, "--store", imported, "--any-checksum"]
for command in [] if given else [make, convert]:
    subprocess.run(command, cwd=releases.ROOT, check=True, capture_output=True)
folder = Path(given).expanduser() if given else imported
commits = store.catalogue(folder)
Markdown(
    f"{len(commits)} studies, {sum(one.ledger.planned for one in commits):,} trials: "
    f"**{'of the store that SHALLUE_STORE names' if given else 'synthetic'}**."
)

# %% [markdown]
# The importer counts every trial it reads against the published table of studies, and names the studies that do not
# agree. In sum:

# %%
ended = pd.DataFrame([one.ledger._asdict() for one in commits]).sum()
counted = pd.read_csv(published_numbers.FOLDER / "shallue2018_studies.csv")
kinds = ["complete", "incomplete", "infeasible"]
pd.DataFrame(
    {
        "published": counted[[f"{kind}_trials" for kind in kinds]].sum().to_numpy(),
        "imported": [ended["complete"], ended["unstated"], ended["infeasible"]],
    },
    index=kinds,
)

# %% [markdown]
# ### Figure 1: steps to target
#
# Diamonds are the published points. Only the first 100 complete trials of a study count, or all if there are fewer,
# and a trial has to be strictly below the target: the rule *released*. Of a synthetic archive with a share of the
# trials, curves lie above the diamonds where the best of fewer trials is worse.

# %%
studies = shallue2018.name_workloads(workload_studies.of_store(folder))
picture.show(shallue2018.figure(studies, 1))

# %% [markdown]
# ### Figures 4 and 8: optimizers, and effective learning rates

# %%
picture.show(shallue2018.figure(studies, 4))

# %%
picture.show(shallue2018.figure(studies, 8))

# %% [markdown]
# All of them, and what each shows:

# %%
pd.Series(definitions.TITLES, name="shows").rename_axis("figure").to_frame()

# %% [markdown]
# ## Side by side
#
# Critical batch sizes from all three sources that may be shown here: measured by this software, read off Figure 1,
# and MLPerf's. They differ in data, model, target, search and scale, so that none of them contradicts another; what
# they have in common is the question and the procedure. Only statements are listed, in the order of their lower ends.

# %%
ours = curve_fits.of_store(releases.release())
lines = [
    *(("measured here", " · ".join(one.curve.workload[:3]), one.selected) for one in ours),
    *(("MLPerf", " · ".join(one.curve.workload[:3]), one.selected) for one in reference),
    *(("Figure 1 of Shallue et al.", panel, one) for panel, one in zip(names["panel"], points_fits, strict=True)),
]
statements = pd.DataFrame(
    [
        (source, workload, fits.critical_in_words(one), one.verdict, contradictions.stated_interval(one).low)
        for source, workload, one in lines
    ],
    columns=["source", "workload", "critical batch size", "verdict", "low"],
)
statements = statements[statements["verdict"] != "not_identified"].sort_values("low", ignore_index=True)
statements.drop(columns=["low", "verdict"])

# %%
statements.groupby(["source", "verdict"]).size().unstack(fill_value=0)

# %%
SCRATCH.cleanup()

# %% [markdown]
# ## What this does not show
#
# Nothing here says how long anything takes. MLPerf's points and those of Figure 1 are steps and examples; a step at a
# large batch size may take longer, and how much longer is a question to the hardware that they ran on.
