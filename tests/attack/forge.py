"""Stores and releases as somebody with an editor and sha256sum would leave them, and all commands run on each.

python forge.py FOLDER SEED COUNT

Prints a line of JSON per forgery, with what was found wrong. It forks, so it imports nothing that starts threads before
it does; every command runs in a process of its own, with bounded memory and time.
"""

import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import moments
import pyarrow as pa
import pyarrow.parquet as pq
import writer

from analysis import __main__ as analysis_cli
from analysis.report import page  # noqa: F401 (so that no process imports it anew)
from results import __main__ as cli, durable
from results.release import release
from sweeps import status

SECONDS = 60  # for one command
MOST_BYTES = 1 << 30  # that a command may hold; an honest store takes a quarter of that
KINDS = ("store", "release")
STEERS = "\x1b]0;mine\x07\x1b[2J\u202e\u2028\r\n"
DEPTH = 80


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63) - 1, 10**6, 10**400, 0.1, -0.0, 1e308, 5e-324),
    *(
        math.inf,
        -math.inf,
        math.nan,
        "",
        "0",
        "NaN",
        STEERS,
        "../../outside",
        "/etc/passwd",
        "memory://outside",
        "\x00",
    ),
    *(
        "x" * 100_000,
        "\ud800",
        "é" * 300,
        "..",
        "COMPLETE",
        [],
        {},
        [[]] * 1000,
        nested(DEPTH),
        {"": None},
        {"../x": 1},
    ),
    *({STEERS: STEERS}, [f"name {i}" for i in range(4000)], {f"name {i}": i for i in range(4000)}),
)
RAW: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: b"",
    lambda data: data[: len(data) // 2],
    lambda data: data + data,
    lambda data: b"\xef\xbb\xbf" + data,
    lambda data: data.replace(b'"', b"\xff", 3),
    lambda data: data.decode().encode("utf-16"),
    lambda data: b"[" * 200_000,
    lambda data: b'{"a": ' * 100_000 + b"1" + b"}" * 100_000,
    lambda data: data.replace(b"{", b'{"trials": 1, "name": "x",', 1),
    lambda data: b'{"parts": ' + b"9" * 100_000 + b"}",
    lambda data: b'{"sha256": Infinity}',
    lambda data: b"\x00" * 4096,
)
NAMES = (
    *("..\\..\\outside", f"a{STEERS}", "a\nb", "-rf", "--store", "~", "%2e%2e", "x" * 250, "\udcff\udcfe", "é", "CON"),
    *("plan-000000001.json ", "PLAN-000000008.json", "part-1-1.arrows", "commit-999999.json", ".tmp-", "studies"),
)


def main(folder: Path, seed: int, count: int) -> None:
    """Prints a line per forgery."""
    whole = folder / "whole"
    writer.several(whole / "store")
    assert release.export(whole / "store", whole / "release", lambda line: None) == 0
    forgeries = [random.Random(f"{seed}/{number}") for number in range(count)]
    drawn = [(chance.choice(FORGERIES), chance.choice(KINDS)) for chance in forgeries]
    for kind in sorted({kind for _, kind in drawn}):
        untouched = opened(whole, kind, folder / f"{kind}-untouched")
        assert untouched == [], untouched
    for number, (chance, (forgery, kind)) in enumerate(zip(forgeries, drawn, strict=True)):
        case = folder / str(number)
        shutil.copytree(whole, case)
        (case / "outside").write_text("not ours")
        what = f"{kind}, {forgery.__name__}: {forgery(case / kind, chance)}"
        wrong = opened(case, kind, folder / f"{number}-made")
        print(json.dumps({"case": number, "what": what[:300], "wrong": wrong}), flush=True)
        shutil.rmtree(case)
        shutil.rmtree(folder / f"{number}-made")


# The commands


