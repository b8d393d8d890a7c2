"""What tells workloads apart that look alike, and the file names that are made of it."""

from analysis.plotting import picture
from analysis.workload_studies import distinction

TARGETS = [{"metric": "validation_loss", "value": value} for value in (0.83, 0.55, 0.28)]


def test_of_options_of_data_only_those_that_differ_are_told() -> None:
    options = {"label": "species", "seed": 0, "test": 0.2, "validation": 0.2}
    plans = {
        "a": {"seed": 0, "dataset_options": options},
        "b": {"seed": 0, "dataset_options": options | {"seed": 1, "test": 0.1}},
        "c": {"seed": 0},  # of data without options
    }
    assert distinction("a", {"a": plans["a"], "b": plans["b"]}) == "dataset.seed=0, dataset.test=0.2"
    assert distinction("c", plans) == ""
    assert distinction("b", {"b": plans["b"]}) == ""


def test_a_file_name_is_no_longer_than_file_systems_take() -> None:
    words = distinction("a", {"a": {"targets": TARGETS, "x": "y" * 200}, "b": {"targets": [], "x": ""}})
    names = [picture.slug(("steps_to_target", words, f"{last}")) for last in range(2)]
    taken: set[str] = set()
    stems = [picture.unique_stem(name, taken) for name in names]
    assert len(set(stems)) == 2
    assert max(len(f"{stem}.png".encode()) for stem in stems) < 200
    assert picture.slug(("short", "a/b")) == "short-a_b"
