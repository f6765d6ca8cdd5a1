"""A stand-in for an API server that a controller only looks at: lists, watches in which nothing happens, and what was
asked of it.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PLANS = "/apis/rackyard.io/v1alpha1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/rackyard-system/leases/rackyard-controller"
Object = dict[str, Any]


@dataclass
class Api:
    """`lists` are the objects of each path; what is not there is unknown. `refuse` is a code for all that is below
    these beginnings of paths.
    """

    lists: dict[str, list[Object]]
    refuse: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request."""
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [each for each in self.asked if each[0] != "GET"]

    def kubeconfig(self, folder: Path) -> Path:
        """One that names this server."""
        file = folder / "kubeconfig"
        named = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        config = {
            "clusters": [{"name": "it", "cluster": {"server": self.url}}],
            "users": [{"name": "it", "user": {"token": "made-up"}}],
            "contexts": [named],
            "current-context": "it",
        }
        file.write_text(json.dumps(config))
        return file

    def answer(self, path: str) -> tuple[int, Object]:
        for beginning, code in self.refuse.items():
            if path.startswith(beginning):
                return code, {"kind": "Status", "code": code, "message": f"{path} is not for you"}
        if path in self.lists:
            return 200, {"metadata": {"resourceVersion": "7"}, "items": self.lists[path]}
        if path == PLANS:
            return 200, {"kind": "APIResourceList"}
        return 404, {"kind": "Status", "code": 404, "message": "the server could not find the requested resource"}


@contextmanager
def serving(api: Api) -> Iterator[Api]:
    """It listens on a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            api.asked.append((self.command, parts.path))
            code, answer = api.answer(parts.path)
            watched = code == 200 and "watch" in parse_qs(parts.query)
            text = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            if watched:
                self.send_header("Connection", "close")
            else:
                self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if watched:
                self.wfile.flush()
                api.over.wait()
            else:
                self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield api
    finally:
        api.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
