"""The human-readable documents of a release: README.md, DICTIONARY.md, LICENCES.md and CITATION.cff."""

import json
from collections.abc import Iterable, Sequence

from results.catalog import contents, croissant, licences
from results.catalog.contents import Contents
from results.grouping import grouped
from results.plans.plan_columns import OWN
from results.plans.study import METRIC_KINDS
from results.rules import ledger

TITLE = "scaling-limits: scaling studies, every trial and every measurement"
AUTHORS = "The scaling-limits authors"

_README = """\
# {title}

How far does adding parallelism keep paying off? This release holds {studies:,} studies with {trials:,} trials and
{measurements:,} measurements. A *study* is the trials of one workload (data set, model, optimizer) at one batch size,
with metaparameters tuned for that batch size. A *trial* is one training run. A *measurement* is its metrics at one
step.

{ledgers}

In every row, planned = complete + infeasible + incomplete + missing.
An INFEASIBLE trial diverged{refused}. It is a result, not a missing value.
The `trials` table gives the reason for every INCOMPLETE trial.

{datasets}

## Files

- `studies.parquet`: one row is {about[studies]}.
- `trials.parquet`: one row is {about[trials]}.
- `measurements.parquet`: one row is {about[measurements]}. Each study is a row group.
{points}- `envelopes.arrow`: a summary from which scaling-limits answers any target without reading the measurements.
- `DICTIONARY.md`: every column with its type, unit and meaning.
- `LICENCES.md`, `CITATION.cff`: the licences, and how to cite the data.
- `manifest.json`: every study with its plan, its ledger, and its files with sha256.
- `croissant.json`: a machine-readable description in MLCommons's Croissant format.
- `SHA256SUMS`: the sha256 of every file. The last line is the sha256 of the lines before it.

## Reading

Every table has all columns, and a column that does not apply to a study is null. Any Parquet reader opens a table in
one line, from this folder:

    datasets.load_dataset(".", "measurements")["train"]                      # Hugging Face
    list(mlcroissant.Dataset("croissant.json").records("measurements"))      # any reader of Croissant
    duckdb.sql("from '{all_measurements}'")
    polars.read_parquet("{all_measurements}")
    pandas.read_parquet("{all_measurements}")
    {r_line:72} # R

mlcroissant needs the extra `parquet`. It returns texts as bytes, prefixes names with the table (`measurements/step`),
and reads about a thousand records per second, so start with `studies`. chDB also accepts
`SELECT * FROM '{all_measurements}'`, and DataFusion accepts it after `enable_url_table()`.

Join measurements to trials on `study` and `trial`, and trials to studies on `study` and `run`. The number of
examples seen is `step * batch_size`. Compute it in 64 bits.

scaling-limits, the software that wrote this release, reads it like a store:

    from pathlib import Path
    from results import store
    studies, trials, measurements = store.read(Path("."))      # pandas
    # python -m analysis steps --store .                       # steps to target of every study

## Terms of use

{usage}

`CITATION.cff` lists whom to credit, and `LICENCES.md` lists the licence of every row. The data contain no measurements
of people.

{about_points}## Before drawing conclusions

- Null means not measured, or not applicable to the study. NaN and infinity are measured values, from the last
  evaluation of INFEASIBLE trials. They never count as at or below a target. Pandas shows null as NaN unless you pass
  `dtype_backend="pyarrow"`.
- Every metric is an error: lower is better. Steps to target is the first measured step at or below the target. The
  true step lies between the previous evaluation and that one.
- Metrics measured by this software are float32. Published metrics are float64, as in their source. Compare with a
  target in the column's own type: as a float32, 0.12 is less than 0.12.
- If `pruning` is `exact`, a trial was stopped once it could no longer be the first to reach a target. The answers equal
  those of full curves, but the curves of stopped trials are cut short.
- Trials with `role` `confirm` repeat the best trials of their study with new seeds: trial k million + i is the k-th
  repeat of trial i. They are not part of the search, so exclude them when you take its minimum. If several trials were
  repeated, the first half of the repeats selected one of them. Only its remaining repeats are unbiased.
- If a plan has `stop` set to `budget`, trials continued past their targets, so their curves also answer harder targets.
- If `emulated` is true, there were more devices than physical cores, and times do not measure speed.
- `seconds_per_epoch` is a mean over all trials and steps of a run, both in `studies` and in `points`.
  `median_epoch_seconds` of a factorization is the median over the epochs of the selected trial.
{layouts}- Do not put results whose plans differ in `comparable` on one curve.

## Checking the files

    sha256sum -c SHA256SUMS
    python -m results verify --store .
"""

