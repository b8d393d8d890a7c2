"""Texts within the width of a terminal: whatever is to be copied stays in one piece, and help keeps its columns."""

import shlex

import pytest

from results import cli, prose

PATH = "my results/a store with spaces/of many words"
HELP = """\
Steps to target: how many steps the best trial of every study needed to reach the target of its own study, and
of no other one.

  python -m analysis steps --store results/local --metric validation_error --value 0.01 --rule released
  a line of its own
examples:
  fit      critical batch sizes of every curve of a store, with intervals and with verdicts
  trials   how many trials

--k N        the first N trials of every study count; without it, as many of every study of a curve as its study with
             the fewest has.
  seed: 0               # of the search and of every trial, which decides what is drawn
                        # and in which order
"""


def test_help_within_a_width_keeps_its_columns_and_its_commands() -> None:
    assert prose.reflowed(HELP, 62).split("\n") == [
        "Steps to target: how many steps the best trial of every study",
        "needed to reach the target of its own study, and of no other",
        "one.",
        "",
        "  python -m analysis steps --store results/local \\",
        "    --metric validation_error --value 0.01 --rule released",
        "  a line of its own",
        "examples:",
        "  fit      critical batch sizes of every curve of a store,",
        "           with intervals and with verdicts",
        "  trials   how many trials",
        "",
        "--k N        the first N trials of every study count; without",
        "             it, as many of every study of a curve as its",
        "             study with the fewest has.",
        "  seed: 0               # of the search and of every trial,",
        "                        # which decides what is drawn and in",
        "                        # which order",
        "",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_word_of_help_is_there_and_every_command_is_the_same(width: int) -> None:
    shown = prose.reflowed(HELP, width)
    assert shown.replace("\\\n", " ").replace("# ", "").split() == HELP.replace("# ", "").split()
    assert width < 60 or max(map(len, shown.split("\n"))) <= width


def test_a_meaning_without_room_beside_its_name_is_below_it() -> None:
    assert prose.reflowed(f"  {'name' * 8}  what it means, in several words", 46).split("\n") == [
        f"  {'name' * 8}",
        "      what it means, in several words",
    ]


def test_paths_and_commands_stay_in_one_piece_at_any_width() -> None:
    command = f"scaling-limits fit --store {shlex.quote(PATH)}"
    line = f"words before it and more of them, stored in {PATH}/x.png; of `python -m sweeps` k' of k; next: {command}"
    for width in range(20, 200, 7):
        lines = prose.wrap(line, width, kept=[PATH])
        assert " ".join(lines) == line
        for whole in (f"{PATH}/x.png;", "`python -m sweeps`", command):
            assert sum(whole in one for one in lines) == 1, (width, whole)
        assert all(len(one) <= max(width, 20) or PATH in one for one in lines)


@pytest.mark.parametrize("form", ["--out={}", "out={}", "{}", "--out={}/", "./{}"])
def test_a_path_that_was_typed_is_not_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    monkeypatch.setattr(cli, "width", lambda stream: 50)

    @cli.guarded
    def main(words: list[str]) -> None:
        cli.answer(f"all of it is at last in the file {PATH}/page.html (0.3 MB); open it in a browser")
        cli.say(f"note: nothing of what was there before is in the folder {PATH} now")

    assert main([form.format(PATH)]) == 0
    for line, whole in zip(capsys.readouterr(), (f"{PATH}/page.html", PATH), strict=True):
        assert any(whole in one for one in line.split("\n"))
        assert line.count("\n") > 1