def opened(case: Path, kind: str, made: Path) -> list[str]:
    """Runs every command on a store or a release; what went wrong."""
    made.mkdir()
    wrong = []
    store, out = str(case / kind), str(made / "out")
    others = {path.name for path in case.iterdir()}
    calls: dict[str, Callable[[], int]] = {
        "verify": lambda: cli.main(["verify", "--store", store]),
        "status": lambda: status.main([f"store={store}"]),
        "steps": lambda: analysis_cli.main(["steps", "--store", store]),
        "report": lambda: analysis_cli.main(["report", "--store", store, "--out", f"{out}.html"]),
        "merge": lambda: cli.main(["merge", store, "--store", f"{out}-merged"]),
        "export": lambda: cli.main(["export", "--store", store, "--out", f"{out}-again"]),
        "repair": lambda: cli.main(["repair", "--store", store]),
    }
    for name, call in calls.items():
        before, said = seen(case), made / f"said-{name}"
        code, most = ended(moments.fork(lambda call=call: bounded(call), said))
        wrong += [f"{name}: {line}" for line in faults(code, most, said.read_bytes())]
        after = seen(case)
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        if left := [path for path in changed if name != "repair" or not path.is_relative_to(store)]:
            wrong.append(f"{name} changed {left[:3]}")
    if {path.name for path in case.iterdir()} != others:
        wrong.append("something is new beside them")
    return wrong


def bounded(work: Callable[[], int]) -> int:
    """Runs a command; one that does not end, or takes all memory, is ended."""
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    return work()


def ended(pid: int) -> tuple[int, int]:
    """How a process ended, and the most bytes that it held."""
    _, told, used = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(told), used.ru_maxrss << 10


def faults(code: int, most: int, said: bytes) -> list[str]:
    """What is wrong with how a command ended and what it printed."""
    text = said.decode(errors="replace")
    wrong = [] if code in (0, 1, 2) else [f"ended with {code}: {text[-600:]}"]
    wrong += ["a traceback"] if "Traceback" in text else []
    wrong += [f"it held {most >> 20} MB"] if most > MOST_BYTES else []
    strange = sorted({character for character in text if not character.isprintable() and character != "\n"})
    wrong += [f"it printed {strange!r}"] if strange else []
    wrong += ["more than a line of error"] if code == 2 and text.count("error: ") != 1 else []
    return wrong


