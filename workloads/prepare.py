"""python -m workloads.prepare NAME: downloads a data set and writes it as array_record files.

TFDS and the registry are imported inside functions to keep ``--help`` fast.
"""

from workloads.base import cli

if __name__ == "__main__":  # precedes all other imports, so that import errors are caught
    cli.run("workloads.prepare")

import contextlib
import fcntl
import io
import logging
import re
import shutil
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from workloads.base import BadInput, check_choice, cli, durable, say
from workloads.datasets import conversion
from workloads.datasets.array_records import data_dir
from workloads.datasets.conversion import Conversion
from workloads.memory import size_text
from workloads.preparable import Preparable, names, preparable, prepared_as

FINISHED = ".INFO"  # suffix of the file that TFDS writes next to a finished download


@cli.guarded
def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0 for success, 1 for failure, 2 for an unknown data set."""
    arguments = _parser().parse_args(argv)
    name = prepared_as(arguments.name)
    if name not in names():
        _check_needless(name)
        print(f"{name} needs no preparation")
        return 0
    return _prepare(name, arguments.data_dir or data_dir())


def _parser() -> cli.CommandParser:
    lines = []
    width = max(map(len, names())) + 2
    for name in names():
        dataset = preparable(name)
        lines.append(f"  {name:{width}}{dataset.content}, {dataset.sizes()} on disk")
    parser = cli.CommandParser(
        prog="python -m workloads.prepare",
        description="Downloads a data set with TensorFlow Datasets (checksums included) and writes it as array_record "
        "files, without TensorFlow. Existing data sets are kept.\n\n  python -m workloads.prepare mnist\n",
        epilog="NAME is one of\n" + "\n".join(lines) + "\nOther data sets need no preparation.\n\n"
        "The command starts by printing the time, disk and memory that it needs.\n"
        "Without a network, put the downloaded files into DIR/downloads/manual/NAME and keep their names.",
    )
    parser.add_argument("name", metavar="NAME", help="the data set")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=cli.path,
        help="folder to write to; default: $TFDS_DATA_DIR or ~/tensorflow_datasets, which training also uses",
    )
    return parser


def _check_needless(name: str) -> None:
    """Raises BadInput unless the name is that of a data set that does not need preparation."""
    from workloads.registry import DATASETS  # imports JAX

    needless = {*DATASETS, "webgraph_synthetic"} - set(names())
    parts = [part for part in names() if part.startswith(f"{name}/")]
    if parts:
        raise BadInput(f"{name} comes in parts; choices: {', '.join(parts)}")
    if name not in needless:
        check_choice("data set", name, {*needless, *names()})


def _prepare(name: str, parent: Path) -> int:
    what = preparable(name)
    place = what.folder(parent)
    partial = conversion.folder(place)
    try:
        what.check(parent)
        if what.is_finished(parent) and not partial.exists():
            print(f"{name} is already prepared: {place}")
            return 0
        is_written = True
    except BadInput as absent:
        is_written = False
        if place.exists():  # TFDS would take it for the data set
            if "holds no complete" in str(absent):
                return _fail(f"{place} exists but does not hold {name}. Move it or delete it.")
            return _fail(str(absent))
    print(f"{name}: {what.content}, {what.sizes()} in {place}")
    for line in what.notes:
        print(line)
    sys.stdout.flush()
    manual = manual_folder(name, parent)
    fetched = _fetched(name, parent)
    try:
        with alone(name, parent) as is_alone:
            if is_alone:
                remove_leftovers(place, fetched)
            else:  # another process may use the folder
                partial = partial.with_name(f"{partial.name}_{uuid.uuid4().hex}")
            if not is_written:
                present_bytes = min(what.download_bytes, there_bytes(manual, fetched))
                if line := _too_little(name, what, parent, present_bytes, partial):
                    return _fail(line)
                left = what.download_bytes - present_bytes
                _write(what, parent, Conversion(partial, manual, left, what.examples, say))
                what.check(parent)
            what.finish(place)
    except _failures() as error:
        advice = f"Try again, or put the downloaded files into {manual}."
        return _fail(f"{name} could not be prepared: {_reason(error).removesuffix('.')}. {advice}")
    stored = sum(file.stat().st_size for file in place.iterdir())
    print(f"{name} is ready: {stored / 1e6:.0f} MB in {place}")
    return 0


def _too_little(name: str, what: Preparable, parent: Path, present_bytes: int, partial: Path) -> str:
    """Returns an error message if there is not enough disk space, otherwise an empty string."""
    written = sum(file.stat().st_size for file in partial.rglob("*") if file.is_file())
    needed = what.download_bytes - present_bytes
    needed += max(0, 2 * what.stored_bytes - written)  # all records are written twice, in chunks and in shards
    free = shutil.disk_usage(parent).free
    if free >= needed:
        return ""
    details = f" in addition to the {size_text(present_bytes)} already downloaded" if present_bytes else ""
    details += f" and the {size_text(written)} already converted" if written else ""
    return (
        f"{name} needs {size_text(needed)} of disk{details}, but {parent} has {size_text(free)} left. Use --data-dir."
    )


def _fetched(name: str, parent: Path) -> Path | None:
    """Returns TFDS's download folder for a data set, or None if other data sets also use it."""
    kind = name.partition("/")[0]
    shared = sum(member.partition("/")[0] == kind for member in names()) > 1
    return None if shared else parent / "downloads" / kind


