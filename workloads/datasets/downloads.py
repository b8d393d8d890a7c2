"""What is on disk while TFDS prepares a data set: originals that are there, and what killed processes left behind."""

import contextlib
import fcntl
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from results.bad_input import BadInput

FINISHED = ".INFO"  # what TFDS adds to the name of a download, for a file that it writes beside it at its end


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
        for path in folder.glob("*"):
            if path.is_dir() and not path.is_symlink() and re.fullmatch(pattern, path.name):
                shutil.rmtree(path, ignore_errors=True)
