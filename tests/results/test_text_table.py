import csv
import io
import itertools
import json
import random

import pytest

from results import cli, text_table
from results.bad_input import BadInput


def columns(names: list[str], rows: list[list[str]], left: set[str]) -> list[text_table.Column]:
    return [text_table.Column(n, tuple(row[i] for row in rows), n in left) for i, n in enumerate(names)]


def test_a_table_that_fits_is_as_in_a_pipe() -> None:
    made = columns(["study", "steps"], [["a", "1"], ["b", "1"]], {"study"})
    assert (
        text_table.render(made, 0, (), 80)
        == text_table.render(made, 0, (), None)
        == "study  steps\na          1\nb          1"
    )


def test_what_is_constant_goes_into_a_heading_and_totals_stay() -> None:
    names = [f"study_with_a_name-b{size}" for size in (1, 2)]
    rows = [[names[0], "released", "5"], [names[1], "released", "6"], ["total", "", "11"]]
    lines = text_table.render(columns(["study", "state", "planned"], rows, {"study", "state"}), 1, (), 32).split("\n")
    assert lines[0] == "state released" and lines[-1].split() == ["total", "11"]


def test_one_row_gives_its_names_away_and_keeps_what_the_table_is_about() -> None:
    row = [["wine", "fully_connected_64", "momentum", "0.91", "", "32.5", "[8.1, 65.8]", "identified"]]
    names = ["dataset", "model", "optimizer", "sharpness", "note", "critical", "interval", "verdict"]
    made = [c._replace(kept=c.name in names[-3:]) for c in columns(names, row, {*names[:3], "verdict"})]
    words = " ".join(text_table.render(made, 0, ("sharpness",), 34).split())
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
        lines = text_table.render(made, 0, (), width).split("\n")
        assert max(map(len, lines)) <= width
        body = [line.split() for line in lines[-len(rows) :]]
        assert len({line[0] for line in body}) == len(rows)
        assert [line[1:] for line in body] == [row[1:] for row in rows]  # numbers are never cut


def test_columns_left_out_are_named() -> None:
    rows = [[f"{i}", "123,456,789", "987,654,321"] for i in range(3)]
    rows[1][1:] = ["1", "2"]
    lines = text_table.render(columns(["i", "needed", "spare"], rows, set()), 0, ("spare",), 20).split("\n")
    assert " ".join(map(str.strip, lines)).endswith("left out: spare; --wide shows all") and "123,456,789" in lines[1]


def test_csv_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("ä, b", 1, 0.1, None), ("c", 2, float("nan"), True)]
    cli.set_output(csv=True)
    cli.show(("a", "b", "c", "d"), rows, str)
    from_csv = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    cli.set_output(json=True)
    cli.show(("a", "b", "c", "d"), rows, str)
    from_json = json.loads(capsys.readouterr().out)
    cli.set_output()
    assert from_json == [{"a": "ä, b", "b": 1, "c": 0.1, "d": None}, {"a": "c", "b": 2, "c": None, "d": True}]
    assert from_csv == [{k: "" if v is None else str(v) for k, v in row.items()} for row in from_json]
    with pytest.raises(BadInput, match="one of them"):
        cli.set_output(csv=True, json=True)


def test_names_sort_by_their_numbers() -> None:
    names = ["d-b1024-00000000", "d-b2-ffffffff", "d-b1-12345678", "d-b1-0a345678", "c-c10-1", "c-c2-1"]
    assert sorted(names, key=cli.numbered) == [names[i] for i in (5, 4, 3, 2, 1, 0)]