def _fail(line: str) -> int:
    say(f"error: {line}")
    return 1


def _failures() -> tuple[type[Exception], ...]:
    """Returns the types of errors that are raised for network, disk, checksum and file problems."""
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
    from tensorflow_datasets.core.download.util import DownloadError

    return BadInput, OSError, DownloadError, NonMatchingChecksumError


def _reason(error: BaseException) -> str:
    """Returns the cause of an error in one line, including its URL if there is one."""
    if isinstance(error, BadInput):
        return str(error)
    address = getattr(getattr(error, "request", None), "url", None)
    if address:
        return f"{type(error).__name__} at {address}"
    return " ".join(f"{type(error).__name__}: {error}".split())


def _write(what: Preparable, parent: Path, planned: Conversion) -> None:
    """Downloads and writes a data set. TFDS writes to a temporary folder and renames it at the end.

    Until then, converted files are kept in the conversion's folder.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    place = what.folder(parent)
    downloader.MAX_RETRIES = 4  # the default of 10 takes minutes without a network
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # logs every retry
    logging.getLogger("absl").setLevel(logging.ERROR)  # TFDS's own messages
    tfds.disable_progress_bar()
    config = tfds.download.DownloadConfig(
        manual_dir=planned.manual, try_download_gcs=False, force_checksums_validation=what.checksums
    )
    builder = what.builder(parent, planned.manual)
    conversion.make_resumable(builder, planned)
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints that sizes are unknown
        builder.download_and_prepare(download_config=config, file_format="array_record")
    count = {split: builder.info.splits[split].num_examples for split in what.examples}
    if count != what.examples:
        shutil.rmtree(planned.folder, ignore_errors=True)
        shutil.rmtree(place)
        raise OSError(f"the originals hold {count} examples, not {what.examples}")
    for file in (*place.iterdir(), place, place.parent):
        durable.sync(file)
    shutil.rmtree(planned.folder, ignore_errors=True)


def manual_folder(name: str, parent: Path) -> Path:
    """Returns the folder for manually downloaded originals."""
    return parent / "downloads" / "manual" / name


def there_bytes(manual: Path, fetched: Path | None) -> int:
    """Returns the total size of those originals of a data set that already exist.

    Args:
      manual: folder of manually downloaded originals.
      fetched: TFDS's download folder, or None if other data sets share it.
    """
    files = list(manual.glob("*"))
    if fetched:
        files += [info.with_suffix("") for info in fetched.glob(f"*{FINISHED}")]
    return sum(file.stat().st_size for file in files if file.is_file())


@contextlib.contextmanager
def alone(name: str, parent: Path) -> Iterator[bool]:
    """Locks a data set against other processes. Yields False if the file system does not support locks.

    Raises:
      BadInput: another process is preparing the data set.
    """
    file = parent / "downloads" / f".{name.replace('/', '-')}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            raise BadInput(f"another process is preparing it in {parent}") from None
        except OSError:
            locked = False
        yield locked


def remove_leftovers(place: Path, fetched: Path | None) -> None:
    """Removes unfinished downloads and files. Call it only in a process that holds the lock of ``alone``.

    TFDS writes each of them to a new folder whose random name is never reused. The folder of a conversion is removed
    only if the data set is complete.

    Args:
      place: folder of the data set's files.
      fetched: TFDS's download folder, or None if other data sets share it.
    """
    if place.exists():
        shutil.rmtree(conversion.folder(place), ignore_errors=True)
        for file in place.glob(f"{durable.TEMPORARY}*"):  # of subwords
            file.unlink(missing_ok=True)
    unfinished = [(place.parent, rf"incomplete\.[A-Z0-9]{{6}}_{re.escape(place.name)}")]
    if fetched:
        unfinished += [(fetched, r".+\.tmp\.[0-9a-f]{32}")]
    for folder, pattern in unfinished:
        for leftover in folder.glob("*"):
            if leftover.is_dir() and not leftover.is_symlink() and re.fullmatch(pattern, leftover.name):
                shutil.rmtree(leftover, ignore_errors=True)
