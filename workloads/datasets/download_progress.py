"""Shows the progress of TFDS's downloads and checksums as one bar on a terminal, or as plain lines."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workloads.base import FIRST_SECONDS, Report, durable, show_progress

MEBIBYTE = 1 << 20  # unit of TFDS's bar


class _Megabytes:
    """Replaces TFDS's progress bar of downloaded mebibytes. Several threads update it."""

    def __init__(self, move: Callable[[int], None]):
        self._move = move
        self._lock = threading.Lock()
        self._done = 0

    def update_total(self, mebibytes: int) -> None:
        """Ignores the size of an additional file, because the total size is already known."""

    def update(self, mebibytes: int) -> None:
        with self._lock:
            self._done += mebibytes * MEBIBYTE
            self._move(self._done)


def show_downloads(downloads: Any, total: int, report: Report) -> None:
    """Replaces the progress bars of a TFDS download manager.

    Args:
      downloads: the download manager.
      total: approximate number of bytes to download.
      report: called with progress lines if there is no terminal.
    """
    from tensorflow_datasets.core.download import checksums
    from tensorflow_datasets.core.utils import Size
    from tensorflow_datasets.core.utils.tqdm_utils import EmptyTqdm

    downloader = downloads._downloader

    @contextlib.contextmanager
    def shown() -> Iterator[None]:
        with show_progress("downloading", total, "B", report, delay=FIRST_SECONDS, with_rest=True) as move:
            downloader._pbar_url, downloader._pbar_dl_size = EmptyTqdm(), _Megabytes(move)
            yield

    def url_info(path: Any, checksum_cls: Any = None) -> Any:
        file = Path(path)
        size = Size(file.stat().st_size)
        with show_progress(f"checksum of {file.name}", size, "B", report, delay=FIRST_SECONDS, with_rest=True) as move:
            digest = durable.sha256(file, move)
        return checksums.UrlInfo(size=size, checksum=digest, filename=file.name)

    downloader.tqdm = shown
    downloader.increase_tqdm = lambda url_info: None  # of files that exist already
    checksums.compute_url_info = url_info