_LAYOUTS = """\
- Studies of kind `layout` run steps of a Transformer on a mesh of devices. The data set `counting` is numbers in
  order. The result is the cost of a step. A run is too short to draw conclusions about training. Rejected layouts are
  INFEASIBLE.
"""

_ABOUT_POINTS = """\
## Points and curves

A row of `points` is a study and a target. Rows with the same `curve` belong to one curve over batch sizes, or over
cores for factorizations. All rows of a curve over batch sizes have the same fit.

{shared}Factorizations differ in `solver`, `dim`, `table_dtype`, `solver_dtype` and `dataset_options`, and layouts in
`mesh`, `layout` and `engine`. Imported studies at the same place on a curve differ in `records`.

`verdict` is `identified` (`critical_batch_size`, between `critical_low` and `critical_high`), `at_least`
(`critical_low` or more), `at_most` (`critical_high` or less) or `not_identified` (no bound is known). `doubts` lists
assumptions of the fit that the data contradict. Treat such an estimate with caution.

"""

# Only for studies measured by this software.
_SHARED = """\
Curves of the same data set, model and optimizer may differ in `schedule`, `stop`, `pruning` and `trials`. Curves that
differ only in `pruning` and `trials` share trials: the smaller search is the beginning of the larger one, with the same
seeds, so the two are not independent evidence. To get one curve of each, choose

    SELECT * FROM 'points.parquet' WHERE pruning = 'off' AND stop = 'target' AND schedule = 'constant'

for full curves, or `pruning = 'exact'` for a larger search that stops losing trials early.

"""

_POINTS_FILE = f"""\
- `points.parquet`: one row is {contents.ABOUT[contents.POINTS]}. Laws are fitted to these points.
"""


_NULLS = (
    "Null means not measured, or not applicable to the study. NaN and infinity are measured values: a trial that",
    "diverged has them at its last evaluation and is INFEASIBLE.",
)


_REFERENCES = """\
references:
  - type: article
    title: "Measuring the Effects of Data Parallelism on Neural Network Training"
    authors:
      - {family-names: Shallue, given-names: Christopher J.}
      - {family-names: Lee, given-names: Jaehoon}
      - {family-names: Antognini, given-names: Joseph}
      - {family-names: Sohl-Dickstein, given-names: Jascha}
      - {family-names: Frostig, given-names: Roy}
      - {family-names: Dahl, given-names: George E.}
    year: 2019
    journal: Journal of Machine Learning Research
    notes: "arXiv 1811.03600; defines the studies"
"""


def readme(release: Contents) -> bytes:
    """Returns the dataset card, with front matter for the Hugging Face Hub."""
    has_points = contents.POINTS in release.columns
    has_own = any(terms.source == OWN for terms in release.sources)
    has_layouts = "refusal" in release.columns["measurements"].names
    files, r_line = "measurements.parquet", 'arrow::read_parquet("measurements.parquet")'
    if len(release.files["measurements"]) > 1:
        files, r_line = "measurements-*.parquet", 'arrow::open_dataset(Sys.glob("measurements-*.parquet"))'
    usage = [(f"[{terms.licence}]({terms.url})", terms.usage) for terms in release.licences]
    text = _README.format(
        title=TITLE,
        studies=len(release.commits),
        trials=release.rows("trials"),
        measurements=release.rows("measurements"),
        ledgers=_ledgers(release),
        datasets=_datasets(release),
        about=contents.ABOUT,
        all_measurements=files,
        usage="\n".join(_table(("licence", "terms in short"), usage)),
        points=_POINTS_FILE if has_points else "",
        about_points=_ABOUT_POINTS.format(shared=_SHARED if has_own else "") if has_points else "",
        refused=" (or, for layouts, was rejected)" if has_layouts else "",
        layouts=_LAYOUTS if has_layouts else "",
        r_line=r_line,
    )
    return (_front_matter(release) + text).encode()


def dictionary(release: Contents) -> bytes:
    """Returns the data dictionary, which describes every column of every table."""
    lines = ["# Data dictionary", "", "Metrics are named `<split>_<kind>`:", ""]
    lines += _table(("kind", "definition"), METRIC_KINDS.items())
    lines += ["", *_NULLS]
    for table in release.columns:
        columns = contents.describe_columns(release, table)
        rows = [(f"`{column.name}`", column.type, column.meaning) for column in columns]
        lines += ["", f"## {table}", "", f"One row is {contents.ABOUT[table]}.", ""]
        lines += _table(("column", "type", "meaning"), rows)
    return ("\n".join(lines) + "\n").encode()


