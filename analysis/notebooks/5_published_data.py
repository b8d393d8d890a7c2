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
# Others have studied the same questions at scales that a small machine cannot reach. The same commands import their
# results, and the same code analyzes them:
#
# - **points of papers**: numbers read off figures or quoted from text, in `results/papers`.
# - **MLPerf's reference convergence points**: under Apache-2.0, imported into `results/mlperf`.
# - **the archive of Shallue et al. (2018)**: all their trials with all measurements. It does not state a licence, so
#   it is converted on your machine and not redistributed. If `SHALLUE_STORE` names a store with the imported archive,
#   the figures below show it. Otherwise they show a *synthetic* archive in the same format, not real networks.

# %%
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import Markdown

from analysis import releases, text
from analysis.figures import batch_figures, paper_lines, paper_workloads, shallue2018
from analysis.fitting import curve_fits, fit_tables, points_file
from analysis.payoff import answer_tables
from analysis.plotting import picture
from results import store
from results.papers import published_numbers

pd.set_option("display.precision", 3, "display.max_colwidth", None, "display.max_rows", 200)
SCRATCH = tempfile.TemporaryDirectory()

# %% [markdown]
# ## Points of papers
#
# Figure 1 of Shallue et al. shows steps to target against batch size for nine workloads. Its points were read off the
# pictures in the authors' notebook, with an accuracy of about half a percent. If you use these numbers, cite the
# papers:

# %%
points = published_numbers.points("shallue2018")
published_numbers.points().drop_duplicates("source").set_index("source")[["citation", "url"]]

# %% [markdown]
# A fit reads a store or a file of points: `python -m analysis fit --points FILE`. A file does not contain trials, so
# luck cannot be estimated, and all points have equal weights.

# %%
file = Path(SCRATCH.name) / "figure1.csv"
points[["panel", "batch_size", "steps"]].to_csv(file, index=False)
names, points_fits = points_file.of_file(file)
figure1 = answer_tables.of_fits(names, points_fits).set_index("panel")
figure1[["pays up to", "efficient up to"]]

# %% [markdown]
# These answers hold whatever the shape of the curve. If the curves are hyperbolas, their critical batch sizes are:

# %%
figure1[["critical batch size", "s_min", "sharpness", "doubts"]].round({"s_min": 0})

# %% [markdown]
# ## MLPerf's reference convergence points
#
# MLPerf trains reference implementations of its benchmarks to a quality target, with several seeds at several batch
# sizes and hand-set metaparameters. Only the end of each run is published, not its curve. Each trial therefore has one
# measurement, which means *at or before this step*. The metric is `validation_shortfall`, which is 0 at the target.

# %%
mlperf = store.catalogue(releases.mlperf())
print(
    f"{len(mlperf)} studies of {len({one.study.dataset + one.study.model for one in mlperf})} benchmarks, "
    f"{sum(one.ledger.planned for one in mlperf):,} runs, licence {mlperf[0].study.details['licence']}"
)

# %% [markdown]
# Steps to target are still intervals. If the source states the distance between evaluations, the target was reached
# within that distance before the end, which gives the interval. If one study of a curve does not state it, the
# distance of the others is used, with a note.

# %%
reference = curve_fits.of_store(releases.mlperf(), ("validation_shortfall", 0.0))
summary = answer_tables.of_curves(reference)
has_extents = np.array([one.selected.extents is not None for one in reference])
fittable = summary[has_extents]
fittable[[*fit_tables.KEPT, "verdict", "doubts"]]

# %%
one_sided = int(fittable["verdict"].isin(["at_least", "at_most"]).sum())
Markdown(
    f"{len(fittable)} of {len(summary)} curves have enough batch sizes for an answer. {one_sided} of their critical "
    "batch sizes are one-sided. The others are rejected for the reasons below. Reference points were made to check "
    "submissions rather than to find where doubling stops paying off."
)

# %%
summary.loc[~has_extents, ["reason"]]

# %% [markdown]
# A curve with several studies at one batch size is not fitted. They run the same benchmark with different
# metaparameters, and selecting the better one would be a search that did not take place. The pictures show the curves
# with an answer. *At least* means that doubling still pays off at the largest batch size, because references are rarely
# run beyond that. The best of a few seeds with expert metaparameters is not the best of a search, so these answers
# differ in kind from those of the previous notebooks.

# %%
picture.show(batch_figures.steps_to_target([one for one in reference if one.selected.extents]))

# %% [markdown]
# ## The archive of Shallue et al.
#
# Draw eleven figures of the paper from the released archive with `python -m analysis figures --store DIR --out figures
# --name shallue2018`. Without the archive, this notebook generates a synthetic one in the same format: all 454
# studies, with a share of their trials. Its trials are drawn so that workloads of Figure 1 have about the published
# smallest numbers of examples and steps, with the other workloads near those. **The curves in the next pictures are
# therefore put in by hand.** The pictures show that the conversion works, from published files to the paper's figures.

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
    f"**{'from the store in SHALLUE_STORE' if given else 'synthetic'}**."
)

# %% [markdown]
# The importer compares the trials it reads with the published table of studies and lists the studies that differ. The
# totals are:

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
# Diamonds are the published points. By the rule *released*, only the first 100 complete trials of a study count, or
# all if there are fewer, and a trial must be strictly below the target. A synthetic archive has fewer trials, so its
# curves are above the diamonds at some batch sizes.

# %%
studies = paper_workloads.of_store(folder)
picture.show(shallue2018.figure(studies, 1))

# %% [markdown]
# ### Figures 4 and 8: optimizers, and effective learning rates

# %%
picture.show(shallue2018.figure(studies, 4))

# %%
picture.show(shallue2018.figure(studies, 8))

# %% [markdown]
# The figures of the paper are:

# %%
pd.Series(paper_lines.TITLES, name="shows").rename_axis("figure").to_frame()

# %% [markdown]
# ## Side by side
#
# The table lists answers from three sources: measured by this software, read off Figure 1, and MLPerf. They differ in
# data, model, target, search and scale, so they cannot contradict each other. They share the question and the method.
# Curves without a lower end of *pays up to* are left out, and rows are sorted by it. The last column holds if the curve
# is a hyperbola.

# %%
ours = answer_tables.of_curves(curve_fits.of_store(releases.release()))
tables = {"measured here": ours, "MLPerf": summary, "Figure 1 of Shallue et al.": figure1}
for answers in (ours, summary):
    answers.index = answers.index.map(" · ".join)
statements = pd.concat(tables, names=["source", "workload"]).dropna(subset="pays_up_to_low")
statements.sort_values("pays_up_to_low")[list(fit_tables.KEPT)]

# %%
statements.groupby(["source", statements["pays_verdict"].map(text.IN_WORDS)]).size().unstack(fill_value=0)

# %%
SCRATCH.cleanup()

# %% [markdown]
# ## Limits
#
# These results do not contain times. The points of MLPerf and Figure 1 are steps and examples. A step at a large batch
# size may take longer, depending on the hardware.
