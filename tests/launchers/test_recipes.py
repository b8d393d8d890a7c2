"""The recipes for other tools: our words in them are valid, and they restart and wait as our own launchers do."""

import re
import shlex
from pathlib import Path

import yaml

from results import exit_codes
from sweeps import planning
from sweeps.launchers import attempt
from sweeps.overrides import command_line

PAGE = (Path(__file__).parents[2] / "docs" / "launch" / "recipes.md").read_text()


def test_the_yaml_of_skypilot_is_short_and_valid() -> None:
    (text,) = re.findall("```yaml\n(.*?)```", PAGE, re.DOTALL)
    task = yaml.safe_load(text)
    assert len(text.splitlines()) <= 16
    assert set(task) == {"name", "workdir", "num_nodes", "resources", "setup", "run"}
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == list(exit_codes.free_restarts)


def test_recipes_have_valid_words(tmp_path: Path) -> None:
    lines = re.findall(r"scaling-limits sweep (.*)", PAGE.replace("\\\n", " "))
    assert len(lines) == 3
    for line in lines:
        words = [word for word in shlex.split(line.replace("'", "")) if not word.startswith(("launcher", "store="))]
        assert planning.request(command_line([*words, f"store={tmp_path}"])).studies
    assert PAGE.count("launcher=hosts") == 4
    assert "have not been run" in PAGE
    assert f"--wait={attempt.NODE_SECONDS} " in PAGE and "--kill-on-bad-exit=0" in PAGE
