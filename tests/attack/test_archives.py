"""Archives that nobody should have made: none crashes or hangs the import, or writes anywhere but into the store."""

import bz2
import contextlib
import io
import json
import os
import random
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from results import store
from results.bad_input import BadInput
from results.importers import archive, intake, shallue2018
from results.importers.untrusted import Unusable
from results.plans.kinds import reserved

GOOD = "mnist/fc_1024/sgd/64"
BAD = "mnist/fc_64/sgd/32"
STUDY = {"batch_size": 64, "dataset": "mnist", "early_stopping": False, "train_steps": 0, "parameter_configs": {}}
TRIAL = {"trial_id": 1, "status": "COMPLETE", "steps": 9, "parameters": {"learning_rate": 0.1}}
CURVE = "step,val/classification_error\n9,0.5\n"
SECONDS = 30

Add = Callable[..., None]


def study_json(**changed: object) -> str:
    return json.dumps(STUDY | changed)


def trial_json(**changed: object) -> str:
    return json.dumps(TRIAL | changed)


def study(path: str = BAD, **texts: str) -> dict[str, str]:
    """A study of one trial; ``study``, ``metadata`` and ``measurements`` replace what its files hold."""
    number = int(path.rpartition("/")[2]) if path.rpartition("/")[2].isdigit() else 64
    return {
        f"batch_science/{path}/study.json": texts.get("study", study_json(batch_size=number)),
        f"batch_science/{path}/1/metadata.json": texts.get("metadata", trial_json()),
        f"batch_science/{path}/1/measurements.csv": texts.get("measurements", CURVE),
    }


def files(content: dict[str, str]) -> Callable[[Add], None]:
    """Regular members."""

    def put(add: Add) -> None:
        for name, text in content.items():
            add(name, text.encode())

    return put


def member(
    name: str = f"batch_science/{BAD}/1/metadata.json", data: bytes = b"", **fields: object
) -> Callable[[Add], None]:
    """One member with a header of its own."""
    return lambda add: add(name, data, **fields)


def both(*puts: Callable[[Add], None]) -> Callable[[Add], None]:
    def put(add: Add) -> None:
        for one in puts:
            one(add)

    return put


def moved(old: str, new: str) -> Callable[[Add], None]:
    return files({name.replace(old, new): text for name, text in study().items()})


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
ONE_VALUE = {"type": "DISCRETE", "feasible_points": [1]}
NESTED = "[" * 100_000 + "]" * 100_000
NESTED_A_BIT = "[" * 100 + "]" * 100
LONG_NUMBER = "1" * 10_000

