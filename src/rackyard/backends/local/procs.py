"""Who a process is, beyond its number: pid, start time and boot. Only processes identified so are ever ended."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Identity(NamedTuple):
    """A process that can't be mistaken for a later one with the same pid."""

    pid: int
    start: int
    """Clock ticks from boot to its start (field 22 of proc(5) stat)."""
    boot: str


class Stat(NamedTuple):
    """What we use of proc(5) stat."""

    state: str
    session: int
    start: int


def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def stat(pid: int) -> Stat | None:
    """The process's state, zombies included; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The command's name, in parentheses, may itself contain spaces and parentheses.
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Stat(fields[0], int(fields[3]), int(fields[19]))


def identify(pid: int) -> Identity | None:
    """The identity of a process that exists now; None when it doesn't."""
    found = stat(pid)
    return Identity(pid, found.start, boot_id()) if found else None


def alive(who: Identity) -> bool:
    """Whether this very process still runs; a zombie doesn't."""
    if who.boot != boot_id():
        return False
    found = stat(who.pid)
    return found is not None and found.start == who.start and found.state not in "ZX"


def session_of(leader: Identity) -> list[Identity]:
    """The running processes of the session that `leader` founded, itself included.

    The kernel gives a pid to nobody while a session carries its number, so with the leader gone the
    members are still its own; a leader with another start time means that the number was used again.
    """
    if leader.boot != boot_id():
        return []
    found = stat(leader.pid)
    if found is not None and found.start != leader.start:
        return []
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        member = stat(int(entry.name))
        if member and member.session == leader.pid and member.start >= leader.start and member.state not in "ZX":
            members.append(Identity(int(entry.name), member.start, leader.boot))
    return members


def end(processes: Iterable[Identity], timeout: float) -> list[Identity]:
    """SIGKILL each process, wait until they are gone, and return those that are not after `timeout` seconds."""
    poller, left = select.poll(), dict[int, Identity]()
    try:
        for who in processes:
            with contextlib.suppress(ProcessLookupError):
                # The pidfd is opened before the check, so that what is checked is what is signalled.
                pidfd = os.pidfd_open(who.pid)
                if not alive(who):
                    os.close(pidfd)
                    continue
                left[pidfd] = who
                poller.register(pidfd, select.POLLIN)
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        deadline = time.monotonic() + timeout
        waiting = set(left)
        while waiting and (remaining := deadline - time.monotonic()) > 0:
            for pidfd, _ in poller.poll(remaining * 1000):
                poller.unregister(pidfd)
                waiting.discard(pidfd)
        return [left[pidfd] for pidfd in waiting]
    finally:
        for pidfd in left:
            os.close(pidfd)
