"""The documents of a release that people read: README.md, DICTIONARY.md, LICENCES.md and CITATION.cff."""

import json
from collections.abc import Iterable, Sequence

from results.catalog import contents, croissant, licences
from results.catalog.contents import Contents
from results.plans.plan_columns import OWN
from results.plans.study import METRIC_KINDS

TITLE = "scaling-limits: scaling studies, every trial and every measurement"
AUTHORS = "The scaling-limits authors"

_README = """\
# {title}

How far does adding parallelism keep paying off? This release holds {studies:,} studies of {trials:,} trials with
{measurements:,} measurements. A *study* is the trials of one workload (data set, model, optimizer) at one batch size,
with metaparameters tuned for it; a *trial* is one training run; a *measurement* is its metrics at one step.

{ledgers}

Planned = complete + infeasible + incomplete + missing, always.
INFEASIBLE is a trial that diverged{refused}: a result, not a gap.
The reason of every INCOMPLETE one is in `trials`.

## Files

- `studies.parquet`: a row is {about[studies]}.
- `trials.parquet`: a row is {about[trials]}.
- `measurements.parquet`: a row is {about[measurements]}. A row group is a study.
{points}- `envelopes.arrow`: what answers any target without the measurements, for scaling-limits.
- `DICTIONARY.md`: every column with its type, unit and meaning.
- `LICENCES.md`, `CITATION.cff`: on which terms, and how to cite.
- `manifest.json`: every study with its plan, its ledger, and its files with sha256.
- `croissant.json`: the same for machines, in MLCommons's format.
- `SHA256SUMS`: of every file; its last line is its own.

## Reading

Every table has all columns; what a study lacks is null. Any reader of Parquet takes it in a line, from this folder:

    datasets.load_dataset(".", "measurements")["train"]                      # Hugging Face
    list(mlcroissant.Dataset("croissant.json").records("measurements"))      # any reader of Croissant
    duckdb.sql("from '{all_measurements}'")
    polars.read_parquet("{all_measurements}")
    pandas.read_parquet("{all_measurements}")
    {r_line:72} # R

mlcroissant takes the extra `parquet`, gives texts as bytes and names such as `measurements/step`, and reads about a
thousand records a second; start with `studies`. chDB takes `SELECT * FROM '{all_measurements}'` too, and so does
DataFusion after `enable_url_table()`.

A measurement belongs to the trial with the same `study` and `trial`, a trial to the study with the same `study` (and
`run`). Examples seen are `step * batch_size`, in 64 bits.

With scaling-limits, the software the release is from, it is read like a store:

    from pathlib import Path
    from results import store
    studies, trials, measurements = store.read(Path("."))      # pandas
    # python -m analysis steps --store .                       # steps to target, study by study

## Terms of use

{usage}

Whom to name is in `CITATION.cff`, and which rows are under which licence in `LICENCES.md`. No person was measured.

{about_points}## Before drawing conclusions

- Null says that something was not measured, or is not so of this study. NaN and infinity are values that were measured,
  at the last evaluation of INFEASIBLE trials; a comparison with a target is false for both. Pandas shows null as NaN
  unless it is asked for `dtype_backend="pyarrow"`.
- Every metric is an error: lower is better. Steps to target is the first measured step at or past the target; the truth
  lies between the evaluation before and that one.
- Metrics measured by this software are float32, published ones float64 as their source has them. Compare with a target
  in the column's own type: as a float32, 0.12 is less than 0.12.
- Where `pruning` is `exact`, curves of trials that could no longer be the first to a target are cut short. The answers
  are those of whole curves; the curves are not whole.
- Trials whose `role` is `confirm` repeat the best of their study on fresh seeds: trial k million + i is the k-th repeat
  of trial i. They are no part of the search, and of no minimum over it. Where several trials were repeated, the first
  half of the repeats chose one of them, and only the further ones of the chosen report without bias.
- Where a plan has `stop` as `budget`, trials went on beyond their targets: harder ones can be read from their curves.
- Where `emulated` is true there were more devices than physical cores: times say nothing about speed.
- `seconds_per_epoch` is a mean over all trials and steps of a run, in `studies` as in `points`; `median_epoch_seconds`
  of a factorization is the median over the epochs of the selected trial.
{layouts}- Results whose plans differ in `comparable` are not to be put into one curve.

## Is it intact?

    sha256sum -c SHA256SUMS
    python -m results verify --store .
"""

