"""Plain requests to the test bed's API server, over connections that are kept: one for each thread that asks.

Standard library only and apart from the product's client, so that a test of the product does not lean on it.
"""

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from rackyard.errors import NotYet, RackyardError

T = TypeVar("T")
R = TypeVar("R")

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
YAML = "application/yaml"

AT_ONCE = 8
"""Requests under way in bulk calls; with more, the API server's share of two cores does not grow."""


class Refused(RackyardError):
    """The API server said no; `code` is the HTTP status, `reason` and `message` are its words."""

    def __init__(self, method: str, path: str, code: int, body: bytes) -> None:
        try:
            said = json.loads(body)
        except ValueError:
            said = {}
        self.code = code
        self.reason = str(said.get("reason", ""))
        self.message = str(said.get("message", "")) or body[:500].decode("utf-8", "replace")
        super().__init__(f"{method} {path}: {code} {self.reason}", why=self.message)


class Api:
    """One API server and one user's token; several threads may use it."""

    def __init__(self, server: str, token: str, ca: str) -> None:
        self.server = server
        self._token = token
        self._tls = ssl.create_default_context(cadata=ca)
        self._local = threading.local()

    @classmethod
    def of(cls, kubeconfig: Path) -> "Api":
        """The cluster and user of a kubeconfig of the test bed, which is JSON."""
        said = json.loads(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = said["clusters"][0]["cluster"], said["users"][0]["user"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode("ascii")
        return cls(cluster["server"], user["token"], ca)

    def get(self, path: str, **params: str) -> Any:
        """The object at a path. Refused when the server says no, OSError when there is none."""
        return self.send("GET", path, None, params=params)

    def post(self, path: str, body: Any, kind: str = "application/json") -> Any:
        """Create an object; `body` is encoded unless it is bytes."""
        return self.send("POST", path, body, kind)

    def put(self, path: str, body: Any) -> Any:
        """Replace an object."""
        return self.send("PUT", path, body)

    def patch(self, path: str, body: Any, kind: str = MERGE) -> Any:
        """Change an object."""
        return self.send("PATCH", path, body, kind)

    def delete(self, path: str, body: Any = None, **params: str) -> Any:
        """Delete an object, or what a list path and its selectors name."""
        return self.send("DELETE", path, body, params=params)

    def items(self, path: str, **params: str) -> list[Any]:
        """All items, page by page."""
        found: list[Any] = []
        params = {"limit": "2000", **params}
        while True:
            page = self.get(path, **params)
            found += page["items"]
            if not (more := page["metadata"].get("continue")):
                return found
            params["continue"] = more

    def send(
        self,
        method: str,
        path: str,
        body: Any,
        kind: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Any:
        """One request; its answer decoded. A kept connection that the server has closed is opened anew, once."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = kind
        url = f"{path}?{urlencode(params)}" if params else path
        fresh = not hasattr(self._local, "connection")
        try:
            code, answer = self._once(method, url, content, headers)
        except (OSError, http.client.HTTPException):
            if fresh:
                raise
            code, answer = self._once(method, url, content, headers)
        if not 200 <= code < 300:
            raise Refused(method, path, code, answer)
        return json.loads(answer) if answer.startswith((b"{", b"[")) else answer.decode("utf-8", "replace")

    def close(self) -> None:
        """Close this thread's connection."""
        connection: http.client.HTTPSConnection | None = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def _once(self, method: str, url: str, content: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            address = urlsplit(self.server)
            connection = http.client.HTTPSConnection(
                address.hostname or "", address.port, timeout=60, context=self._tls
            )
            self._local.connection = connection
        try:
            connection.request(method, url, body=content, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            self.close()
            raise

    def many(self, work: Callable[[T], R], things: Iterable[T], at_once: int = AT_ONCE) -> list[R]:
        """`work(thing)` for each, some at once, results in order; the first error is raised when all have ended."""

        def last(_: int) -> None:
            gate.wait()  # so that every thread of the pool gets one, and none gets two
            self.close()

        with ThreadPoolExecutor(at_once, thread_name_prefix="testbed-api") as pool:
            futures = [pool.submit(work, thing) for thing in things]
            try:
                return [future.result() for future in futures]
            finally:
                gate = threading.Barrier(at_once)
                list(pool.map(last, range(at_once)))


def until(what: str, check: Callable[[], T], timeout: float = 60.0, pause: float = 0.1) -> T:
    """The first true answer of `check`. NotYet after `timeout` seconds without one; `what` says what was waited for."""
    deadline = time.monotonic() + timeout
    while True:
        if found := check():
            return found
        if time.monotonic() >= deadline:
            raise NotYet(f"{what}: not within {timeout:.0f} s")
        time.sleep(pause)
