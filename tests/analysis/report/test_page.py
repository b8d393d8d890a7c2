"""The page of a store: what it says, that it adds up, and that it asks for nothing."""

import base64
import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.report import markup, page, workload_rows
from results import store
from results.importers import mlperf_rcp
from results.importers.runs import importer, run_map
from results.rules.ledger import Ledger

from ..conftest import Ran, plan, publish
from .conftest import EVIL, Page, parsed

Paged = Callable[..., Page]


def test_report_command_writes_one_reproducible_file(cli: Any, several: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "new" / "a.html", tmp_path / "b.html"
    second.write_text("what was there")
    code, out, _ = cli("report", "--store", several, "--out", first)
    assert (code, out) == (0, f"{first} ({first.stat().st_size / 1e6:.1f} MB); open it in a browser\n")
    assert cli("report", "--store", several, "--out", second)[0] == 0
    assert first.read_bytes() == second.read_bytes()
    assert {path.name for path in tmp_path.rglob("*")} == {"new", "a.html", "b.html"}
    assert first.stat().st_size < 2e6


def test_every_answer_is_a_point_with_study_and_trial(paged: Paged, swept: Path) -> None:
    made = paged(swept)
    assert len(made.data["groups"]) == 3
    points = [point for point in made.rows(0) if not point.get("open")]
    assert len(points) == 30 and len(made.rows(0)) == 33
    answers = {row["study"]: row for row in _steps(swept)}
    for point in points:
        told = dict(line.split(": ", 1) for line in point["label"].split("\n")[1:])
        own = answers[told["study"]]
        assert told["batch size"] == f"{point['x']:,.0f} examples"
        assert told["steps to target"] == f"more than {own['steps_low']:,}, at most {own['steps_high']:,}"
        assert (point["low"], point["high"]) == (own["steps_low"], own["steps_high"])
        assert told["trial"] == f"{own['trial']}, the best of 24"
        assert told["learning rate"] == "0.1"


def _steps(folder: Path) -> list[dict[str, Any]]:
    from analysis.trials import steps_to_target

    return steps_to_target.table(*steps_to_target.load(folder)).to_dict("records")


def test_verdicts_and_regimes_are_those_of_the_fit(paged: Paged, swept: Path) -> None:
    said = paged(swept).said()
    found = workload_rows.read_goals(swept)
    assert [goal.series for goal in found] == ["momentum", "nesterov", "sgd"]
    for goal in found:
        assert workload_rows.pays(goal) in said
        ((_, points_fit),) = workload_rows.answers(goal)
        runs = workload_rows.regimes_in_words(points_fit)
        assert [words for _, words in runs if words not in said] == []
        assert runs[0][1].startswith("perfect scaling ")
    assert said.count("identified") >= 6


def test_the_ledger_adds_up_and_counts_what_has_not_run(paged: Paged, folder: Path) -> None:
    publish(folder, plan(trials=3), {0: Ran([(8, 0.1)]), 1: Ran([(8, float("nan"))], "INFEASIBLE")})
    publish(folder, plan(batch_size=32), {i: Ran([(8, 0.1)]) for i in range(4)})
    store.ask(folder, plan(batch_size=64, trials=5))
    store.ask(folder, plan(optimizer="momentum", trials=7))
    made = paged(folder)
    total = Ledger(*map(sum, zip(*(commit.ledger for commit in store.catalogue(folder)), strict=True)))
    assert total[:3] == (7, 5, 1)
    assert "19 planned = 5 complete + 1 infeasible + 13 missing. It adds up." in made.said()
    assert "1 requested, not run yet" in made.said()
    assert "No trials are pruned, time limit, lost, failed or unstated." in made.said()
    assert [group["optimizer"] for group in made.data["groups"]] == ["sgd", "momentum"]


def test_what_was_not_reached_is_said_and_open(paged: Paged, several: Path) -> None:
    made = paged(several)
    assert "not reached at batch size 2 within 64 steps: best test error 0.25" in made.said()
    (small,) = [i for i, chart in enumerate(made.data["charts"]) if len(chart["groups"]) == 1]
    points = {point["x"]: point for point in made.rows(small)}
    assert [bool(points[size].get("open")) for size in (1, 2, 4)] == [True, True, False]
    assert (points[2]["y"], points[2]["arrow"]) == (64, "↑")
    assert "steps to target: more than 64: not reached within the budget" in points[2]["label"]


def test_every_row_has_as_many_cells_as_its_table_has_columns(paged: Paged, several: Path) -> None:
    counts: list[list[int]] = []  # of each table the cells of every row
    for name, _ in paged(several).elements:
        if name == "table":
            counts.append([])
        elif name == "tr":
            counts[-1].append(0)
        elif name in ("th", "td"):
            counts[-1][-1] += 1
    assert len(counts) == 7 and all(len(set(rows)) == 1 and len(rows) > 1 for rows in counts)


def test_emulated_cores_are_named_and_on_no_curve(paged: Paged, several: Path) -> None:
    made = paged(several)
    timed = [
        made.rows(i) for i, chart in enumerate(made.data["charts"]) if "seconds per epoch" in json.dumps(chart["spec"])
    ]
    assert [[point["x"] for point in points] for points in timed] == [[1, 2]]
    said = made.said()
    assert "emulated" in said
    assert "not drawn: 8 cores, which were emulated" in said
    assert "Two core counts cannot determine a law: the speed-up of more cores is not identified." in said
    assert "Best of 4 trials: Recall@20" in said


def test_text_of_a_store_is_text_and_nothing_else(paged: Paged, several: Path) -> None:
    made = paged(several)
    assert not [attributes for _, attributes in made.elements if attributes.get("id") == "evil"]
    assert "&lt;/script&gt;&lt;b id=evil&gt;AMD&lt;/b&gt; &amp; &quot;sons&#x27; {{data}}" in made.text
    assert EVIL not in made.text
    assert len(made.scripts) == 3


def test_data_cannot_end_their_element() -> None:
    text = page.embed_json({"a": "</script><!-- é \u2028"})
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><!-- é \u2028"}


@pytest.mark.parametrize("turns", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_no_name_turns_the_text_around_it(turns: str) -> None:
    name, shown = f"{turns}gnp.elif", f"\\u{ord(turns):04x}gnp.elif"
    assert markup.tag("td", name, title=name) == f'<td title="{shown}">{shown}</td>'
    text = page.embed_json({name: name})
    assert turns not in text
    assert json.loads(text) == {shown: shown}


def test_nothing_is_asked_for_elsewhere(paged: Paged, several: Path) -> None:
    made = paged(several)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in made.scripts[1:]]
    assert f"script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}';" in made.policy
    assert "default-src 'none'" in made.policy and "connect-src 'none'" in made.policy
    assert "unsafe-eval" not in made.policy
    links = {attributes["href"] for name, attributes in made.elements if name == "a"}
    assert {link for link in links if not str(link).startswith("#")} == {"https://creativecommons.org/licenses/by/4.0/"}
    loading = [attributes for _, attributes in made.elements if {"src", "srcset", "data", "action"} & attributes.keys()]
    assert loading == []
    assert [a["href"] for name, a in made.elements if name == "link"] == ["data:,"]


def test_studies_of_others_alone(paged: Paged, tmp_path: Path, folder: Path) -> None:
    release = tmp_path / "rcp" / "training_4.0.0"
    release.mkdir(parents=True)
    names = ("Benchmark", "Creator", "When", "Platform", "BS", "Hyperparams", "Epochs to converge")
    sizes = {2**i: [40 * (1 + 2**i / 16384) + seed for seed in range(5)] for i in range(9, 15)}
    records = {
        f"resnet_ref_{size}": dict(
            zip(names, ("resnet", "A", "B", "TBD", size, {"optimizer": "sgd"}, runs), strict=True)
        )
        for size, runs in sizes.items()
    }
    (release / "rcps_resnet.json").write_text(json.dumps(records))
    assert mlperf_rcp.run(tmp_path / "rcp", folder, report=lambda _: None) == 0
    made = paged(folder)
    assert [point["x"] for point in made.rows(0)] == sorted(sizes)
    assert "validation shortfall ≤ 0" in made.said()
    assert "6 studies were published by others." in made.said()
    assert "Apache-2.0" in made.said() and "github.com/mlcommons/logging" in made.said()
    assert {group["kind"] for group in made.data["groups"]} == {"recorded"}


def test_own_runs_are_not_called_published(paged: Paged, tmp_path: Path, folder: Path) -> None:
    for size in (8, 16):
        (tmp_path / f"bs{size}.csv").write_text("step,loss\n10,2.0\n20,0.5\n")
    text = "format: csv\nfiles: bs{size}.csv\ndataset: d\nmodel: m\noptimizer: sgd\nbatch_size: path:size\n"
    own = run_map.parse(text + "metrics: {validation_loss: loss}\ntargets: {validation_loss: 1}\n", "map")
    importer.run(tmp_path, folder, own, raw=False, dry_run=False, replace=False, report=lambda _: None)
    said = paged(folder).said()
    assert "2 studies were imported from logs of runs." in said
    assert "Results that were recorded elsewhere, in the same tables." in said and "others" not in said


def test_workload_without_target_shows_its_best_error(paged: Paged, folder: Path) -> None:
    for size, least in ((16, 0.2), (32, 0.125)):
        publish(folder, plan(batch_size=size, targets=()), {0: Ran([(8, 0.5), (64, least)])})
    assert "best test error 0.125 at batch size 32" in paged(folder).said()
    assert paged(folder).data["charts"] == []
    made = paged(folder, ("test_error", 0.3))
    assert [(point["x"], point["high"]) for point in made.rows(0)] == [(16, 64), (32, 64)]


def test_factorizations_alone(paged: Paged, put: Any, folder: Path) -> None:
    put(trials=1)
    made = paged(folder)
    assert "There are no studies over batch sizes" in made.said()
    assert made.data["charts"] == []
    assert "2 planned" not in made.said() and "1 planned = 1 complete. It adds up." in made.said()


def test_repeats_are_told(paged: Paged, folder: Path) -> None:
    again = {1_000_000: Ran([(8, 0.5), (96, 0.1)]), 2_000_000: Ran([(8, 0.5), (128, 0.2)], "COMPLETE")}
    study = plan(trials=1, confirm=2, budget_steps=128)
    publish(folder, study, {0: Ran([(8, 0.5), (64, 0.1)]), **again})
    made = paged(folder)
    (selected,), (confirmed,) = made.rows(0), made.rows(1)
    for point in (selected, confirmed):
        assert "confirmed: median never reached, 96 … never; 1 of 2 fresh seeds reached" in point["label"]
    assert "trial: 0, the best of the search" in confirmed["label"]
    assert "selected: more than 8, at most 64" in confirmed["label"]
    assert (selected.get("open"), confirmed["open"], confirmed["arrow"]) == (None, 1, "↑")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--store", "{tmp}/none", "--out", "{tmp}/a.html"], "no store at {tmp}/none. Create one with"),
        (["--store", "{tmp}", "--out", "{tmp}/a.html"], "no study in {tmp} has run yet. Fill it with"),
        (["--store", "{swept}", "--out", "{tmp}"], "--out {tmp} is a folder. Name a file, such as {tmp}/report.html."),
        (["--store", "{swept}", "--out", "/proc/none/a.html"], "cannot write /proc/none/a.html"),
        (["--store", "{swept}", "--out", "{tmp}/a", "--metric", "test_error"], "--metric and --value need each other"),
        (
            ["--store", "{swept}", "--out", "{tmp}/a", "--metric", "test_loss", "--value", "1"],
            "unknown metric 'test_loss'; ",
        ),
    ],
)
def test_a_mistake_is_one_line(cli: Any, swept: Path, tmp_path: Path, arguments: list[str], line: str) -> None:
    places = {"tmp": tmp_path, "swept": swept}
    code, out, err = cli("report", *(word.format(**places) for word in arguments))
    assert (code, out) == (2, "")
    *progress, last = err.splitlines()  # progress is shown where it takes long
    assert last.startswith(f"error: {line.format(**places)}")
    assert all(one.startswith("report: ") for one in progress)
    assert list(tmp_path.iterdir()) == []