_LAYOUTS = """\
- Studies of kind `layout` are a step of a Transformer on a mesh of devices, on the data set `counting`, numbers in
  order: their costs are the result, and their few steps are no result of training. Those refused are INFEASIBLE.
"""

_ABOUT_POINTS = """\
## Points and curves

A row of `points` is a study and a target; rows with the same `curve` are one curve, over batch sizes or, of
factorizations, over cores; of one over batch sizes they have the same fit. {shared}Factorizations are told apart by
`solver`, `dim`, `table_dtype`, `solver_dtype` and `dataset_options`, layouts by `mesh`, `layout` and `engine`, and
studies of others at one place of a curve by `records`.

`verdict` is `identified` (`critical_batch_size`, between `critical_low` and `critical_high`), `at_least`
(`critical_low` or more), `at_most` (`critical_high` or less) or `not_identified` (nothing is known). `doubts` names
what the fit assumes and the data do not bear out: such a number is in doubt.

"""

# Of our own studies.
_SHARED = """\
Curves of one data set, model and optimizer may differ in `schedule`, `stop`, `pruning`
and `trials`. Where they differ in `pruning` and `trials` alone they share trials: those of the smaller search are the
first of the larger one, with the same seeds, so that the two are no independent evidence. To have one of each, choose

    SELECT * FROM 'points.parquet' WHERE pruning = 'off' AND stop = 'target' AND schedule = 'constant'

for whole curves of trials, or `pruning = 'exact'` for a larger search whose losing trials are cut short.

"""

_POINTS_FILE = f"""\
- `points.parquet`: a row is {contents.ABOUT[contents.POINTS]}. What laws are fitted to.
"""


_NOTHING = (
    "Null is what was not measured, or is not so of the study. NaN and infinity are values that were measured: those",
    "of a trial that diverged, at its last evaluation, after which it is INFEASIBLE.",
)


def readme(release: Contents) -> bytes:
    """The dataset card, with the front matter that the Hugging Face hub reads."""
    text = _README.format(
        title=TITLE,
        studies=len(release.commits),
        trials=release.rows("trials"),
        measurements=release.rows("measurements"),
        ledgers=_ledgers(release),
        about=contents.ABOUT,
        all_measurements=_pattern(release, "measurements"),
        usage="\n".join(_table(("licence", "in a sentence"), _usage(release))),
        points=_POINTS_FILE if contents.POINTS in release.columns else "",
        about_points=_about_points(release) if contents.POINTS in release.columns else "",
        refused=" or, of layouts, was refused" if _has_layouts(release) else "",
        layouts=_LAYOUTS if _has_layouts(release) else "",
        r_line=_r_line(release, "measurements"),
    )
    return (_front_matter(release) + text).encode()


def dictionary(release: Contents) -> bytes:
    """The data dictionary: every column of every table."""
    lines = ["# Data dictionary", "", "Metrics are named `<split>_<kind>`:", ""]
    lines += _table(("kind", "what it is"), METRIC_KINDS.items())
    lines += ["", *_NOTHING]
    for table in release.columns:
        rows = [
            (f"`{column.name}`", column.type, column.meaning) for column in contents.describe_columns(release, table)
        ]
        lines += [
            "",
            f"## {table}",
            "",
            f"A row is {contents.ABOUT[table]}.",
            "",
            *_table(("column", "type", "meaning"), rows),
        ]
    return ("\n".join(lines) + "\n").encode()


def licence_list(release: Contents) -> bytes:
    """The licence of every row: which rows of which table are under which."""
    lines = ["# Licences", "", "By table and by the source of its rows; a study's source is in its plan.", ""]
    rows = [
        (f"`{table}`", terms.source, f"[{terms.licence}]({terms.url})")
        for table in release.columns
        for terms in release.sources
    ]
    lines += _table(("table", "rows from", "licence"), rows)
    for terms in release.sources:
        if terms.source != OWN:
            lines += [
                "",
                f"{terms.source}: converted into these tables by scaling-limits "
                f"from {licences.as_markdown(terms.citation)}.",
            ]
    return ("\n".join(lines) + "\n").encode()


