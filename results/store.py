"""A store: a folder of studies, each a folder of immutable runs that become visible whole or not at all.

    STORE/<study name>/plan-<trials>.json                                    what was asked for
    STORE/<study name>/<run>/{studies,trials,measurements}.parquet           what one run measured

A run is written into a hidden folder, flushed to disk and renamed into place; nothing is ever rewritten. Where two
runs hold the same trial (the first ended for a reason worth another try), the newer one counts.
"""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from results.bad_input import BadInput
from results.schema import SCHEMA_VERSION, VERSION_KEY
from results.study import REASONS_TO_RERUN, Study

TABLES = ("studies", "trials", "measurements")


class Tables(NamedTuple):
    """The three tables of ``results.schema``, of one run or of a whole store."""

    studies: pd.DataFrame
    trials: pd.DataFrame
    measurements: pd.DataFrame


def check_writable(store: Path) -> None:
    """Raises BadInput unless files can be created in ``store``, or where it would be created. Leaves nothing."""
    if store.exists() and not store.is_dir():
        raise BadInput(f"store={store} is a file; name a folder")
    parent = store
    while not parent.exists():
        parent = parent.parent
    try:
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise BadInput(f"store={store} cannot be written ({error.strerror}); choose another with store=DIR") from None


def names(store: Path) -> list[str]:
    """Names of the studies that were asked for in this store, sorted."""
    if not store.is_dir():
        raise BadInput(f"no store at {store}; make one with `python -m sweeps store={store}`, or name another")
    return sorted({file.parent.name for file in store.glob("*/plan-*.json")})


def planned(store: Path, name: str) -> Study | None:
    """The study as last asked for (with the most trials), or None if it never was."""
    files = sorted((store / name).glob("plan-*.json"))
    if not files:
        return None
    record = json.loads(files[-1].read_text())
    return Study.from_plan(record["plan"], record["trials"])


def ask(store: Path, study: Study) -> None:
    """Records that ``study`` is wanted; refuses a name that stands for another plan, and says what differs."""
    check_same_plan(store, study)
    folder = store / study.name
    path = folder / f"plan-{study.trials:09d}.json"
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"trials": study.trials, "plan": study.plan()}, indent=1, sort_keys=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".plan-", delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(file.name, path)
    _sync(folder)
    _sync(store)


def check_same_plan(store: Path, study: Study) -> None:
    """Raises BadInput if the store holds another plan under this study's name."""
    stored = planned(store, study.name)
    if stored is None:
        return
    ours, theirs = study.plan(), stored.plan()
    differing = [k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k)]
    if differing:
        changes = ", ".join(f"{k}: stored {theirs.get(k)!r}, asked {ours.get(k)!r}" for k in sorted(differing))
        raise BadInput(f"{store / study.name} holds another plan ({changes}); use another store=DIR")


def runs(store: Path, name: str) -> list[Path]:
    """The folders of a study's runs, oldest first."""
    return sorted(p for p in (store / name).glob("[0-9]*") if p.is_dir())


def publish(store: Path, name: str, tables: dict[str, pa.Table]) -> Path:
    """Makes a run visible, whole, as the newest one of a study.

    Args:
      tables: Arrow tables by name, as ``results.schema`` has them; their ``run`` column is filled in here.

    Returns:
      The folder of the run.
    """
    folder = store / name
    folder.mkdir(parents=True, exist_ok=True)
    number = int(runs(store, name)[-1].name) + 1 if runs(store, name) else 1
    studies = tables["studies"]
    column = studies.schema.get_field_index("run")
    studies = studies.set_column(column, studies.schema.field(column), pa.array([number], pa.int32()))
    hidden = Path(tempfile.mkdtemp(prefix=".run-", dir=folder))
    try:
        for table_name, table in (tables | {"studies": studies}).items():
            _write(hidden / f"{table_name}.parquet", table)
        hidden.chmod(0o755)
        _sync(hidden)
        final = folder / f"{number:06d}"
        os.rename(hidden, final)  # fails if another writer took the number: runs are never empty folders
        _sync(folder)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return final


