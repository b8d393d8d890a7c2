"""The `python -m analysis` command: numbers, tables, figures and pages from measured studies."""

from results import cli, printing

if __name__ == "__main__":  # before all other imports, so that their errors are also reported in one line
    cli.run("analysis.__main__")

import importlib

from analysis import arguments


@cli.guarded
def main(words: list[str] | None = None) -> int | None:
    """Runs one command and returns its exit code. User errors are reported in one line, with exit code 2."""
    options = arguments.parser().parse_args(words)
    printing.set_output(**{form: getattr(options, form, False) for form in ("csv", "json", "wide")})
    # A command imports pandas, scipy or matplotlib, which --help must not wait for.
    code = importlib.import_module(f"analysis.commands.{arguments.module(options)}").run(options)
    read = [getattr(options, name, None) for name in ("store", "a", "b")]
    if any(read):
        from results.catalog import withdrawn

        for folder in filter(None, read):
            for note in withdrawn.of_store(folder):
                printing.say(f"note: {note}")
    return code
