"""Answers the API server's question for a container's log (`kubectl logs`), on loopback.

The API server asks the node over HTTPS and, as test beds have it, does not check whose certificate that is.
"""

import http.server
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from rackyard.errors import UsageError
from testbed.kubelet import logs
from testbed.kubelet.environ import ADDRESS

_PIECE = 1 << 16
_POLL = 0.2


class LogServer:
    """Serves until it is closed; `port` is None where there is no openssl to make a certificate with."""

    def __init__(self, state: Path, running: Callable[[str, str], bool]) -> None:
        """`running(namespace, pod)`: whether more may come, for those who follow."""
        self.port: int | None = None
        self._over = threading.Event()
        if (certificate := _certificate(state)) is None:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        handler = type("Handler", (_Handler,), {"state": state, "running": staticmethod(running), "over": self._over})
        self._server = _Server((ADDRESS, 0), handler)
        self._server.context = context
        self.port = self._server.server_port
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.1,), name="kubelet-logs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self.port is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self.port = None


class _Server(http.server.ThreadingHTTPServer):
    context: ssl.SSLContext

    def get_request(self) -> tuple[socket.socket, Any]:
        request, address = super().get_request()
        # The handshake comes with the first read, in a thread of its own: a slow peer must not hold up the others.
        return self.context.wrap_socket(request, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_: object) -> None:
        """A reader that went away, or no TLS: nothing to say."""


class _Handler(http.server.BaseHTTPRequestHandler):
    state: Path
    running: Callable[[str, str], bool]
    over: threading.Event
    timeout = 30

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        words = [unquote(word) for word in parts.path.split("/")]
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if len(words) != 5 or words[1] != "containerLogs":
            self.send_error(404)
            return
        _, _, namespace, pod, container = words
        try:
            runs = logs.runs(logs.find(self.state, namespace, pod), container)
        except UsageError:
            runs = []
        previous = query.get("previous") == "true"
        if len(runs) < (2 if previous else 1):
            self.send_error(404, "no such log")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        follow = query.get("follow") == "true" and not previous
        self._send(runs[-2 if previous else -1], query, (lambda: self.running(namespace, pod)) if follow else None)

    def _send(self, path: Path, query: dict[str, str], more: Callable[[], bool] | None) -> None:
        with path.open("rb") as file:
            if (tail := query.get("tailLines", "")).isdigit():
                file.seek(_tail(path.read_bytes(), int(tail)))
            left = int(query["limitBytes"]) if query.get("limitBytes", "").isdigit() else None
            while left is None or left > 0:
                going = more is not None and not self.over.is_set() and more()  # before reading: its last words count
                piece = file.read(_PIECE if left is None else min(_PIECE, left))
                if piece:
                    self.wfile.write(piece)
                    left = None if left is None else left - len(piece)
                elif going:
                    time.sleep(_POLL)
                else:
                    return

    def log_message(self, *_: object) -> None:
        pass


def _tail(text: bytes, lines: int) -> int:
    """Where the last so many lines begin."""
    at = len(text) - text.endswith(b"\n")
    for _ in range(lines):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1 if lines else len(text)


def _certificate(state: Path) -> Path | None:
    openssl = shutil.which("openssl")
    if openssl is None:
        return None
    path = state / "logs.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "30", "-subj", "/CN=process-kubelet", "-addext", f"subjectAltName=IP:{ADDRESS}"]
    made = subprocess.run([*command, "-keyout", "-", "-out", "-"], capture_output=True, check=False)
    if made.returncode != 0:
        return None
    path.touch(mode=0o600)
    path.write_bytes(made.stdout)
    return path
