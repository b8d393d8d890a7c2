"""An archive in the published format, with known answers, through the commands: import, then analysis."""

import io
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

import analysis.__main__ as analysis_cli
import results.__main__ as results_cli


@pytest.mark.slow
def test_the_released_answers_come_through_the_commands(
    tmp_path: Path, archives: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    # Every 20th study, so that several targets and all metrics are there, with more than 100 complete trials each.
    answers = archives.write(tmp_path / "data.tar.bz2", studies=archives.published()[::20], rows=12)
    command = ["import", "shallue2018", str(tmp_path / "data.tar.bz2"), "--store", str(tmp_path / "store")]
    assert results_cli.main(command) == 2
    assert "--any-checksum" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
    assert results_cli.main([*command, "--any-checksum"]) == 0
    assert results_cli.main(["verify", "--store", str(tmp_path / "store")]) == 0
    capsys.readouterr()
    known = {(a.path, a.metric, a.value): (a.steps, a.trial) for a in answers}
    questions = {(metric, value) for _, metric, value in known}
    assert ("validation_error", 0.01) in questions
    found = {}
    for metric, value in questions:
        line = ["--rule", "released", "--first", "100", "--metric", metric, "--value", repr(value), "--csv"]
        assert not analysis_cli.main(["steps", "--store", str(tmp_path / "store"), *line])
        for row in pd.read_csv(io.StringIO(capsys.readouterr().out)).to_dict("records"):
            path = "/".join(str(row[name]) for name in ("dataset", "model", "optimizer", "batch_size"))
            if (path, metric, value) in known:
                reached = pd.notna(row["steps_high"])
                found[path, metric, value] = (row["steps_high"], row["trial"]) if reached else (None, None)
    assert found == known
    assert sum(steps is not None for steps, _ in known.values()) > 10
