"""python -m workloads.prepare NAME: downloads a data set and writes it as array_record files, once."""

from results import cli

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    cli.run("workloads.prepare")

import contextlib
import fcntl
import io
import logging
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from results.bad_input import BadInput, check_choice
from results.cli import CommandParser, path, say
from workloads.datasets.array_records import data_dir
from workloads.memory import size_text
from workloads.preparable import Preparable, names, preparable, prepared_as

FINISHED = ".INFO"  # what TFDS adds to the name of a download, for a file that it writes beside it at its end


@cli.guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0 done, 1 could not be done, 2 no such data set."""
    arguments = _parser().parse_args(argv)
    name = prepared_as(arguments.name)
    if name not in names():
        _check_needless(name)
        print(f"{name} needs no preparation")
        return 0
    return _prepare(name, arguments.data_dir or data_dir())


def _parser() -> CommandParser:
    lines, width = [], max(map(len, names())) + 2
    for name in names():
        one = preparable(name)
        lines.append(f"  {name:{width}}{one.content}, {one.sizes()} on disk")
    parser = CommandParser(
        prog="python -m workloads.prepare",
        description="Downloads a data set with TensorFlow Datasets (checksums included) and writes it as array_record "
        "files; neither needs TensorFlow. A data set that is already there is left alone.",
        epilog="NAME is one of\n" + "\n".join(lines) + "\nAll other data sets need no preparation.\n\n"
        "The time, disk and memory needed are printed before anything is done.\n"
        "Without a network, put the downloaded files into DIR/downloads/manual/NAME, under their own names.",
    )
    parser.add_argument("name", metavar="NAME", help="the data set")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=path,
        help="where to write; by default $TFDS_DATA_DIR or ~/tensorflow_datasets, where training looks too",
    )
    return parser


def _check_needless(name: str) -> None:
    """Raises BadInput unless it names a data set that TFDS does not have."""
    from workloads.registry import DATASETS  # imports JAX

    needless = {*DATASETS, "webgraph_synthetic"} - set(names())
    parts = [known for known in names() if known.startswith(f"{name}/")]
    if parts:
        raise BadInput(f"{name} comes in parts; choices: {', '.join(parts)}")
    if name not in needless:
        check_choice("data set", name, {*needless, *names()})


def _prepare(name: str, within: Path) -> int:
    what = preparable(name)
    place = what.folder(within)
    try:
        what.check(within)
        if what.is_finished(within):
            print(f"{name} is already there: {place}")
            return 0
        is_written = True
    except BadInput as absent:
        is_written = False
        if place.exists():  # TFDS would take it for the data set, whatever it holds
            return _fail(
                f"{place} exists but does not hold {name}; move it or delete it"
                if "holds no complete" in str(absent)
                else str(absent)
            )
    print(f"{name}: {what.content}, {what.sizes()} in {place}")
    for line in what.notes:
        print(line)
    sys.stdout.flush()
    manual = manual_folder(name, within)
    try:
        with alone(name, within) as is_alone:
            if is_alone:
                remove_leftovers(place, _fetched(name, within))
            if not is_written:
                if line := _too_little(name, what, within):
                    return _fail(line)
                _write(what, within, manual)
                what.check(within)
            what.finish(place)
    except _failures() as error:
        return _fail(
            f"{name} could not be prepared: {_reason(error)}; try again, or put the downloaded files into {manual}"
        )
    stored = sum(file.stat().st_size for file in place.iterdir())
    print(f"{name} is ready: {stored / 1e6:.0f} MB in {place}")
    return 0


def _too_little(name: str, what: Preparable, within: Path) -> str:
    """What to say if the disk has too little space for what is not there yet; empty if it has enough."""
    there = there_bytes(manual_folder(name, within), _fetched(name, within))
    there = min(there, what.download_bytes)
    needed = what.download_bytes - there + 2 * what.stored_bytes  # TFDS writes all of it twice: to sort it, and sorted
    free = shutil.disk_usage(within).free
    if free >= needed:
        return ""
    besides = f" besides the {size_text(there)} that are there" if there else ""
    return f"{name} needs {size_text(needed)} of disk{besides} and {within} has {size_text(free)} left; see --data-dir"


def _fetched(name: str, within: Path) -> Path | None:
    """The folder that TFDS downloads a data set's originals to, unless they share it with those of others."""
    kind = name.partition("/")[0]
    shared = sum(other.partition("/")[0] == kind for other in names()) > 1
    return None if shared else within / "downloads" / kind


