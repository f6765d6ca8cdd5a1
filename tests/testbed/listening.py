"""The TCP sockets that processes listen on, read from /proc."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"  # net/tcp_states.h, TCP_LISTEN


def listening(pids: Iterable[int]) -> dict[int, list[tuple[str, int]]]:
    """Address and port of every listening socket of each process."""
    found = {}
    for pid in pids:
        inodes = set()
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(link))
        sockets = [*_table(pid, "tcp", socket.AF_INET), *_table(pid, "tcp6", socket.AF_INET6)]
        found[pid] = [(address, port) for inode, address, port in sockets if f"socket:[{inode}]" in inodes]
    return found


def _table(pid: int, name: str, family: int) -> list[tuple[str, str, int]]:
    rows = []
    for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN:
            digits, port = fields[1].split(":")
            words = [digits[at : at + 8] for at in range(0, len(digits), 8)]
            packed = b"".join(struct.pack("=I", int(word, 16)) for word in words)
            rows.append((fields[9], socket.inet_ntop(family, packed), int(port, 16)))
    return rows
