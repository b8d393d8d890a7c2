"""Whoever is told how a sweep gets on: a real command, and a real server."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results import exit_codes
from results.bad_input import BadInput
from results.cli import Terminated
from sweeps import __main__ as sweeps_cli, notify, overrides, planning
from sweeps.notify import Hook


@pytest.fixture
def server() -> Iterator[tuple[str, list[Any]]]:
    """The URL of a server, and what is posted to it; at /broken it answers 500."""
    posted: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path == "/broken" else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{one.server_port}", posted
        one.shutdown()
        thread.join()


def without_time(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(each.pop("time") for each in told)
    return told


def test_a_command_and_a_server_are_told_the_same(tmp_path: Path, server: tuple[str, list[Any]]) -> None:
    url, posted = server
    file = tmp_path / "events"
    for target in (f"cat >> {file}; echo >> {file}", url):
        hook = Hook(target, tmp_path)

        def run(hook: Hook = hook) -> int:
            hook.send(notify.FAILURE, "[1/2] x: failed: a “mistake”", study="x")
            return 1

        assert hook.around(run) == 1
    line = "the sweep ended with exit code 1"
    expected = [
        {"event": "failure", "store": str(tmp_path), "line": "[1/2] x: failed: a “mistake”", "study": "x"},
        {"event": "end", "store": str(tmp_path), "line": line, "exit_code": 1},
    ]
    assert without_time([json.loads(text) for text in file.read_text().splitlines()]) == expected
    assert without_time(posted) == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("x"), exit_codes.INVALID),
        (KeyboardInterrupt(), exit_codes.INTERRUPTED),
        (Terminated(), exit_codes.TERMINATED),
        (ZeroDivisionError(), exit_codes.FAILED),
    ],
)
def test_an_end_by_an_exception_is_told(
    error: BaseException, code: int, tmp_path: Path, server: tuple[str, list[Any]]
) -> None:
    def run() -> int:
        raise error

    with pytest.raises(type(error)):
        Hook(server[0], tmp_path).around(run)
    assert [each["exit_code"] for each in server[1]] == [code]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("echo no mail >&2; exit 3", "the command ended with exit code 3: no mail"),
        ("sleep 60", "the command took longer than 0.3 s"),
        ("URL/broken", "HTTP Error 500: Internal Server Error"),
    ],
)
def test_if_it_fails_one_line_warns(
    target: str,
    why: str,
    tmp_path: Path,
    server: tuple[str, list[Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if target.startswith("sleep"):
        monkeypatch.setattr(notify, "TIMEOUT", 0.3)
    hook = Hook(target.replace("URL", server[0]), tmp_path)
    hook.send(notify.STALL, "a line", study="x")
    assert hook.around(lambda: 0) == 0
    assert capsys.readouterr().err == f"note: notify failed: {why}. The sweep continues.\n"


def test_a_sweep_tells_of_its_end_and_no_study_knows(
    tmp_path: Path, server: tuple[str, list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["trials=1", "task.budget.steps=2", f"notify={server[0]}", f"store={tmp_path}"]
    request = planning.request(overrides.command_line(line))
    (words,) = request.words[request.studies[0].name]
    assert request.notify == server[0] and words == ("trials=1", "task.budget.steps=2")
    assert sweeps_cli.main(line) == 0
    assert [(each["event"], each["exit_code"]) for each in server[1]] == [("end", 0)]
    assert sweeps_cli.main([*line[:2], "notify=", line[3]]) == exit_codes.INVALID
    assert "error: notify= is empty. Set a command or a URL" in capsys.readouterr().err
