"""Stores in buckets as a user has them: commands with the environment of a server, and copies from and to folders."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from ..attack import writer
from .servers import ROOT, Server

SECONDS = 900  # after which a command counts as stuck
TINY = "task.budget={steps: 100, epochs: null, examples: null, at_least_steps: null}"
STUDY = ("trials=2", "pruning=off", "stop=budget", "task.targets=[]", "checkpoint_seconds=1", TINY, "-m")
FORTY = (
    *("optimizer=sgd,momentum,nesterov,adam", "batch_size=16,24,32,48,64,96,128,192,256,384"),
    *STUDY,
)
FEW = ("optimizer=sgd,adam", "batch_size=32,64", *STUDY)


def run(words: Sequence[object], server: Server, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A command to its end: the module of a program and its arguments."""
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=_environment(server),
        timeout=SECONDS,
        check=False,
    )


@contextlib.contextmanager
def sweeping(words: Sequence[str], server: Server, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sweep in a process group of its own, which is gone at the end of the context."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweeps", *words],
            stdout=output,
            stderr=output,
            cwd=ROOT,
            env=_environment(server),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a sweep and its workers at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def keys(server: Server, url: str) -> list[str]:
    """The names of all objects of a store, without its own."""
    import obstore

    return sorted(each["path"] for chunk in obstore.list(_opened(server, url)) for each in chunk)


def download(server: Server, url: str, folder: Path) -> Path:
    """Copies a store from a bucket to a folder, object by object."""
    import obstore

    opened = _opened(server, url)
    for key in keys(server, url):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(obstore.get(opened, key).bytes()))
    return folder


def upload(folder: Path, server: Server, url: str) -> str:
    """Copies a store from a folder to a bucket, file by file; its URL."""
    import obstore

    opened = _opened(server, url)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock":
            obstore.put(opened, str(path.relative_to(folder)), path.read_bytes(), use_multipart=False)
    return url


def many(folder: Path, count: int) -> Path:
    """Writes a store of tiny studies to a folder, without waiting for the disk."""
    with mock.patch("os.fsync"):
        for seed in range(count):
            writer.replay(folder, dataclasses.replace(writer.study_of("off", 2), seed=seed))
    return folder


def secrets(server: Server) -> list[str]:
    """The values of its environment that no output may contain."""
    secret = ("SECRET_ACCESS_KEY", "BEARER_TOKEN", "ACCOUNT_KEY", "SAS_TOKEN")
    return [value for name, value in server.environment.items() if name.endswith(secret)]


def _opened(server: Server, url: str) -> Any:
    import obstore.store

    config = {name: value for name, value in server.environment.items() if not name.endswith("ALLOW_HTTP")}
    return obstore.store.from_url(url, config=config, client_options={"allow_http": True})


def _environment(server: Server) -> dict[str, str]:
    return os.environ | server.environment
