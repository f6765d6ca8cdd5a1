"""A stand-in for the API server, in this process: nodes, their labels and who set them, and no more than labels need.

What it answers was compared with kube-apiserver: the tests that use the fixture `cluster` run on both.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Answer = tuple[int, dict[str, Any]]


@dataclass
class StandIn:
    """`refuse` are answers to give before any true one: (status code, headers). `requests` is all that was asked."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    owners: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    refuse: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    expire: int = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    made: int = 0

    def writes(self) -> list[str]:
        """The paths of the requests that were to change something."""
        return [path for method, path, _ in self.requests if method != "GET"]

    def answer(self, method: str, path: str, query: dict[str, str], kind: str, body: dict[str, Any]) -> Answer:
        name = unquote(path.removeprefix("/api/v1/nodes").lstrip("/"))
        if method == "POST":
            return self.create(body)
        if method == "GET" and not name:
            return self.page(query)
        if method == "PATCH" and kind == "application/apply-patch+yaml":
            return self.apply(name, query, body)
        if name not in self.nodes:
            return _status(404, "NotFound", f'nodes "{name}" not found')
        if method == "DELETE":
            self.owners.pop(name)
            return 200, self.nodes.pop(name)
        if method == "PATCH":
            return self.merge(name, query, body)
        return 200, self.shown(name)

    def create(self, body: dict[str, Any]) -> Answer:
        self.made += 1
        metadata = body["metadata"]
        name = metadata["name"]
        labels = metadata.get("labels", {})
        self.nodes[name] = {"metadata": {"name": name, "uid": f"uid-{self.made}", "labels": labels}}
        self.owners[name] = {"admin": set(labels)}
        return 201, self.shown(name)

    def page(self, query: dict[str, str]) -> Answer:
        names = sorted(self.nodes)
        key, _, value = query.get("labelSelector", "").partition("=")
        if key:
            names = [name for name in names if self.nodes[name]["metadata"]["labels"].get(key) == value]
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(names)
        if start and self.expire:
            self.expire -= 1
            return _status(410, "Expired", "The provided continue parameter is too old")
        more = str(start + limit) if start + limit < len(names) else ""
        return 200, {
            "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "1", **({"continue": more} if more else {})},
            "items": [self.shown(name) for name in names[start : start + limit]],
        }

    def shown(self, name: str) -> dict[str, Any]:
        entries = [
            {
                "manager": manager,
                "operation": "Apply",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {f"f:{key}": {} for key in sorted(keys)}}},
            }
            for manager, keys in self.owners[name].items()
            if keys
        ]
        metadata = self.nodes[name]["metadata"]
        return {"kind": "PartialObjectMetadata", "metadata": {**metadata, "managedFields": entries}}

    def apply(self, name: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        asked = body["metadata"]
        if name not in self.nodes:
            if asked.get("uid"):
                return _status(409, "Conflict", "uid mismatch: the object was not found")
            return self.create(body)
        if asked.get("uid", self.nodes[name]["metadata"]["uid"]) != self.nodes[name]["metadata"]["uid"]:
            return _status(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
        manager, labels = query["fieldManager"], dict(self.nodes[name]["metadata"]["labels"])
        owners = {who: set(keys) for who, keys in self.owners[name].items()}
        causes = []
        for key, value in asked.get("labels", {}).items():
            others = [who for who, keys in owners.items() if who != manager and key in keys]
            if labels.get(key) != value and others:
                causes += [_cause(who, key) for who in others]
                for who in others:
                    owners[who].discard(key)
            labels[key] = value
        if causes and query.get("force") != "true":
            return _status(409, "Conflict", f"Apply failed with {len(causes)} conflict", causes)
        dropped = owners.get(manager, set()) - asked.get("labels", {}).keys()
        for key in dropped:
            if not any(key in keys for who, keys in owners.items() if who != manager):
                labels.pop(key, None)
        owners[manager] = set(asked.get("labels", {}))
        return self.store(name, labels, owners, query)

    def merge(self, name: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        labels = dict(self.nodes[name]["metadata"]["labels"])
        owners = {who: set(keys) for who, keys in self.owners[name].items()}
        for key, value in body["metadata"]["labels"].items():
            for keys in owners.values():
                keys.discard(key)
            labels.pop(key, None)
            if value is not None:
                labels[key] = value
                owners.setdefault(query["fieldManager"], set()).add(key)
        return self.store(name, labels, owners, query)

    def store(self, name: str, labels: dict[str, str], owners: dict[str, set[str]], query: dict[str, str]) -> Answer:
        old = self.nodes[name]["metadata"]["labels"], self.owners[name]
        self.nodes[name]["metadata"]["labels"], self.owners[name] = labels, owners
        answer = json.loads(json.dumps(self.shown(name)))
        if query.get("dryRun") == "All":
            self.nodes[name]["metadata"]["labels"], self.owners[name] = old
        return 200, answer


def _status(code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> Answer:
    details = {"causes": causes} if causes else {}
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def _cause(manager: str, key: str) -> dict[str, str]:
    message = f'conflict with "{manager}"'
    return {"reason": "FieldManagerConflict", "message": message, "field": f".metadata.labels.{key}"}


@contextmanager
def serving() -> Iterator[StandIn]:
    """A stand-in that listens on a loopback port."""
    standin = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            with standin.lock:
                standin.requests.append((self.command, parts.path, query | {"accept": self.headers.get("Accept", "")}))
                headers: dict[str, str] = {}
                if standin.refuse:
                    code, headers = standin.refuse.pop(0)
                    code, answer = _status(code, "", "not now")
                else:
                    kind = self.headers.get("Content-Type", "")
                    code, answer = standin.answer(
                        self.command, parts.path, query, kind, json.loads(body) if body else {}
                    )
            text = json.dumps(answer).encode()
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    standin.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield standin
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