# Members that may lie beside a good study. A study among them is refused, or its trial lost.
MEMBERS: dict[str, Callable[[Add], None]] = {
    "absolute path": moved("batch_science", "/batch_science"),
    "path above": moved("batch_science", "../batch_science"),
    "path above within": moved("fc_64", "../../../../fc_64"),
    "path that goes out and in": moved("fc_64", "fc_64/../fc_64"),
    "home": moved("batch_science", "~/batch_science"),
    "backslashes": moved("batch_science/", "batch_science\\..\\..\\"),
    "other top folder": moved("batch_science", "elsewhere"),
    "no top folder": moved("batch_science/", ""),
    "endless nesting": moved("fc_64", "/".join(["d"] * 400)),
    "a name of 200 letters": moved("fc_64", "f" * 200),
    "a dataset of 3 folders": moved("mnist", "a/b/mnist"),
    "control characters": moved("fc_64", "fc\n64\x1b[2J"),
    "not UTF-8": moved("fc_64", "fc_\udcff\udcfe"),
    "a dot file": moved("fc_64", ".fc_64"),
    "an option": moved("fc_64", "--fc_64"),
    "symbolic link": both(member(**LINK), member(f"batch_science/{BAD}/study.json", **LINK)),
    "link to a folder": member(f"batch_science/{BAD}", type=tarfile.SYMTYPE, linkname="/etc"),
    "hard link": member(type=tarfile.LNKTYPE, linkname=f"batch_science/{GOOD}/1/metadata.json"),
    "character device": member(type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "block device": member(type=tarfile.BLKTYPE, devmajor=8, devminor=0),
    "named pipe": member(type=tarfile.FIFOTYPE),
    "sparse file": member(type=tarfile.GNUTYPE_SPARSE),
    "unknown kind": member(type=b"Z"),
    "a file where a folder should be": both(member(f"batch_science/{BAD}", b"x"), files(study())),
    "study twice": both(files(study()), files(study())),
    "study.json not JSON": files(study(study="{")),
    "study.json empty": files(study(study="")),
    "study.json a list": files(study(study="[]")),
    "study.json nested": files(study(study=NESTED)),
    "study.json not UTF-8": member(f"batch_science/{BAD}/study.json", b"\xff\xfe\xfa"),
    "study.json with a number too long": files(study(study=study_json(train_steps=7).replace("7", LONG_NUMBER))),
    "study.json of 2 MB": files(study(study=" " * (2 << 20))),
    "study.json of 100 kB of lists": files(
        study(
            study=study_json(batch_size=32, parameter_configs={"lr": {"type": "X", "feasible_points": [[]] * 30_000}})
        )
    ),
    "study.json nested a bit": files(
        study(study=study_json(batch_size=32, parameter_configs={"lr": {"type": "X", "of": json.loads(NESTED_A_BIT)}}))
    ),
    "batch size NaN": files(study(study=study_json(batch_size=float("nan")))),
    "batch size infinite": files(study(study=study_json(batch_size=32).replace("32", "1e999"))),
    "batch size a text": files(study(study=study_json(batch_size="32"))),
    "batch size another": files(study(study=study_json(batch_size=33))),
    "batch size null": files(study(study=study_json(batch_size=None))),
    "batch size true": files(study("mnist/fc_64/sgd/1", study=study_json(batch_size=True))),
    "batch size 0": files(study("mnist/fc_64/sgd/0", study=study_json(batch_size=0))),
    "batch size huge": files(study(f"mnist/fc_64/sgd/{10**12}", study=study_json(batch_size=10**12))),
    "train_steps negative": files(study(study=study_json(batch_size=32, train_steps=-1))),
    "early_stopping a text": files(study(study=study_json(batch_size=32, early_stopping="no"))),
    "parameter_configs a list": files(study(study=study_json(batch_size=32, parameter_configs=[]))),
    "a range of no numbers": files(study(study=study_json(batch_size=32, parameter_configs={"lr": 3}))),
    "a name that is no name": files(
        study(
            study=study_json(batch_size=32, parameter_configs={"a;b\n": {"type": "DISCRETE", "feasible_points": [1]}})
        )
    ),
    "an infinite range": files(
        study(study=study_json(batch_size=32, parameter_configs={"lr": {"type": "DOUBLE", "max_value": float("inf")}}))
    ),
    "no study.json": files({name: text for name, text in study().items() if "study.json" not in name}),
    "trial of another id": files(study(metadata=trial_json(trial_id=2))),
    "trial id a float": files(study(metadata=trial_json(trial_id=1.5))),
    "trial id NaN": files(study(metadata=trial_json(trial_id=float("nan")))),
    "trial folder no number": moved("/1/", "/one/"),
    "trial folder negative": moved("/1/", "/-1/"),
    "trial folder padded": moved("/1/", "/01/"),
    "trial folder huge": moved("/1/", f"/{10**30}/"),
    "trial folder of other digits": moved("/1/", "/\u0661/"),
    "status a number": files(study(metadata=trial_json(status=1))),
    "status a list": files(study(metadata=trial_json(status=["COMPLETE"]))),
    "steps a text": files(study(metadata=trial_json(steps="many"))),
    "steps huge": files(study(metadata=trial_json(steps=10**18))),
    "metadata nested": files(study(metadata=NESTED)),
    "metadata of 2 MB": files(study(metadata=" " * (2 << 20))),
    "metaparameter a list": files(study(metadata=trial_json(parameters={"learning_rate": [1]}))),
    "metaparameter infinite": files(study(metadata=trial_json(parameters={"learning_rate": float("inf")}))),
    "metaparameter of 1000 digits": files(study(metadata=trial_json(parameters={"learning_rate": 10**1000}))),
    "metaparameter without a name": files(study(metadata=trial_json(parameters={"": 1}))),
    "1000 metaparameters": files(study(metadata=trial_json(parameters={f"p{i}": 1 for i in range(1000)}))),
    "curve of zeros": files(study(measurements="\0" * 4096)),
    "curve not UTF-8": member(f"batch_science/{BAD}/1/measurements.csv", b"\xff\xfe\n1,2\n"),
    "curve of one line": files(study(measurements="step,val/classification_error" + ",x" * 100_000)),
    "curve of 1000 columns": files(study(measurements="step" + ",x" * 1000 + "\n" + "1" + ",1" * 1000)),
    "curve ragged": files(study(measurements=CURVE + "1\n")),
    "curve with an open quote": files(study(measurements=CURVE + '"9,0.5\n')),
    "curve with a quoted header": files(study(measurements='"step\n",x\n')),
    "curve of text": files(study(measurements=CURVE + "ten,low\n")),
    "curve of huge steps": files(study(measurements=CURVE + f"{10**30},0.5\n")),
    "curve with a line of 3 MB": files(study(measurements=CURVE + "1," + "0" * (3 << 20) + "\n")),
}


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Fails whatever takes longer."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """What is in a folder but the store: mode, size and time of every name."""
    found = (path for path in folder.rglob("*") if "store" not in path.relative_to(folder).parts)
    return {str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns) for path in found}


def imported(path: Path) -> tuple[int, list[str]]:
    """Exit code and lines of an import into a store beside ``path``, which must be all that it touches."""
    lines: list[str] = []
    before = everything(path.parent)
    with at_most(SECONDS):
        try:
            code = shallue2018.run(path, path.parent / "store", any_checksum=True, report=lines.append)
        except BadInput as error:
            code, lines = 2, [*lines, str(error)]
    assert everything(path.parent) == before
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    folder = path.parent / "store"
    assert all(entry.parent.parent == folder for entry in folder.rglob("*") if not entry.is_dir())
    return code, lines


def tarred(path: Path, *puts: Callable[[Add], None]) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:

        def add(name: str, data: bytes, **fields: object) -> None:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for field, value in fields.items():
                setattr(entry, field, value)
            tar.addfile(entry, io.BytesIO(data))

        for put in puts:
            put(add)
    return path


@pytest.mark.parametrize("name", MEMBERS)
def test_bad_member_is_refused_and_harms_no_good_study(tmp_path: Path, name: str) -> None:
    code, lines = imported(tarred(tmp_path / "alone.tar", MEMBERS[name]))
    stored = store.catalogue(tmp_path / "store") if (tmp_path / "store").exists() else []
    if not stored:
        assert code == 1
        assert len(lines) <= 3
        assert lines[0].startswith("error: nothing could be imported")
    for commit in stored:
        assert commit.ledger.adds_up
        if name not in ("study twice", "a file where a folder should be"):
            assert commit.ledger.lost == 1
            assert any(BAD in line or "fc_64" in line for line in lines)
    (tmp_path / "both").mkdir()
    code, lines = imported(tarred(tmp_path / "both" / "in.tar", MEMBERS[name], files(study(GOOD))))
    assert code == 0
    trials = store.read(tmp_path / "both" / "store").trials
    good = trials[trials["study"].str.startswith("mnist-fc_1024")]
    assert good["status"].tolist() == ["COMPLETE"]
    assert len(lines) < 30


def test_configurations_without_end_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is of a sane size, and a few kilobytes of archive hold thousands of them."""
    monkeypatch.setattr(intake, "MOST_CONFIGURED", 1000)
    put = [files(study(f"mnist/fc_64/sgd/{size}")) for size in range(1, 20)]
    _, lines = imported(tarred(tmp_path / "in.tar", *put))
    assert "it holds more than 1,000 bytes of study.json" in lines[-1]
    assert 5 < len(store.catalogue(tmp_path / "store")) < 12


def test_a_file_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(CURVE)
    for name, text in study().items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    with archive.open_archive(tmp_path / "in", "batch_science") as source:
        for entry in source.entries:
            (tmp_path / "in" / entry.path).unlink()
            (tmp_path / "in" / entry.path).symlink_to(tmp_path / "secret")
            with pytest.raises(Unusable, match="symbolic link"):
                entry.read()


def test_metaparameters_called_like_our_columns(tmp_path: Path) -> None:
    parameters = dict.fromkeys(reserved(), 1.0)
    put = files(study(metadata=trial_json(parameters=parameters)))
    assert imported(tarred(tmp_path / "in.tar", put))[0] == 0
    assert {f"metaparameter_{name}" for name in reserved()} < set(store.read(tmp_path / "store").trials.columns)


def good_tar(tmp_path: Path) -> bytes:
    return tarred(tmp_path / "good.tar", files(study(GOOD))).read_bytes()


def header(
    name: bytes = b"x", size: bytes = b"00000000010", kind: bytes = b"0", magic: bytes = b"ustar\x0000"
) -> bytes:
    """A tar header with any fields and a right checksum."""
    fields = [name.ljust(100, b"\0"), b"0000644\0", b"0000000\0" * 2, size.ljust(12, b"\0"), b"00000000000\0"]
    before, after = b"".join(fields), kind + b"\0" * 100 + b"ustar\x0000"
    total = sum(before) + sum(after) + 8 * 32
    return (before + b"%06o\0 " % total + after).ljust(512, b"\0")


WHOLE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "one byte": lambda good: b"x",
    "text": lambda good: b"this is no archive\n" * 1000,
    "zeros": lambda good: bytes(100_000),
    "a picture": lambda good: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20,
    "gzip": lambda good: b"\x1f\x8b\x08" + bytes(1000),
    "truncated tar": lambda good: good[:700],
    "tar cut within a header": lambda good: good[:100],
    "tar with a damaged header": lambda good: good[:150] + b"\xff" + good[151:],
    "tar of links only": lambda good: header(kind=b"2", size=b"") * 50 + bytes(1024),
    "size not a number": lambda good: header(size=b"99999999999") + bytes(2048),
    "size negative": lambda good: header(size=b"\xff" * 12) + bytes(2048),
    "size of exabytes": lambda good: header(size=b"\x80" + b"\x00" * 3 + b"\x7f" + b"\xff" * 7) + bytes(2048),
    "size of 8 GB": lambda good: header(b"batch_science/a/b/c/1/1/measurements.csv", b"77777777777") + bytes(2048),
    "long name of 8 GB": lambda good: header(kind=b"L", size=b"77777777777") + bytes(2048),
    "extended header of 8 GB": lambda good: header(kind=b"x", size=b"77777777777") + bytes(2048),
    "extended header in circles": lambda good: header(kind=b"x", size=b"00000000005") + b"0 a=b".ljust(512, b"\0"),
    "extended header lying": lambda good: header(kind=b"x", size=b"00000000007") + b"99 a=b\n".ljust(512, b"\0"),
    "extended header with a bad size": lambda good: (
        header(kind=b"x", size=b"00000000015") + b"13 size=-999\n".ljust(512, b"\0") + header() + bytes(2048)
    ),
    "10,000 long names": lambda good: (header(kind=b"L", size=b"00000000001") + b"x".ljust(512, b"\0")) * 10_000,
    "bz2 empty": lambda good: bz2.compress(b""),
    "bz2 header only": lambda good: b"BZh9",
    "bz2 of text": lambda good: bz2.compress(b"this is no archive\n" * 1000),
    "bz2 truncated": lambda good: bz2.compress(good)[:-20],
    "bz2 flipped": lambda good: bytes(b ^ (i == 60) for i, b in enumerate(bz2.compress(good))),
    "bz2 then rubbish": lambda good: b"BZh9" + b"\x31\x41\x59\x26\x53\x59" + os.urandom(2000),
    "bz2 in bz2": lambda good: bz2.compress(bz2.compress(good)),
    "bz2 bomb": lambda good: (
        bz2.compress(header(b"batch_science/a", b"77777777777")) + bz2.compress(bytes(1 << 24)) * 40
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_archive_of_ours_is_refused_in_three_lines(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.tar.bz2"
    path.write_bytes(WHOLE[name](good_tar(tmp_path)))
    code, lines = imported(path)
    assert code == 1
    assert len(lines) <= 3
    assert lines[0].startswith("error: nothing could be imported")
    assert not list((tmp_path / "in").glob("store/*"))


def test_damage_with_the_standard_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = "import sys; sys.modules['rapidgzip'] = None; from results.importers import bunzip; bunzip.run()"
    monkeypatch.setattr(archive, "DECODE", ("-c", without))
    for name in ("bz2 truncated", "bz2 flipped", "bz2 header only", "bz2 then rubbish"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.tar.bz2").write_bytes(WHOLE[name](good_tar(tmp_path)))
        code, lines = imported(tmp_path / name / "a.tar.bz2")
        assert code == 1
        assert len(lines) <= 2


def test_a_folder_with_everything_that_is_no_file(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for name, text in study(GOOD).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    bad = root / "batch_science" / BAD
    (bad / "1").mkdir(parents=True)
    (bad / "study.json").symlink_to(root / f"batch_science/{GOOD}/study.json")
    os.mkfifo(bad / "1" / "metadata.json")
    (bad / "1" / "measurements.csv").symlink_to("/dev/zero")
    (root / "batch_science" / "loop").symlink_to(root)
    (root / "batch_science" / "etc").symlink_to("/etc")
    os.makedirs(root / "batch_science" / "/".join(["d"] * 60))
    with open(os.fsencode(root / "batch_science") + b"/\xff\xfe.csv", "wb"):
        pass
    code, lines = imported(root)
    assert code == 0
    assert len(store.catalogue(tmp_path / "store")) == 1
    assert sum("skipped" in line for line in lines) >= 5
    assert any("too deep" in line for line in lines)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))])
def test_bytes_changed_anywhere(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(tarred(tmp_path / "in.tar", files(study(GOOD)), files(study())).read_bytes()[: 15 * 512])
    for _ in range(4):
        at, word = (
            draw.randrange(len(data)),
            draw.choice([b"\0", b"\xff", b'"', b"\n", b"9" * 20, b"}", b"../", b"1e999"]),
        )
        data[at : at + len(word)] = word
    packed = bz2.compress(bytes(data)) if seed % 3 == 0 else bytes(data)
    (tmp_path / "in.tar").write_bytes(packed)
    code, lines = imported(tmp_path / "in.tar")
    assert code in (0, 1)
    assert len(lines) < 30
    for commit in store.catalogue(tmp_path / "store") if (tmp_path / "store").exists() else []:
        assert commit.ledger.adds_up
        store.read(tmp_path / "store", commit.name)


@pytest.mark.parametrize("kind", ["empty folder", "pipe", "device", "dangling link"])
def test_a_path_that_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "in"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/none/such")
    code, lines = imported(path)
    assert code in (1, 2)
    assert len(lines) == 1


def test_more_than_any_archive_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MOST_STUDIES", 3)
    many = [files(study(f"mnist/fc_64/sgd/{2**i}")) for i in range(6)]
    code, lines = imported(tarred(tmp_path / "a.tar", *many))
    assert code == 1
    assert "more than 3 studies" in lines[-1]
    assert len(store.catalogue(tmp_path / "store")) <= 4
    monkeypatch.setattr(intake, "MOST_WARNINGS", 2)
    code, lines = imported(tarred(tmp_path / "b.tar", *[files(study(metadata="{")) for _ in range(5)]))
    assert code == 1
    assert "more than 2 faults" in " ".join(lines)
