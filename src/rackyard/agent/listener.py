"""The agent's HTTP listener: /metrics for Prometheus, /healthz for the kubelet.

On anything but the loopback interface /metrics wants a bearer token, from a file that is read at each request, so that
a Secret may be renewed. /healthz says nothing but whether rounds are made, and wants none.
"""

import hmac
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from rackyard.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

LOOPBACK = "127.0.0.1"
MOST_TOKEN = 4096
"""Bytes read of a token file."""
_IDLE = 30.0
"""Seconds of silence after which a connection is closed."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; `token` is the file with the bearer token, None on loopback only."""

    host: str
    port: int
    token: Path | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str, token: Path | None) -> Address:
    """`9402` is that port on loopback, `0.0.0.0:9402` one on every interface. UsageError for what is no address, and
    for one that others reach without a token file that holds a token.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or LOOPBACK
    try:
        local = ipaddress.ip_address(LOOPBACK if host == "localhost" else host).is_loopback
        number = int(port)
        if not 0 <= number <= 65535:
            raise ValueError
    except ValueError:
        raise UsageError(f"--metrics {text}: no address", fix="a port, or ADDRESS:PORT such as 0.0.0.0:9402") from None
    if token is None and not local:
        raise UsageError(
            f"--metrics {text} is reached by others, and without a token it would tell them all",
            fix="name a file with a bearer token: --metrics-token-file",
        )
    if token is not None and not _token(token):
        raise UsageError("the token file can't be read, or is empty", where=str(token))
    return Address(host, number, token)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = _IDLE

    def log_message(self, *_: Any) -> None:
        """A line for each scrape helps nobody."""


class Listener:
    """Serves a registry until `close`. `alive` says whether the agent works."""

    def __init__(self, where: Address, registry: CollectorRegistry, alive: Callable[[], bool]) -> None:
        """ConflictError when the address can't be had."""
        self._token = where.token
        self._alive = alive
        self._metrics = make_wsgi_app(registry)
        server_class = _Server6 if ":" in where.host else _Server
        try:
            self._server: WSGIServer = make_server(where.host, where.port, self._answer, server_class, _Quiet)
        except OSError as error:
            raise ConflictError("can't listen", where=str(where), why=error.strerror or str(error)) from None
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _plain(start, "405 Method Not Allowed")
        if path == "/healthz":
            return _plain(start, "200 OK" if self._alive() else "503 Service Unavailable")
        if path != "/metrics":
            return _plain(start, "404 Not Found")
        if self._token is not None and not _may(environ.get("HTTP_AUTHORIZATION", ""), _token(self._token)):
            return _plain(start, "401 Unauthorized", ("WWW-Authenticate", "Bearer"))
        answer: Iterable[bytes] = self._metrics(environ, start)
        return answer


def _may(said: str, token: bytes) -> bool:
    kind, _, given = said.partition(" ")
    return bool(token) and kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), token)


def _token(file: Path) -> bytes:
    """The token without white space around it; empty where there is none."""
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_TOKEN).strip()
    except OSError:
        return b""


def _plain(start: "StartResponse", status: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain"), *headers])
    return [status.encode() + b"\n"]