def licence_list(release: Contents) -> bytes:
    """Returns the licence of every row, by table and source."""
    lines = ["# Licences", "", "Licences by table and source. The plan of a study names its source.", ""]
    rows = [
        (f"`{table}`", terms.source, f"[{terms.licence}]({terms.url})")
        for table in release.columns
        for terms in release.sources
    ]
    lines += _table(("table", "rows from", "licence"), rows)
    for terms in release.sources:
        if terms.source != OWN:
            lines += ["", f"{terms.source}: converted by scaling-limits from {licences.as_markdown(terms.citation)}."]
    return ("\n".join(lines) + "\n").encode()


def citation(release: Contents, manifest_sha256: str) -> bytes:
    """Returns CITATION.cff for the release."""
    licence = f"license: {release.licences[0].licence}\n" if len(release.licences) == 1 else ""
    text = f"""\
cff-version: 1.2.0
type: dataset
title: {json.dumps(TITLE)}
message: "If you use these data, please cite this release and the sources it names."
authors:
  - name: {json.dumps(AUTHORS)}
version: {json.dumps(release.version)}
identifiers:
  - type: other
    value: sha256:{manifest_sha256}
    description: "sha256 of manifest.json, which lists the sha256 of every table"
date-released: "{release.newest}"
{licence}{_REFERENCES}"""
    for terms in release.sources:
        if terms.source != OWN:
            text += f"""\
  - type: data
    title: {json.dumps(terms.citation or terms.source)}
    authors:
      - name: {json.dumps(terms.author)}
"""
    return text.encode()


def bibtex(release: Contents) -> str:
    """Returns the BibTeX citation of the release, for croissant.json."""
    version = f"version = {{{release.version}}}, year = {{{release.newest[:4]}}}"
    return f"@misc{{scaling_limits, title = {{{TITLE}}}, author = {{{{{AUTHORS}}}}}, {version}}}"


def _front_matter(release: Contents) -> str:
    licences = [terms.licence.lower() for terms in release.licences if terms.licence]
    lines = ["---", f"pretty_name: {croissant.NAME}", "license:", *(f"- {licence}" for licence in licences)]
    lines += ["tags:", *(f"- {word.replace(' ', '-')}" for word in croissant.KEYWORDS)]
    lines += ["size_categories:", f"- {_size(release.rows('measurements'))}", "configs:"]
    for table in release.columns:
        lines += [f"- config_name: {table}", "  data_files:", "  - split: train"]
        lines += ["    path:", *(f"    - {file.path.name}" for file in release.files[table])]
        if table == "studies":
            lines.append("  default: true")
    return "\n".join([*lines, "---", "", ""])


def _size(rows: int) -> str:
    """Returns the Hugging Face size category for a number of rows."""
    if rows < 1000:
        return "n<1K"
    ends = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"]
    place = len(str(rows)) - 4
    return f"{ends[place]}<n<{ends[place + 1]}" if place < 9 else "n>1T"


def _ledgers(release: Contents) -> str:
    heads = ("source", "licence", "studies", "planned", "complete", "infeasible", "incomplete", "missing")
    rows = []
    for terms, commits in release.sources.items():
        counts = ledger.total(commit.ledger for commit in commits)
        incomplete = counts.planned - counts.complete - counts.infeasible - counts.missing
        numbers = [len(commits), counts.planned, counts.complete, counts.infeasible, incomplete, counts.missing]
        rows.append((terms.source, str(terms.licence), *(f"{number:,}" for number in numbers)))
    return "\n".join(_table(heads, rows))


def _datasets(release: Contents) -> str:
    heads = ("data set", "models", "studies", "trials", "infeasible trials")
    rows = []
    for dataset, commits in sorted(grouped(release.commits, lambda commit: commit.study.labels.dataset).items()):
        counts = ledger.total(commit.ledger for commit in commits)
        models = ", ".join(sorted({commit.study.labels.model for commit in commits}))
        rows.append((dataset, models, f"{len(commits):,}", f"{counts.planned:,}", f"{counts.infeasible:,}"))
    return "\n".join(_table(heads, rows))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]