def citation(release: Contents, manifest_sha256: str) -> bytes:
    """CITATION.cff of the release."""
    lines = [
        "cff-version: 1.2.0",
        "type: dataset",
        f"title: {json.dumps(TITLE)}",
        'message: "If you use these data, please cite them, and the sources they name."',
        "authors:",
        f"  - name: {json.dumps(AUTHORS)}",
        f"version: {json.dumps(release.version)}",
        "identifiers:",
        "  - type: other",
        f"    value: sha256:{manifest_sha256}",
        '    description: "sha256 of manifest.json, which holds that of every table"',
    ]
    lines.append(f'date-released: "{release.newest}"')
    if len(release.licences) == 1:
        lines.append(f"license: {release.licences[0].licence}")
    lines += [
        "references:",
        "  - type: article",
        '    title: "Measuring the Effects of Data Parallelism on Neural Network Training"',
        "    authors:",
        "      - {family-names: Shallue, given-names: Christopher J.}",
        "      - {family-names: Lee, given-names: Jaehoon}",
        "      - {family-names: Antognini, given-names: Joseph}",
        "      - {family-names: Sohl-Dickstein, given-names: Jascha}",
        "      - {family-names: Frostig, given-names: Roy}",
        "      - {family-names: Dahl, given-names: George E.}",
        "    year: 2019",
        "    journal: Journal of Machine Learning Research",
        '    notes: "arXiv 1811.03600; defines the studies"',
    ]
    for terms in release.sources:
        if terms.source != OWN:
            lines += ["  - type: data", f"    title: {json.dumps(terms.citation or terms.source)}", "    authors:"]
            lines += [f"      - name: {json.dumps(terms.author)}"]
    return ("\n".join(lines) + "\n").encode()


def bibtex(release: Contents) -> str:
    """The citation of the release, for croissant.json."""
    version = f"version = {{{release.version}}}, year = {{{release.newest[:4]}}}"
    return f"@misc{{scaling_limits, title = {{{TITLE}}}, author = {{{{{AUTHORS}}}}}, {version}}}"


def _front_matter(release: Contents) -> str:
    licences = [terms.licence.lower() for terms in release.licences if terms.licence]
    lines = ["---", f"pretty_name: {croissant.NAME}", "license:", *(f"- {licence}" for licence in licences)]
    lines += ["tags:", *(f"- {word.replace(' ', '-')}" for word in croissant.KEYWORDS)]
    lines += ["size_categories:", f"- {_size(release.rows('measurements'))}", "configs:"]
    for table in release.columns:
        lines += [f"- config_name: {table}", "  data_files:", "  - split: train"]
        lines += ["    path:", *(f"    - {name}" for name in sorted(release.files[table]))]
        lines += ["  default: true"] * (table == "studies")
    return "\n".join([*lines, "---", "", ""])


def _pattern(release: Contents, table: str) -> str:
    """The file of a table, or what matches all of its files."""
    return next(iter(release.files[table])) if len(release.files[table]) == 1 else f"{table}-*.parquet"


def _r_line(release: Contents, table: str) -> str:
    """What reads a table in R."""
    if len(release.files[table]) == 1:
        return f'arrow::read_parquet("{table}.parquet")'
    return f'arrow::open_dataset(Sys.glob("{_pattern(release, table)}"))'


def _about_points(release: Contents) -> str:
    return _ABOUT_POINTS.format(shared=_SHARED if any(terms.source == OWN for terms in release.sources) else "")


def _has_layouts(release: Contents) -> bool:
    return "refusal" in release.columns["measurements"].names


def _usage(release: Contents) -> list[tuple[str, str]]:
    return [
        (f"[{terms.licence}]({terms.url})", croissant.USAGE.get(str(terms.licence), "see the licence"))
        for terms in release.licences
    ]


def _size(rows: int) -> str:
    """The hub's word for how many rows there are."""
    ends = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"]
    for place, end in enumerate(ends):
        if rows < 1000 * 10**place:
            return f"{ends[place - 1]}<n<{end}" if place else "n<1K"
    return "n>1T"


def _ledgers(release: Contents) -> str:
    heads = ("source", "licence", "studies", "planned", "complete", "infeasible", "incomplete", "missing")
    rows = []
    for terms, commits in release.sources.items():
        counts = contents.total(commits)
        incomplete = counts.planned - counts.complete - counts.infeasible - counts.missing
        numbers = [len(commits), counts.planned, counts.complete, counts.infeasible, incomplete, counts.missing]
        rows.append((terms.source, str(terms.licence), *(f"{number:,}" for number in numbers)))
    return "\n".join(_table(heads, rows))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]
