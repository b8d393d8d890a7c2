"""Texts and tables within the width of a terminal: texts to copy stay in one piece, and help keeps its columns."""

import csv
import io
import itertools
import json
import random
import shlex

import pytest

from results import cli, printing, tables, wrapping
from results.bad_input import BadInput

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
    assert wrapping.reflowed(HELP, 62).split("\n") == [
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
def test_wrapped_help_keeps_every_word_and_command(width: int) -> None:
    shown = wrapping.reflowed(HELP, width)
    assert shown.replace("\\\n", " ").replace("# ", "").split() == HELP.replace("# ", "").split()
    assert width < 60 or max(map(len, shown.split("\n"))) <= width


def test_a_meaning_without_room_beside_its_name_is_below_it() -> None:
    assert wrapping.reflowed(f"  {'name' * 8}  what it means, in several words", 46).split("\n") == [
        f"  {'name' * 8}",
        "      what it means, in several words",
    ]


def test_paths_and_commands_stay_in_one_piece_at_any_width() -> None:
    command = f"scaling-limits fit --store {shlex.quote(PATH)}"
    line = f"words before it and more of them, stored in {PATH}/x.png; of `python -m sweeps` k' of k; next: {command}"
    for width in range(20, 200, 7):
        lines = wrapping.wrap(line, width, kept=[PATH])
        assert " ".join(lines) == line
        for whole in (f"{PATH}/x.png;", "`python -m sweeps`", command):
            assert sum(whole in one for one in lines) == 1, (width, whole)
        assert all(len(one) <= max(width, 20) or PATH in one for one in lines)


@pytest.mark.parametrize("form", ["--out={}", "out={}", "{}", "--out={}/", "./{}"])
def test_a_path_that_was_typed_is_not_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    monkeypatch.setattr(printing, "width", lambda stream: 50)

    @cli.guarded
    def main(words: list[str]) -> None:
        printing.answer(f"all of it is at last in the file {PATH}/page.html (0.3 MB); open it in a browser")
        printing.say(f"note: nothing of what was there before is in the folder {PATH} now")

    assert main([form.format(PATH)]) == 0
    for line, whole in zip(capsys.readouterr(), (f"{PATH}/page.html", PATH), strict=True):
        assert any(whole in one for one in line.split("\n"))
        assert line.count("\n") > 1


def columns(names: list[str], rows: list[list[str]], left: set[str]) -> list[tables.Column]:
    return [tables.Column(n, tuple(row[i] for row in rows), n in left) for i, n in enumerate(names)]


def test_a_table_that_fits_is_as_in_a_pipe() -> None:
    made = columns(["study", "steps"], [["a", "1"], ["b", "1"]], {"study"})
    assert (
        tables.render(made, 0, (), 80) == tables.render(made, 0, (), None) == "study  steps\na          1\nb          1"
    )


def test_what_is_constant_goes_into_a_heading_and_totals_stay() -> None:
    names = [f"study_with_a_name-b{size}" for size in (1, 2)]
    rows = [[names[0], "released", "5"], [names[1], "released", "6"], ["total", "", "11"]]
    lines = tables.render(columns(["study", "state", "planned"], rows, {"study", "state"}), 1, (), 32).split("\n")
    assert lines[0] == "state released" and lines[-1].split() == ["total", "11"]


def test_single_row_moves_its_constants_out_of_the_table() -> None:
    row = [["wine", "fully_connected_64", "momentum", "0.91", "", "32.5", "[8.1, 65.8]", "identified"]]
    names = ["dataset", "model", "optimizer", "sharpness", "note", "critical", "interval", "verdict"]
    made = [c._replace(kept=c.name in names[-3:]) for c in columns(names, row, {*names[:3], "verdict"})]
    words = " ".join(tables.render(made, 0, ("sharpness",), 34).split())
    assert words.startswith("dataset wine · model fully_connected_64 · optimizer momentum critical")
    assert "32.5 [8.1, 65.8] identified" in words
    assert words.endswith("left out: sharpness; --wide shows all")


def test_rows_that_differ_still_do_at_any_width() -> None:
    rng = random.Random(3)
    rows = [
        [f"{task}-{rule}-b{2**size}-{rng.getrandbits(64):016x}", f"{rng.randrange(10**6):,}", f"{rng.randrange(99)}"]
        for task, rule, size in itertools.product(
            ("digits-fully_connected", "pydoc-transformer"), ("sgd", "adam"), range(11)
        )
    ]
    made = columns(["study", "steps to target", "trials"], rows, {"study"})
    for width in range(45, 90):
        lines = tables.render(made, 0, (), width).split("\n")
        assert max(map(len, lines)) <= width
        body = [line.split() for line in lines[-len(rows) :]]
        assert len({line[0] for line in body}) == len(rows)
        assert [line[1:] for line in body] == [row[1:] for row in rows]  # numbers are never cut


def test_columns_left_out_are_named() -> None:
    rows = [[f"{i}", "123,456,789", "987,654,321"] for i in range(3)]
    rows[1][1:] = ["1", "2"]
    lines = tables.render(columns(["i", "needed", "spare"], rows, set()), 0, ("spare",), 20).split("\n")
    assert " ".join(map(str.strip, lines)).endswith("left out: spare; --wide shows all") and "123,456,789" in lines[1]


def test_csv_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("ä, b", 1, 0.1, None), ("c", 2, float("nan"), True)]
    printing.set_output(csv=True)
    printing.show(("a", "b", "c", "d"), rows, str)
    from_csv = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    printing.set_output(json=True)
    printing.show(("a", "b", "c", "d"), rows, str)
    from_json = json.loads(capsys.readouterr().out)
    printing.set_output()
    assert from_json == [{"a": "ä, b", "b": 1, "c": 0.1, "d": None}, {"a": "c", "b": 2, "c": None, "d": True}]
    assert from_csv == [{k: "" if v is None else str(v) for k, v in row.items()} for row in from_json]
    with pytest.raises(BadInput, match="one of them"):
        printing.set_output(csv=True, json=True)


def test_names_sort_by_their_numbers() -> None:
    names = ["d-b1024-00000000", "d-b2-ffffffff", "d-b1-12345678", "d-b1-0a345678", "c-c10-1", "c-c2-1"]
    assert sorted(names, key=printing.numbered) == [names[i] for i in (5, 4, 3, 2, 1, 0)]