def test_without_the_charts_a_line_says_how_to_get_them(
    cli: Any, swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    code, _, err = cli("report", "--store", swept, "--out", tmp_path / "a.html")
    assert (code, err) == (
        2,
        "error: The report needs vl-convert-python to draw charts. Run pip install 'scaling-limits[report]'.\n",
    )


def test_release_gives_the_page_of_its_store_with_hashes(paged: Paged, swept: Path, tmp_path: Path) -> None:
    from results.release import release

    assert release.export(swept, tmp_path / "release", lambda _: None) == 0
    hashes = re.compile(r"<code>([0-9a-f]{64})</code>")
    released, stored = (paged(folder).text for folder in (tmp_path / "release", swept))
    assert hashes.sub("", released) == hashes.sub("", stored)
    sums = dict(re.findall(r"^(\w+)  (\S+)$", (tmp_path / "release" / "SHA256SUMS").read_text(), re.M))
    assert {sums[found] for found in hashes.findall(released)} == {
        "studies.parquet", "trials.parquet", "measurements.parquet"
    }  # fmt: skip


def test_a_store_may_grow_while_it_is_read(
    paged: Paged, folder: Path, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(folder, plan(batch_size=16, trials=1), {0: Ran([(8, 0.1)])})
    read = workload_rows.read_goals

    def grows(*arguments: Any) -> Any:
        found = read(*arguments)
        publish(folder, plan(batch_size=32, trials=1), {0: Ran([(8, 0.1)])})
        put(cores=2, trials=1)
        return found

    monkeypatch.setattr(workload_rows, "read_goals", grows)
    made = paged(folder)
    assert "3 planned = 2 complete + 1 missing. It adds up." in made.said()
    assert [group["kind"] for group in made.data["groups"]] == ["batch", "cores"]


def test_groups_have_keys_of_their_own(paged: Paged, folder: Path) -> None:
    for seed in (0, 1):
        publish(folder, dataclasses.replace(plan(), seed=seed), {0: Ran([(8, 0.1)])})
    keys = [group["key"] for group in paged(folder).data["groups"]]
    assert len(set(keys)) == 2
    assert {key.rpartition("/")[2] for key in keys} == {"seed=0", "seed=1"}


def test_what_was_parsed_is_the_page(several: Path, tmp_path: Path) -> None:
    page.write(several, tmp_path / "a.html", None, lambda _: None)
    made = parsed((tmp_path / "a.html").read_text("utf-8"))
    assert "vegaEmbed" in made.scripts[1] and len(made.scripts) == 3
    places = [int(str(a["data-chart"])) for _, a in made.elements if "data-chart" in a]
    assert places == list(range(len(made.data["charts"])))
    groups = {place for _, a in made.elements for place in str(a.get("data-groups") or "").split()}
    assert groups == {str(i) for i in range(len(made.data["groups"]))}
