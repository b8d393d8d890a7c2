"""The `python -m results` command: verifies stores and releases, imports data and publishes releases."""

from results import cli, printing

if __name__ == "__main__":  # before all other imports, to guard them too
    cli.run("results.__main__")

import argparse
from collections.abc import Callable

from results.bad_input import BadInput, nearest
from results.cli import CommandParser, location
from results.printing import quoted, say as report

RUNS = "runs"  # results.plans.recorded.RUNS, without its imports
SOURCES = (RUNS, "shallue2018", "mlperf-rcp", "algoperf-logs")
HELP = """\
The dataset: check it, import published data, publish it.

  python -m results verify --store DIR                    check hashes, tables and totals
  python -m results repair --store DIR                    drop torn files, and list them
  python -m results import runs PATH --map FILE --store DIR   your own logs: CSV, JSONL, Parquet, TensorBoard, …
  python -m results import shallue2018 FILE --store DIR   the released archive of Shallue et al. (2018)
  python -m results import mlperf-rcp DIR --store DIR     MLPerf's reference convergence points
  python -m results import algoperf-logs DIR --store DIR  AlgoPerf's public training logs
  python -m results export --store DIR --out DIR          write a release: four tables, dataset card, hashes
  python -m results merge SRC... --store DIR              join stores and releases; conflicts are rejected

DIR and FILE can be URLs, such as gs://bucket/folder, s3://bucket/folder or az://container/folder (install the extra
buckets: pip install "scaling-limits[buckets]").
"""
EXAMPLES = {
    "verify": """\
  python -m results verify --store results/published
""",
    "repair": """\
  python -m results repair --store mine
""",
    "import": """\
  python -m results import runs logs --suggest-map --map runs.yaml
  python -m results import runs logs --map runs.yaml --store mine
  python -m results import shallue2018 batch_science_data.tar.bz2 --store shallue

The first command writes a map, a YAML file that you check and edit. Its keys are listed in docs/own-runs.md, section
"The map".
""",
    "export": """\
  python -m results export --store mine --out release
""",
    "merge": """\
  python -m results merge one two --store both
""",
}


@cli.guarded
def main(argv: list[str] | None = None) -> int:
    """Runs a command. Returns 0 on success, 1 if there were faults or nothing was done, and 2 for invalid input."""
    options = parser().parse_args(argv)
    printing.set_output(**{form: getattr(options, form, False) for form in ("csv", "json", "wide")})
    code = options.command(options)
    if code == 0:
        from results.catalog import withdrawn

        there = options.store is not None and options.store.exists()
        for note in withdrawn.of_store(options.store) if there else ():
            report(f"note: {note}")
    return code


def parser() -> CommandParser:
    """Returns the parser for all commands."""
    top = CommandParser(prog="python -m results", description=HELP)
    commands = top.add_subparsers(required=True, metavar="verify | repair | import | export | merge")

    def command(name: str, summary: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=f"{summary}\n\n{EXAMPLES[name]}")
        sub.add_argument("--store", type=location, required=name != "import", metavar="DIR", help="folder of the store")
        sub.set_defaults(command=run)
        return sub

    sub = command(
        "verify", "report faults in a store or a release, one per line, and exit with 1 if there are any", _verify
    )
    cli.add_output_arguments(sub)
    sub.add_argument("--full", action="store_true", help="rebuild and compare every envelope, even in a large store")
    command("repair", "rebuild or drop torn files, and list them", _repair)
    sub = command("import", "import your own runs, or published data, into a store", _import)
    sub.add_argument("source", metavar="SOURCE", help=f"the source of the data: {', '.join(SOURCES)}")
    sub.add_argument("path", type=location, metavar="PATH", help="the folder of logs, or the archive")
    sub.add_argument("--map", type=cli.path, metavar="FILE", help="runs: YAML file that maps logs to studies")
    sub.add_argument("--suggest-map", action="store_true", help="runs: write a map for the logs to --map FILE")
    sub.add_argument("--dry-run", action="store_true", help="runs: print the result without storing it")
    sub.add_argument(
        "--raw", action="store_true", help="runs: keep every logged row instead of averaging dense metrics"
    )
    sub.add_argument("--any-checksum", action="store_true", help="accept an archive that is not the published one")
    sub.add_argument("--replace", action="store_true", help="take values that changed in the logs since their import")
    cli.add_output_arguments(sub)
    sub = command("export", "write a release of a store", _export)
    sub.add_argument("--out", type=location, required=True, metavar="DIR", help="new folder of the release")
    sub = command("merge", "join stores and releases into one store", _merge)
    sub.add_argument("sources", nargs="+", type=location, metavar="SRC", help="a store or a release")
    return top


def _verify(options: argparse.Namespace) -> int:
    from results.checks import verify

    return verify.run(options.store, report, full=options.full)


def _repair(options: argparse.Namespace) -> int:
    from results.checks import repair

    return repair.run(options.store, report)


def _import(options: argparse.Namespace) -> int:
    from results.importers import algoperf, mlperf_rcp, shallue2018

    _check_import(options)
    if options.source == RUNS:
        return _import_runs(options)
    if options.source == "shallue2018":
        return shallue2018.run(options.path, options.store, any_checksum=options.any_checksum, report=report)
    if options.source == "mlperf-rcp":
        return mlperf_rcp.run(options.path, options.store, report=report)
    return algoperf.run(options.path, options.store, replace=options.replace, report=report)


def _check_import(options: argparse.Namespace) -> None:
    """Raises BadInput for an unknown source, or for options that the source does not support."""
    if options.source not in SOURCES:
        hint = f"unknown source {options.source!r}; {nearest(options.source, SOURCES)}"
        raise BadInput(f"{hint}. To import logs of your own, run `python -m results import runs PATH --map FILE`.")
    own = {
        "map": (RUNS,),
        "suggest_map": (RUNS,),
        "dry_run": (RUNS,),
        "raw": (RUNS,),
        "any_checksum": ("shallue2018",),
        "replace": (RUNS, "algoperf-logs"),
    }
    for name, sources in own.items():
        if getattr(options, name) and options.source not in sources:
            flag = f"--{name.replace('_', '-')}"
            raise BadInput(f"{flag} is an option of import {' and '.join(sources)} only. Leave it out.")
    if options.store is None and not (options.dry_run or options.suggest_map):
        raise BadInput("--store DIR is missing: the folder of the store to import into")


def _import_runs(options: argparse.Namespace) -> int:
    from results.importers.runs import importer, run_map, suggestion

    if options.map is None:
        more = f"python -m results import runs {quoted(options.path)} --suggest-map --map runs.yaml"
        raise BadInput(f"--map FILE is missing. To write one, run `{more}`.")
    if options.suggest_map:
        printing.answer("\n".join(suggestion.suggest(options.path, options.map)))
        report(f"next: python -m results import runs {quoted(options.path)} --map {quoted(options.map)} --dry-run")
        return 0
    return importer.run(
        options.path,
        options.store,
        run_map.read(options.map),
        raw=options.raw,
        dry_run=options.dry_run,
        replace=options.replace,
        report=report,
    )


def _export(options: argparse.Namespace) -> int:
    from analysis import release_points  # the only import from a higher layer: a release contains its studies' answers
    from results.release import release

    return release.export(options.store, options.out, report, release_points.table)


def _merge(options: argparse.Namespace) -> int:
    from results.release import merge

    return merge.merge(options.sources, options.store, report)