def _fail(line: str) -> int:
    say(f"error: {line}")
    return 1


def _failures() -> tuple[type[Exception], ...]:
    """Types of errors from network, disk, checksums, and files that do not belong to the data set."""
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
    from tensorflow_datasets.core.download.util import DownloadError

    return BadInput, OSError, DownloadError, NonMatchingChecksumError


def _reason(error: BaseException) -> str:
    """The cause of an error in one line, with the address if there is one."""
    if isinstance(error, BadInput):
        return str(error)
    address = getattr(getattr(error, "request", None), "url", None)
    if address:
        return f"{type(error).__name__} at {address}"
    return " ".join(f"{type(error).__name__}: {error}".split())


def _write(what: Preparable, within: Path, manual: Path) -> None:
    """Downloads and writes; TFDS writes beside the final place and renames at the end."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    downloader.MAX_RETRIES = 4  # its 10 tries take minutes where there is no network
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # it would log every one of them
    config = tfds.download.DownloadConfig(
        manual_dir=manual, try_download_gcs=False, force_checksums_validation=what.checksums
    )
    builder = what.builder(within, manual)
    with contextlib.redirect_stdout(io.StringIO()):  # where TFDS says that sizes are unknown; its progress is on stderr
        builder.download_and_prepare(download_config=config, file_format="array_record")
    count = {split: builder.info.splits[split].num_examples for split in what.examples}
    if count != what.examples:
        shutil.rmtree(what.folder(within))
        raise OSError(f"the originals hold {count} examples, not {what.examples}")


def manual_folder(name: str, within: Path) -> Path:
    """Where originals of a data set are looked for that were downloaded by hand, under their own names."""
    return within / "downloads" / "manual" / name


def there_bytes(manual: Path, fetched: Path | None) -> int:
    """Size of the originals of a data set that are there already.

    Args:
      manual: those that were downloaded by hand.
      fetched: the folder that TFDS downloads them to; None if those of other data sets are there, too.
    """
    files = list(manual.glob("*"))
    files += [info.with_suffix("") for info in fetched.glob(f"*{FINISHED}")] if fetched else []
    return sum(file.stat().st_size for file in files if file.is_file())


@contextlib.contextmanager
def alone(name: str, within: Path) -> Iterator[bool]:
    """Keeps other processes from preparing the same data set; gives False where the file system has no locks.

    Raises:
      BadInput: one of them does.
    """
    file = within / "downloads" / f".{name.replace('/', '-')}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            raise BadInput(f"another process prepares it in {within}") from None
        except OSError:
            locked = False
        yield locked


def remove_leftovers(place: Path, fetched: Path | None) -> None:
    """Removes downloads and files that no process will finish; only to be called by one that is ``alone``.

    TFDS begins each of them in a new folder with a random name, which it never looks at again.

    Args:
      place: the folder that the files of the data set are to be in.
      fetched: as above.
    """
    unfinished = [(place.parent, rf"incomplete\.[A-Z0-9]{{6}}_{re.escape(place.name)}")]
    unfinished += [(fetched, r".+\.tmp\.[0-9a-f]{32}")] if fetched else []
    for folder, pattern in unfinished:
        for each in folder.glob("*"):
            if each.is_dir() and not each.is_symlink() and re.fullmatch(pattern, each.name):
                shutil.rmtree(each, ignore_errors=True)
