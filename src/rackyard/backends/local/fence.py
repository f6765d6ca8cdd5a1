"""A node whose agent is lost is fenced: whatever it still runs is ended, and only then is the loss put on record.

The record goes into the node's own journal, under the lock that an agent holds while it lives. So it is written
once, by whichever controller comes first, and one that is restarted finds it there.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackyard.backends.local import journal as journals
from rackyard.backends.local import places, procs
from rackyard.backends.local.journal import Journal
from rackyard.backends.local.places import AgentCard
from rackyard.backends.local.procs import Identity

_KILL_TIMEOUT = 5.0


def fence(folder: Path, card: AgentCard, why: str) -> bool:
    """End what the lost agent and its ranks left running, and record `NodeLost`. False: not done, try again."""
    left = end_all(folder, card)
    if left:
        pids = ", ".join(str(who.pid) for who in left)
        why += f"; SIGKILLed processes that have not gone yet: {pids}"
    with _locked(folder) as held:
        # Another controller may have been faster, or be at it; or a new agent runs already.
        if not held or places.read_card(folder / places.AGENT) != card:
            return False
        if not any(_says(line, card) for line in journals.scan(folder / places.JOURNAL, "NodeLost")):
            journal = Journal(folder / places.JOURNAL)
            journal.write("NodeLost", node=card.node, why=why, **card.identity._asdict())
            journal.close()
        (folder / places.AGENT).replace(folder / places.LOST)
        places.remove_sockets(Path(card.sockets))
    return True


def end_all(folder: Path, card: AgentCard) -> list[Identity]:
    """SIGKILL the agent, then its ranks with all they started, and its warm parents; return what doesn't go."""
    # The agent first, or it would see its ranks die and report them one by one; and it may be about to start more.
    left = procs.end([card.identity], _KILL_TIMEOUT)
    found = {who for leader in _leaders(folder, card) for who in procs.session_of(leader)}
    return left + procs.end(found, _KILL_TIMEOUT)


def _leaders(folder: Path, card: AgentCard) -> list[Identity]:
    """The sessions that this agent, and no earlier one, has started, as its journal has them."""
    leaders: list[Identity] = []
    for line in journals.scan(folder / places.JOURNAL, "NodeUp", "RankStarted", "WarmStarted"):
        if line["kind"] == "NodeUp":
            leaders.clear()
        else:
            leaders.append(Identity(line["pid"], line["start"], card.identity.boot))
    return leaders


def _says(line: journals.Line, card: AgentCard) -> bool:
    return Identity(line["pid"], line["start"], line["boot"]) == card.identity


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    lock = os.open(folder / places.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
