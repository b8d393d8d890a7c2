import json
import time

import pytest

from results.importers import untrusted
from results.importers.untrusted import Unusable


def test_a_name_that_is_there_twice_is_found_in_no_time_among_however_many() -> None:
    names = [f'"name {i}": {i}' for i in range(60_000)]
    began = time.perf_counter()
    with pytest.raises(Unusable, match=r"has 'name 59999' twice"):
        untrusted.json_object(f"{{{', '.join([*names, names[-1]])}}}".encode(), untrusted._STRICT)
    assert time.perf_counter() - began < 2  # looking through all names for each of them takes a minute


@pytest.mark.parametrize("depth", [untrusted.MOST_DEPTH, 900, 5000, 200_000])
def test_json_of_any_depth_is_unusable_and_no_traceback(depth: int) -> None:
    with pytest.raises(Unusable, match="is not JSON"):
        untrusted.json_object(b'{"a": ' + b"[" * depth + b"]" * depth + b"}", json.JSONDecoder())


def test_json_of_a_sane_depth_is_read() -> None:
    depth = untrusted.MOST_DEPTH - 1
    assert untrusted.json_object(b'{"a": ' + b"[" * depth + b"]" * depth + b"}", json.JSONDecoder()).keys() == {"a"}


def test_a_csv_file_needs_no_import_and_the_line_says_what_takes_it(tmp_path, capsys):
    from results.__main__ import main

    assert main(["import", "csv", str(tmp_path), f"--store={tmp_path / 'store'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: unknown source 'csv'; choices: ") and "python -m results import runs PATH" in line
