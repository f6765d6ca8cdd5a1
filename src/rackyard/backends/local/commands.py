"""The agent's command socket: a JSON line a request, a JSON line an answer.

A client that sends `watch` is from then on told of every journal line by a newline, and of the agent's being
alive by a dot now and then.
"""

import json
import socket
from collections.abc import Callable
from typing import Any

from rackyard.backends.local.loop import Loop

Handler = Callable[[dict[str, Any]], dict[str, Any]]
_LONGEST_REQUEST = 64 << 20


class CommandServer:
    """Accepts clients, answers them through `handler`."""

    def __init__(self, listener: socket.socket, loop: Loop, handler: Handler) -> None:
        listener.setblocking(False)
        self._listener, self._loop, self._handler = listener, loop, handler
        self._clients: dict[socket.socket, bytes] = {}
        self._watchers: set[socket.socket] = set()
        loop.add(listener.fileno(), self._accept)

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._clients)

    def push(self, mark: bytes) -> None:
        """Tell every watcher."""
        for client in list(self._watchers):
            try:
                client.send(mark)
            except BlockingIOError:
                # One that has not read for so long will find enough marks to wake it.
                continue
            except (BrokenPipeError, ConnectionResetError):
                self._drop(client)

    def close(self) -> None:
        """Hang up."""
        for client in list(self._clients):
            self._drop(client)
        self._loop.remove(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setblocking(False)
        self._clients[client] = b""
        self._loop.add(client.fileno(), lambda: self._read(client))

    def _read(self, client: socket.socket) -> None:
        try:
            data = client.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        received = self._clients[client] + data
        if not data or len(received) > _LONGEST_REQUEST:
            self._drop(client)
            return
        *lines, self._clients[client] = received.split(b"\n")
        for line in lines:
            if client in self._clients:
                self._answer(client, line)

    def _answer(self, client: socket.socket, line: bytes) -> None:
        reply = b"."
        try:
            request = json.loads(line)
            if request["op"] == "watch":
                self._watchers.add(client)
            else:
                reply = _encode({"ok": True, **self._handler(request)})
        except (ValueError, KeyError, TypeError) as error:
            reply = _encode({"ok": False, "error": f"{type(error).__name__}: {error}"})
        try:
            client.settimeout(1.0)
            client.sendall(reply)
            client.setblocking(False)
        except OSError:
            # It may have hung up long before we came to its request.
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        if client in self._clients:
            self._loop.remove(client.fileno())
            del self._clients[client]
            self._watchers.discard(client)
            client.close()


def _encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"
