"""Runs the readers of a host, all at once, each in a process that is ended when it takes too long.

A process stays from round to round, because starting one costs fifty times what a reading does; after any trouble it is
a new one, so that a driver that was replaced is asked by its new library.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rackyard.agent.child import READERS, Answer
from rackyard.agent.reading import Reading, Trouble

_KILLED = 2.0
"""Seconds after SIGKILL until we say that the kernel holds a reader."""
_SHOWN = 300
_CHUNK = 1 << 16
MOST = 64 << 20
"""Bytes of an answer; a big server's is 200 kB."""


class _Ended(Exception):
    """The process closed its output."""


class Child:
    """One reader's process, asked round after round."""

    def __init__(self, words: Sequence[str]) -> None:
        """OSError when it can't be started."""
        # -P: no module is taken from the folder that the agent was started in
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rackyard.agent.child", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        os.set_blocking(self._err, False)
        self._said = b""

    def ask(self, timeout: float) -> bytes:
        """Its answer to one question, a line. TimeoutError without one, _Ended when it is gone."""
        assert self._process.stdin is not None
        deadline = time.monotonic() + timeout
        try:
            self._process.stdin.write(b"\n")
        except OSError:
            raise _Ended from None
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0] or len(line) > MOST:
                raise TimeoutError
            chunk = os.read(self._out, _CHUNK)
            if not chunk:
                raise _Ended
            line += chunk
        self._drain()
        return line

    def end(self) -> bool:
        """Kill it; whether it went."""
        self._process.kill()
        try:
            self._process.wait(_KILLED)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self._drain()
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
        return True

    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def last_words(self) -> str:
        """How it ended, and the last line that it wrote to stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED)
        self._drain()
        code = self._process.returncode
        how = (
            "ended" if code is None else f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        )
        last = self._said.decode("utf-8", "replace").strip().rpartition("\n")[2][:_SHOWN]
        return how + (f": {last}" if last else "")

    def _drain(self) -> None:
        """Take what it wrote to stderr: a full pipe would stop it."""
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._err, _CHUNK):
                self._said = (self._said + chunk)[-_CHUNK:]


@dataclass
class Readers:
    """The readers of the host whose file system is at `root`; each may take `timeout` seconds. Close it after use."""

    node: str
    root: Path
    timeout: float = 20.0
    names: Sequence[str] = tuple(READERS)
    _children: dict[str, Child] = field(default_factory=dict)
    _held: dict[str, Child] = field(default_factory=dict)

    def read(self) -> tuple[Reading, ...]:
        """One round, in the order of `names`. Takes `timeout` and a little at most, and raises nothing."""
        with ThreadPoolExecutor(len(self.names), thread_name_prefix="reader") as pool:
            return tuple(pool.map(self._timed, self.names))

    def close(self) -> None:
        """End the processes."""
        for child in self._children.values():
            child.end()
        self._children.clear()

    def _timed(self, name: str) -> Reading:
        began = time.monotonic()
        found = self._read(name)
        return Reading(name, found.facts, time.monotonic() - began, found.trouble, found.line)

    def _read(self, name: str) -> Answer:
        if name in self._held and not self._held[name].gone():
            return Answer(None, Trouble.HANGING, f"the {name} reader hangs in the kernel and can't be ended")
        self._held.pop(name, None)
        try:
            child = self._children.pop(name, None) or Child([name, self.node, str(self.root)])
        except OSError as error:
            return Answer(None, Trouble.FAILED, f"the {name} reader can't be started: {error}")
        found = self._ask(name, child)
        if found.trouble is None:
            self._children[name] = child
        elif not child.end():
            self._held[name] = child
        return found

    def _ask(self, name: str, child: Child) -> Answer:
        try:
            return msgspec.json.decode(child.ask(self.timeout), type=Answer)
        except TimeoutError:
            return Answer(None, Trouble.TIMEOUT, f"the {name} reader did not answer within {self.timeout:g} s")
        except _Ended:
            return Answer(None, Trouble.FAILED, f"the {name} reader {child.last_words()}")
        except msgspec.MsgspecError as error:
            return Answer(None, Trouble.FAILED, f"what the {name} reader says can't be read: {error}")