def read(store: Path, name: str | None = None, *, tables: tuple[str, ...] = TABLES) -> Tables:
    """Reads a whole store, or one study of it.

    Args:
      store: folder of the store.
      name: of one study; None reads all.
      tables: which tables to read; the others come back empty.

    Returns:
      Tables sorted by study and (run | trial | trial, step), every trial once. What a study lacks is NaN.

    Raises:
      BadInput: there is no store, or it was written under a newer schema.
    """
    parts: dict[str, list[pd.DataFrame]] = {t: [] for t in TABLES}
    for study in names(store) if name is None else [name]:
        study_parts: dict[str, list[pd.DataFrame]] = {t: [] for t in TABLES}
        for run in runs(store, study):
            for table in tables:
                study_parts[table].append(_read(run / f"{table}.parquet", int(run.name)))
        for table in tables:
            if study_parts[table]:
                parts[table].append(pd.concat(study_parts[table], ignore_index=True))
    frames = {t: pd.concat(p, ignore_index=True) if p else pd.DataFrame() for t, p in parts.items()}
    return _newest(Tables(**frames))


def missing(store: Path, study: Study) -> list[int]:
    """Ids of the trials of ``study`` that are still to be run, in order."""
    trials = read(store, study.name, tables=("trials",)).trials
    done = set(trials.loc[~trials["reason"].isin(REASONS_TO_RERUN), "trial"]) if len(trials) else set()
    return [i for i in range(study.trials) if i not in done]


@contextlib.contextmanager
def lock(store: Path, name: str) -> Iterator[None]:
    """Holds the only right to run a study on this machine, waiting for it; ends with the process, however it ends."""
    folder = store / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def running(store: Path, name: str) -> bool:
    """Whether a process of this machine is running the study now."""
    path = store / name / ".lock"
    if not path.exists():
        return False
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def check_schema(store: Path) -> None:
    """Raises BadInput if any file of the store was written under a newer schema than this software reads."""
    for path in store.glob("*/[0-9]*/*.parquet"):
        _check_version(path, pq.read_schema(path))


def _newest(tables: Tables) -> Tables:
    trials, measurements = tables.trials, tables.measurements
    if len(trials):
        trials = trials.sort_values(["study", "trial", "run"], kind="stable").reset_index(drop=True)
        newest = ~trials.duplicated(["study", "trial"], keep="last")
        superseded = trials.loc[~newest, ["study", "trial", "run"]]
        if len(measurements) and len(superseded):
            keys = pd.MultiIndex.from_frame(measurements[["study", "trial", "run"]])
            measurements = measurements[~keys.isin(pd.MultiIndex.from_frame(superseded))]
        trials = trials[newest].drop(columns="run").reset_index(drop=True)
    if "run" in measurements:
        measurements = measurements.drop(columns="run").sort_values(["study", "trial", "step"], kind="stable")
    return Tables(tables.studies, trials, measurements.reset_index(drop=True))


def _check_version(path: Path, schema: pa.Schema) -> None:
    version = int((schema.metadata or {}).get(VERSION_KEY, b"0"))
    if version > SCHEMA_VERSION:
        raise BadInput(
            f"{path} has schema {version}, this scaling-limits reads up to {SCHEMA_VERSION}; install a newer one"
        )


def _read(path: Path, run: int) -> pd.DataFrame:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path} cannot be read ({reason}); remove its folder and run the study again") from None
    _check_version(path, table.schema)
    frame: pd.DataFrame = table.to_pandas()
    frame["study"] = frame["study"].astype(str)
    return frame if "run" in frame else frame.assign(run=run)


def _write(path: Path, table: pa.Table) -> None:
    floats = [f.name for f in table.schema if pa.types.is_floating(f.type)]
    texts = [f.name for f in table.schema if pa.types.is_dictionary(f.type)]
    coded = texts + [c for c in ("trial", "step") if c in table.column_names]
    with open(path, "xb") as file:
        pq.write_table(table, file, compression="zstd", use_byte_stream_split=floats, use_dictionary=coded)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