def seen(case: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of every file of a case."""
    found = {path: path.lstat() for path in case.rglob("*") if not path.is_dir()}
    return {path: (told.st_size, told.st_mtime_ns) for path, told in found.items()}


# The forgeries: each changes a store or a release, and says what it did


def a_value(folder: Path, chance: random.Random) -> str:
    """A record with another value somewhere in it, sealed as if that were what was written."""
    path = chance.choice(sorted(folder.rglob("*.json")))
    record = json.loads(path.read_bytes())
    record.pop("sha256", None)
    at: Any = record
    for _ in range(chance.randrange(6)):
        inner = list(at.values() if isinstance(at, dict) else at)
        inner = [each for each in inner if isinstance(each, dict | list) and each]
        if not inner:
            break
        at = chance.choice(inner)
    key = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
    value = chance.choice(VALUES)
    if isinstance(at, dict) and chance.random() < 0.3:
        at[chance.choice(["", "x", STEERS, "sha256 ", "name"])] = value
    elif chance.random() < 0.1:
        del at[key]
    else:
        at[key] = value
    path.write_bytes(sealed(record))
    return f"{path.name}, {key!r}: {str(value)[:60]!r}"


def raw(folder: Path, chance: random.Random) -> str:
    """A record, or a list, that is no JSON, or not as it was written."""
    path = chance.choice(sorted([*folder.rglob("*.json"), *folder.rglob("SHA256SUMS")]))
    number = chance.randrange(len(RAW))
    path.write_bytes(RAW[number](path.read_bytes()))
    return f"{path.name}, {number}"


def a_column(folder: Path, chance: random.Random) -> str:
    """A table with another column, listed as if it had been written so."""
    path = chance.choice(sorted(folder.rglob("*.parquet")))
    rows = pq.read_table(path)
    index = chance.randrange(rows.num_columns)
    name, size = rows.column_names[index], len(rows)
    kinds: list[Callable[[], pa.Array]] = [
        lambda: pa.nulls(size, rows.schema.field(index).type),
        lambda: pa.array([-(2**31)] * size, pa.int32()),
        lambda: pa.array([2**63 - 1] * size, pa.int64()),
        lambda: pa.array([math.inf] * size, pa.float64()),
        lambda: pa.array([math.nan] * size, pa.float32()),
        lambda: pa.array([STEERS] * size),
        lambda: pa.array([b"\xff\xfe"] * size, pa.binary()),
        lambda: pa.array([STEERS] * size).dictionary_encode(),
        lambda: pa.array([["x"]] * size),
        lambda: pa.array([{"x": 1}] * size),
        lambda: pa.array([0] * size, pa.timestamp("us")),
    ]
    number = chance.randrange(len(kinds) + 4)
    if number < len(kinds):
        rows = rows.set_column(index, name, kinds[number]())
    elif number == len(kinds):
        rows = rows.rename_columns([STEERS if each == name else each for each in rows.column_names])
    elif number == len(kinds) + 1:
        rows = rows.drop_columns([name])
    elif number == len(kinds) + 2:
        rows = rows.append_column(name, rows[name])
    else:
        for extra in range(4000):
            rows = rows.append_column(f"name {extra}", pa.nulls(size, pa.float64()))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    relisted(folder, path, sink.getvalue().to_pybytes())
    return f"{path.name}, {name}: {number}"


def some_bytes(folder: Path, chance: random.Random) -> str:
    """A table or an envelope with bytes changed anywhere, listed as if it had been written so."""
    path = chance.choice(sorted([*folder.rglob("*.parquet"), *folder.rglob("*.arrow")]))
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(max(0, len(data) - 600) if chance.random() < 0.5 else 0, len(data))
        data[at] = chance.choice([0, 0xFF, 0x7F, 0x80, chance.randrange(256)])
    relisted(folder, path, bytes(data))
    return path.name


def a_part(folder: Path, chance: random.Random) -> str:
    """A part with bytes changed anywhere, with the hash that they have."""
    parts = sorted(folder.rglob("part-*"))
    if not parts:
        return some_bytes(folder, chance)
    path = chance.choice(parts)
    data = bytearray(path.read_bytes()[:-32])
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(bytes(data) + hashlib.sha256(data).digest())
    return path.name


def a_name(folder: Path, chance: random.Random) -> str:
    """A file or a folder under another name, or one more."""
    paths = sorted(folder.rglob("*"))
    path = chance.choice(paths)
    name = chance.choice([name for name in NAMES if not os.path.lexists(path.with_name(name))])
    if chance.random() < 0.5:
        path.rename(path.with_name(name))
    else:
        (path.parent / name).write_bytes(b"{}")
    return f"{path.name} {name!r}"


def many_names(folder: Path, chance: random.Random) -> str:
    """Thousands of files, or of folders, that are not ours, or look as if they were."""
    place = chance.choice([folder, *sorted(path for path in folder.iterdir() if path.is_dir())])
    kind = chance.choice(["{}", "plan-{:09d}.json", "claim-{:06d}.json", "part-{:06d}-000001.arrows", ".tmp-{}"])
    for number in range(4000):
        path = place / kind.format(number + 10)
        path.mkdir() if place == folder and number % 2 else path.write_bytes(b"")
    return f"{kind} in {place.name}"


def a_link(folder: Path, chance: random.Random) -> str:
    """A link, a pipe or a folder in place of a file."""
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    path.unlink()
    number = chance.randrange(5)
    if number < 3:
        path.symlink_to((folder.parent / "outside", "/dev/zero", path)[number])
    elif number == 3:
        os.mkfifo(path)
    else:
        path.mkdir()
    return f"{path.name}, {number}"


FORGERIES = (
    a_value,
    a_value,
    a_value,
    raw,
    a_column,
    a_column,
    some_bytes,
    some_bytes,
    a_part,
    a_name,
    many_names,
    a_link,
)


def sealed(record: Any) -> bytes:
    """A record with its own hash, whatever is in it."""
    try:
        return durable.seal(record)
    except (ValueError, TypeError, RecursionError, UnicodeEncodeError):
        body = json.dumps(record, indent=1)
        return f'{body[:-2]},\n "sha256": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'.encode()


def relisted(folder: Path, path: Path, data: bytes) -> None:
    """Puts bytes in place of a file, wherever it is listed with its hash."""
    old, new = (hashlib.sha256(each).hexdigest() for each in (path.read_bytes(), data))
    size = path.stat().st_size
    path.write_bytes(data)
    for record in folder.rglob("*.json"):
        text = record.read_text()
        if old not in text or record.name == "croissant.json":
            continue
        told = json.loads(text)
        del told["sha256"]
        for listed in [told] if "files" in told else told.get("studies", []):
            for file in listed["files"].values():
                if file["sha256"] == old and file["bytes"] == size:
                    file |= {"sha256": new, "bytes": len(data)}
        record.write_bytes(sealed(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
