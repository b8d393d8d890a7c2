"""A proxy before the server of a bucket: it counts requests, loses answers, strips conditions, and answers itself."""

import collections
import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

CONDITIONS = {"if-none-match", "x-goog-if-generation-match"}  # of a write that must not replace an object
OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length"}  # headers that are not passed on
READS = ("GET", "HEAD")


class Request(NamedTuple):
    """A request of a client. Its headers are as the client sent them, since some are signed."""

    method: str
    target: str  # path and query
    headers: tuple[tuple[str, str], ...]
    body: bytes
    number: int  # of this request among those that write, from 1; of a request that reads, the number of writes so far

    @property
    def writes(self) -> bool:
        """Whether the request may change the bucket."""
        return self.method not in READS

    @property
    def conditional(self) -> bool:
        """Whether the request creates an object only if it is absent."""
        return any(name.lower() in CONDITIONS for name, _ in self.headers)


class Answer(NamedTuple):
    """An answer of the server, or of the proxy itself."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


Forward = Callable[[Request], Answer]
Handler = Callable[[Request, Forward], Answer | None]  # None: the connection is closed without an answer


def refusal(status: int, code: str) -> Answer:
    """An answer with an error, as S3, GCS and Azure write it."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'
    return Answer(status, (("Content-Type", "application/xml"),), body.encode())


class Faults:
    """Disturbs requests as its attributes say, which a test can change while requests come. It is a ``Handler``."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()  # requests by method
        self.lost = 0  # answers
        self.stripped = 0  # conditions
        self.strip = False  # conditions are taken from requests
        self.lose: Callable[[Request], bool] = lambda request: False  # of writes, after the server has done them
        self.answer: Callable[[Request], Answer | None] = lambda request: None  # without asking the server
        self._lock = threading.Lock()

    def __call__(self, request: Request, forward: Forward) -> Answer | None:
        """Answers a request."""
        with self._lock:
            self.counts[request.method] += 1
        if own := self.answer(request):
            return own
        loses = request.writes and self.lose(request)
        if self.strip and request.conditional:
            with self._lock:
                self.stripped += 1
            request = request._replace(headers=tuple(h for h in request.headers if h[0].lower() not in CONDITIONS))
        answer = forward(request)
        if loses:
            with self._lock:
                self.lost += 1
            return None
        return answer


class Proxy:
    """Listens on a free port of loopback, and passes each request to a handler."""

    def __init__(self, upstream: str, handler: Handler):
        self.upstream, self.handler = upstream, handler
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.writes = 0  # requests so far
        self._port = 0
        self._listener: _Listener | None = None
        self.listen()

    @property
    def address(self) -> str:
        """The host and port, which stay the same if the proxy refuses connections for a while."""
        return f"127.0.0.1:{self._port}"

    def listen(self) -> None:
        """Accepts connections."""
        self._listener = _Listener(self, self._port)
        self._port = self._listener.server_address[1]
        threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def refuse(self) -> None:
        """Refuses new connections and closes those that are open, as if there were no network."""
        if self._listener is None:
            return
        self._listener.shutdown()
        self._listener.server_close()
        self._listener = None
        with self.lock:
            for each in self.open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def number(self, method: str) -> int:
        """The number of writes so far, this one included."""
        with self.lock:
            self.writes += method not in READS
            return self.writes

    def forward(self, request: Request) -> Answer:
        """Asks the server."""
        # A connection of its own: the server may close an idle one at the moment that a write is sent on it.
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers:
                if name.lower() not in OF_CONNECTION:
                    connection.putheader(name, value)
            if request.body or request.writes:
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        # The length of what a HEAD asks about is in no body.
        dropped = OF_CONNECTION - ({"content-length"} if request.method == "HEAD" else set())
        headers = tuple((name, value) for name, value in response.getheaders() if name.lower() not in dropped)
        return Answer(response.status, headers, body)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: Proxy, port: int):
        self.proxy = proxy
        super().__init__(("127.0.0.1", port), _Connection)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is sent in one piece
    server: _Listener

    def setup(self) -> None:
        super().setup()
        with self.server.proxy.lock:
            self.server.proxy.open.add(self.connection)

    def finish(self) -> None:
        with self.server.proxy.lock:
            self.server.proxy.open.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client or the server has gone
            super().handle()

    def respond(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = tuple(self.headers.items())
        request = Request(self.command, self.path, headers, body, proxy.number(self.command))
        answer = proxy.handler(request, proxy.forward)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if self.command != "HEAD" and answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = respond

    def log_message(self, *words: object) -> None:
        pass


@contextlib.contextmanager
def before(upstream: str, handler: Handler) -> Iterator[Proxy]:
    """A proxy before the server at an address."""
    proxy = Proxy(upstream, handler)
    try:
        yield proxy
    finally:
        proxy.refuse()
