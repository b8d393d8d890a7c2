import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest

from results import __main__ as cli, durable
from results.catalog import documents
from results.checks import verify
from results.durable import Folder
from results.release import merge, release

from ...attack.test_stores import reenvelope, study_in

ROOT = Path(__file__).parents[3]


def faults(folder: Folder) -> list[str]:
    return [fault.line for findings in verify.examine(folder, print) for fault in findings.faults]


def test_a_store_without_faults_and_its_ledger(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--store", str(whole)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("3 studies, ")
    # 8 of the first; of the published one 3, and 2 that it lacks; of the one in progress 5, and 3 that it lacks
    assert "planned 21 = complete 11 + infeasible 3 + incomplete 2 (pruned 1, unstated 1) + missing 5; " in line
    assert line.endswith("no faults")
    remote = durable.location("memory://verified/store")
    for path in whole.rglob("*"):
        if path.is_file():
            (remote / path.relative_to(whole).as_posix()).write_bytes(path.read_bytes())
    assert verify.run(remote, print) == 0
    assert capsys.readouterr().out.splitlines() == [line]


def test_a_release_holds_what_it_lists_and_nothing_else(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "release"
    assert release.export(whole, place, print) == 0
    assert cli.main(["verify", "--store", str(place)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("3 studies, ")
    assert (
        "planned 15 = complete 9 + infeasible 2 + incomplete 2 (pruned 1, unstated 1) + missing 2; " in line
        and line.endswith("no faults")
    )
    back = tmp_path / "back"
    assert merge.merge([place], back, print) == 0
    assert faults(back) == []
    (place / "extra").mkdir()
    assert len(faults(place)) == 1
    (place / "extra" / "notes.txt").write_text("mine")
    (place / ".DS_Store").touch()
    (place / "link").symlink_to(place / "README.md")
    assert len(faults(place)) == 3
    for name in ("README.md", "manifest.json", "SHA256SUMS"):
        data = (place / name).read_bytes()
        (place / name).unlink()
        words = "is listed but missing" if name == "README.md" else "is missing; fetch"
        assert any(f"{name}: {words}" in line for line in faults(place))
        (place / name).write_bytes(data)


def list_anew(folder: Path) -> None:
    """Makes SHA256SUMS anew, as if all files had been written so."""
    hashes = {each.name: documents.sha256(each.read_bytes()) for each in folder.iterdir()}
    (folder / documents.SUMS).write_bytes(documents.sums(hashes))


def seal_anew(folder: Path) -> None:
    """Makes the manifest, the citation and SHA256SUMS anew."""
    path = folder / "manifest.json"
    old, content = documents.sha256(path.read_bytes()), durable.read_sealed(path)
    for name, digest in content["documents"].items():
        content["documents"][name] = digest and documents.sha256((folder / name).read_bytes())
    path.write_bytes(durable.seal({name: content[name] for name in content if name != "sha256"}))
    citation = (folder / "CITATION.cff").read_text()
    (folder / "CITATION.cff").write_text(citation.replace(old, documents.sha256(path.read_bytes())))
    list_anew(folder)


CHANGES = {  # a word of every document, and another that is as good
    "README.md": ("3 studies", "4 studies"),
    "DICTIONARY.md": ("float64", "float32"),
    "LICENCES.md": ("CC-BY-4.0", "CC0-1.0"),
    "croissant.json": ('"contentSize": "', '"contentSize": "1'),
    "CITATION.cff": ("The scaling-limits authors", "Somebody else"),
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_documents_that_are_not_of_the_tables_are_found(name: str, sealed: bool, whole: Path, tmp_path: Path) -> None:
    place = tmp_path / "release"
    assert release.export(whole, place, print) == 0 and faults(place) == []
    text = (place / name).read_text()
    assert CHANGES[name][0] in text
    (place / name).write_text(text.replace(*CHANGES[name], 1))
    (seal_anew if sealed else list_anew)(place)
    (line,) = faults(place)
    by_lists = f"{place}: {place / name} has different sha256 values in manifest.json and SHA256SUMS"
    assert line.startswith(f"{place / name}: " if sealed or name == "CITATION.cff" else by_lists)


def test_documents_of_other_software_are_known_by_hash(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "release"
    assert release.export(whole, place, print) == 0
    monkeypatch.setattr(documents, "of_release", lambda about: {"README.md": b"of a later version"})
    assert len(faults(place)) == 1
    version = importlib.metadata.version("scaling-limits")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
    assert faults(place) == []
    told = verify.summary(verify.examine(place, print))
    assert f"documents of software {version} checked by hash only; no faults" in told


def test_changed_and_relisted_table_is_named_and_others_counted(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "release"
    assert release.export(whole, place, print) == 0
    data = (place / "studies.parquet").read_bytes()
    (place / "studies.parquet").write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    list_anew(place)
    capsys.readouterr()
    assert cli.main(["verify", "--store", str(place)]) == 1
    told, summary = capsys.readouterr().out.splitlines()
    named = f"{place}: {place}/studies.parquet has different sha256 values in manifest.json and SHA256SUMS"
    assert told == named
    assert summary.startswith("3 studies, ") and "planned 15 = complete 9" in summary


def test_what_cannot_be_read_is_a_fault() -> None:
    place = Path(tempfile.mkdtemp())  # pytest's own folders can be entered by one user only
    try:
        os.chmod(place, 0o755)
        (place / "study").mkdir()
        (place / "study" / "claim-000001.json").touch(0o000)
        (place / "closed").mkdir(0o000)
        if os.geteuid() == 0:
            os.seteuid(65534)  # root can read everything
        try:
            lines = faults(place)
        finally:
            if os.getuid() == 0:
                os.seteuid(0)
        assert len(lines) == 2
        assert "closed cannot be read (Permission denied)" in lines[0]
        assert lines[1].endswith("claim-000001.json: cannot be read (Permission denied)")
    finally:
        shutil.rmtree(place)


def test_what_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    said = {"file": "no folder", "nothing": "no folder", "empty": "is not a store"}
    for name, words in said.items():
        assert cli.main(["verify", "--store", str(tmp_path / name)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert words in captured.err and captured.err.count("\n") == 1


def test_a_store_that_is_written_to_meanwhile_has_no_faults(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    program = ROOT / "tests" / "attack" / "harm.py"
    command = [sys.executable, str(program), "kill", str(tmp_path / "sources"), str(tmp_path / "made"), "0", "commit"]
    busy = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        looked = 0
        deadline = time.monotonic() + 60
        while looked < 15 and time.monotonic() < deadline:
            newest = max(
                tmp_path.glob("made/commit/killed/[0-9]*/store/*/plan-*"),
                key=lambda path: path.stat().st_mtime,
                default=None,
            )
            if newest:
                assert faults(newest.parent.parent) == []
                looked += 1
        assert looked == 15
    finally:
        busy.kill()
        busy.wait()


def test_large_store_has_a_sample_of_envelopes_checked(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "store"
    shutil.copytree(whole, place)
    study = study_in(place)
    reenvelope(study, lambda head, rows: (head, rows.set_column(2, "step_before", pc.multiply(rows["step_before"], 0))))
    sizes = {each.name: sum(file.stat().st_size for file in each.iterdir()) for each in place.iterdir()}
    drawn = verify.sample(sizes, full=False)
    assert drawn == verify.sample(sizes, full=True) == sizes.keys()
    monkeypatch.setattr(verify, "REBUILD_BYTES", 1)
    (one,) = verify.sample(sizes, full=False)
    assert one == min(verify.sample(sizes, full=False))
    assert verify.sample(sizes, full=True) == sizes.keys()
    assert cli.main(["verify", "--store", str(place)]) == int(one == study.name)
    assert "2 envelopes checked by hash only (--full rebuilds all); " in capsys.readouterr().out
    assert cli.main(["verify", "--store", str(place), "--full"]) == 1
    out = capsys.readouterr().out
    assert f"{study.name}/envelope-000004.arrow: does not match the tables" in out and "--full" not in out
