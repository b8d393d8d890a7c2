"""The language stays plain: no file gains one of the habits that tests/words.py counts."""

import ast

import pytest

from tests import words

TABLE = words.table(words.TABLE)


def test_no_habit_of_any_file_grows():
    risen = []
    for path in words.files():
        found = words.counts(words.prose(path))
        allowed = TABLE.get(words.name(path)) or words.limits(found["words"])
        risen += [
            f"{words.name(path)}: {habit} {found[habit]} > {most}"
            for habit, most in allowed.items()
            if found[habit] > most
        ]
    assert not risen, "rewrite the new sentences in plain English"


def test_the_table_names_only_files_that_exist():
    gone = TABLE.keys() - {words.name(path) for path in words.files()}
    assert not gone, f"remove {sorted(gone)}: run python tests/words.py"


def test_habits_are_counted_in_prose_only():
    text = "It says so; nobody knows what it is. As many as there are, alone. It is known."
    assert words.counts(text) == {
        "words": 17, "says": 2, "what": 1, "nobody": 1, "so_many": 1, "alone": 1, "semicolons": 1,
    }  # fmt: skip


def test_code_is_no_prose(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Plain words.\n\n```sh\necho a; echo b\n```\n\nUse `x; y` here.\n")
    assert words.counts(words.prose(page))["semicolons"] == 0
    module = tmp_path / "module.py"
    module.write_text('"""Returns the sum of two numbers; slowly."""\nSHORT = "a; b"\n')
    assert words.counts(words.prose(module))["semicolons"] == 1


def test_a_new_file_has_the_limits_of_the_other_projects():
    assert words.limits(10_000) == {habit: rate for habit, (_, rate) in words.HABITS.items()}
    assert words.limits(100)["semicolons"] == 1 and words.limits(100)["alone"] == 0


def test_makefile_and_toml_count_comments_and_sentences(tmp_path):
    makefile = tmp_path / "Makefile"
    makefile.write_text("# Says nothing; twice.\nbuild:  ## what it is for\n\techo a; echo b\n")
    assert words.prose(makefile).splitlines() == ["Says nothing; twice.", "what it is for"]
    options = tmp_path / "options.toml"
    options.write_text('name = "a; b"\n[markers]  # of tests; slow\n"slow: minutes; not seconds, so they say"\n')
    assert words.counts(words.prose(options))["semicolons"] == 2


def test_names_of_tests_are_prose(tmp_path):
    module = tmp_path / "test_module.py"
    module.write_text("def test_what_nobody_says():\n    pass\n\n\ndef what_nobody_says():\n    pass\n")
    assert words.prose(module) == "test what nobody says"


@pytest.mark.parametrize("kind", ["pronouns", "vague"])
def test_no_room_gains_names_that_are_no_nouns(kind):
    """At most five pronouns in a thousand names are allowed in any room."""
    table, rooms = words.table(words.NAMES), words.names_of_rooms()
    few = {room: counts["names"] * words.MOST_PRONOUNS if kind == "pronouns" else 0 for room, counts in rooms.items()}
    most = {room: max(table[room][kind], few[room]) for room in rooms}
    risen = {room: (counts[kind], most[room]) for room, counts in rooms.items() if counts[kind] > most[room]}
    assert not risen, "name the thing that the variable holds"


def test_names_are_counted_where_they_are_assigned():
    source = "for one in found:\n    own, value = one\n    row = value\n"
    assert words.names([ast.parse(source)]) == {"names": 4, "pronouns": 2, "vague": 1}


def test_names_of_tests_are_short():
    """At most 60 letters, as in test_<thing>_<behaviour>."""
    paths = [path for path in words.files() if words.name(path).startswith("tests/") and path.suffix == ".py"]
    functions = {
        (words.name(path), test) for path in paths for test in words.tests(ast.walk(ast.parse(path.read_text())))
    }
    assert len(functions) > 1000
    assert not sorted(function for function in functions if len(function[1]) > 60), "say the thing and its behaviour"
