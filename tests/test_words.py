"""The language stays plain: no file gains one of the habits that tests/words.py counts."""

from tests import words

TABLE = words.table()


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
