"""Watching agents: each tells over a connection that it lives and that it has written something."""

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

from rackyard.backends.local import client, places, procs
from rackyard.backends.local.places import AgentCard

OnLost = Callable[[Path, AgentCard, str], bool]


class Watched:
    """One agent's connection, and when it was last heard."""

    def __init__(self, card: AgentCard) -> None:
        self.card = card
        self.channel: socket.socket | None = None
        self.heard = time.monotonic()

    def connect(self, timeout: float) -> None:
        """Connect and ask to be told. On failure try again later; the silence counts."""
        try:
            channel = client.connect(self.card, timeout)
        except client.Unreachable:
            return
        try:
            channel.sendall(b'{"op":"watch"}\n')
        except OSError:
            channel.close()
            return
        channel.setblocking(False)
        self.channel = channel

    def drain(self) -> None:
        """Read what has come; any of it is a sign of life."""
        while self.channel is not None:
            try:
                data = self.channel.recv(1 << 16)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self.close()
                return
            self.heard = time.monotonic()

    def close(self) -> None:
        """Hang up."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None


class Watch:
    """All agents of a state directory. A lost one is handed to `on_lost` until that returns true."""

    def __init__(self, nodes_dir: Path, lost_after: float, on_lost: OnLost) -> None:
        self._nodes_dir, self._lost_after, self._on_lost = (
            nodes_dir,
            lost_after,
            on_lost,
        )
        self._watched: dict[str, Watched] = {}

    def check(self) -> None:
        """Find new agents, hear the known ones, and see which are lost."""
        for folder in node_folders(self._nodes_dir):
            card = places.read_card(folder / places.AGENT)
            known = self._watched.get(folder.name)
            if known is not None and known.card != card:
                known.close()
                del self._watched[folder.name]
                known = None
            if card is None:
                continue
            if known is None:
                known = self._watched[folder.name] = Watched(card)
            why = self._judge(known)
            if why and self._on_lost(folder, card, why):
                known.close()
                del self._watched[folder.name]

    def _judge(self, watched: Watched) -> str:
        """Why the agent counts as lost; empty while it doesn't."""
        if watched.channel is None:
            if not procs.alive(watched.card.identity):
                return "agent ended"
            watched.connect(timeout=min(0.2, self._lost_after))
        watched.drain()
        if watched.channel is None and not procs.alive(watched.card.identity):
            return "agent ended"
        # Only after reading: we ourselves may have been the one that slept.
        if time.monotonic() - watched.heard > self._lost_after:
            return f"no heartbeat for {self._lost_after:g} s"
        return ""

    def wait(self, timeout: float) -> None:
        """Wait until some agent has something to say."""
        poller = select.poll()
        for watched in self._watched.values():
            if watched.channel is not None:
                poller.register(watched.channel, select.POLLIN)
            else:
                # On its way up or down: look again soon.
                timeout = min(timeout, 0.02)
        poller.poll(max(0.0, timeout) * 1000)

    def close(self) -> None:
        """Hang up on all."""
        for watched in self._watched.values():
            watched.close()
        self._watched.clear()


def node_folders(nodes_dir: Path) -> list[Path]:
    """The folders of all nodes that ever had an agent."""
    try:
        return sorted(path for path in nodes_dir.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
