import json
import time

import pytest

from results.importers import untrusted
from results.importers.untrusted import Unusable


def test_repeated_name_is_found_in_linear_time() -> None:
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


def test_csv_file_needs_no_import_and_the_line_says_so(tmp_path, capsys):
    from results.__main__ import main

    assert main(["import", "csv", str(tmp_path), f"--store={tmp_path / 'store'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: unknown source 'csv'; choices: ") and "python -m results import runs PATH" in line


def test_warnings_with_the_same_reason_share_a_line() -> None:
    warnings = untrusted.ImportWarnings(by_reason=True)
    for number in range(10):
        warnings.add(f"run{number}.csv", "has no entry of its config world")
    warnings.add("other.csv", "is empty")
    lines: list[str] = []
    warnings.report(lines.append)
    assert lines == [
        "run0.csv: has no entry of its config world (and 9 more)",
        "other.csv: is empty",
    ]


def test_an_accuracy_is_no_metric_and_the_line_names_the_error(tmp_path, capsys):
    from results.__main__ import main

    (tmp_path / "map.yaml").write_text(
        "format: csv\nfiles: 'b{batch_size}.csv'\ndataset: d\nmodel: m\noptimizer: sgd\nbatch_size: path:batch_size\n"
        "step: step\nmetrics: {accuracy: acc}\n"
    )
    assert main(["import", "runs", str(tmp_path), f"--map={tmp_path / 'map.yaml'}", f"--store={tmp_path / 's'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "unknown metric 'accuracy'; metrics are errors" in line and "`validation_error: 1 - TAG`" in line
