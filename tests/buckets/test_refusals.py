"""Buckets that cannot hold a store: the cause is one line, the exit code is 2, and no secret is printed."""

import base64
import subprocess
from collections.abc import Iterator

import pytest

from results import exit_codes

from . import proxy, stores
from .proxy import Faults, Proxy, refusal
from .servers import BUCKET, Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.buckets

WRONG = "wrong-secret-of-the-tests"
SWEEP = ("sweeps", "batch_size=32", *stores.STUDY)
# By server, the variable that is wrong, and the answer of servers that do not check credentials.
CREDENTIALS = {
    "seaweedfs": ("AWS_SECRET_ACCESS_KEY", WRONG, None),
    "moto": ("AWS_SECRET_ACCESS_KEY", WRONG, (403, "SignatureDoesNotMatch")),
    "fake_gcs": ("GOOGLE_BEARER_TOKEN", WRONG, (401, "AuthenticationRequired")),
    "azurite": ("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(WRONG.encode()).decode(), None),
}
READERS = {
    "status": ("sweeps.status", "store={}"),
    "verify": ("results", "verify", "--store", "{}"),
    "steps": ("analysis", "steps", "--store", "{}"),
}


@pytest.fixture
def running(server: Server, faults: Faults) -> Iterator[Proxy]:
    with proxy.before(server.address, faults) as one:
        yield one


def check(ended: subprocess.CompletedProcess[str], server: Server, *words: str) -> None:
    """It was the user's mistake, in one line with these words and no secret."""
    output = ended.stdout + ended.stderr
    assert ended.returncode == exit_codes.INVALID, output
    assert ended.stdout == "", output
    assert len(ended.stderr.splitlines()) == 1 and len(ended.stderr) < 400, output
    assert all(word in ended.stderr for word in words), output
    assert not [secret for secret in [WRONG, *stores.secrets(server)] if secret in output]


def test_a_server_that_ignores_the_condition_is_refused(unsigned: Server, faults: Faults) -> None:
    url = unsigned.store("ignored")
    faults.strip = True
    with proxy.before(unsigned.address, faults) as one:
        ended = stores.run([*SWEEP, f"store={url}"], unsigned.through(one.address))
    check(ended, unsigned, BUCKET)
    assert faults.stripped > 0
    assert not [key for key in stores.keys(unsigned, url) if "digits" in key]


def test_a_wrong_credential(server: Server, running: Proxy, faults: Faults) -> None:
    variable, value, answer = CREDENTIALS[server.name]
    through = server.through(running.address)
    wrong = through._replace(environment=through.environment | {variable: value})
    if answer:
        faults.answer = lambda request: refusal(*answer)
    check(stores.run([*SWEEP, f"store={server.store('wrong')}"], wrong), wrong, BUCKET)


def test_a_missing_bucket(server: Server) -> None:
    url = server.store("missing").replace(BUCKET, "nobucket")
    check(stores.run([*SWEEP, f"store={url}"], server), server, "nobucket")


def test_a_read_only_bucket(server: Server, running: Proxy, faults: Faults) -> None:
    faults.answer = lambda request: refusal(403, "AccessDenied") if request.writes else None
    ended = stores.run([*SWEEP, f"store={server.store('read-only')}"], server.through(running.address))
    check(ended, server, BUCKET)


def test_no_network(server: Server, running: Proxy) -> None:
    running.refuse()
    ended = stores.run([*SWEEP, f"store={server.store('offline')}"], server.through(running.address))
    check(ended, server, BUCKET)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("cause", ["missing", "credential", "network"])
def test_commands_that_read(server: Server, running: Proxy, faults: Faults, name: str, cause: str) -> None:
    through, url = server.through(running.address), server.store("read")
    if cause == "missing":
        url = url.replace(BUCKET, "nobucket")
    elif cause == "credential":
        faults.answer = lambda request: refusal(403, "AccessDenied")
    else:
        running.refuse()
    words = [word.format(url) for word in READERS[name]]
    check(stores.run(words, through), through, url.split("/")[2])


def test_a_key_that_is_not_one_is_not_printed(server: Server) -> None:
    variable, *_ = CREDENTIALS[server.name]
    garbled = f"{WRONG} with spaces!"
    wrong = server._replace(environment=server.environment | {variable: garbled})
    ended = stores.run([*SWEEP, f"store={server.store('garbled')}"], wrong)
    assert "Traceback" not in ended.stderr and garbled not in ended.stdout + ended.stderr
    if server.name in ("seaweedfs", "azurite"):  # the others do not check it
        check(ended, wrong, BUCKET)
    else:
        assert ended.returncode == exit_codes.DONE, ended.stderr
