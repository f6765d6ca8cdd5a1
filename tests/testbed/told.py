"""What a loop says, kept and waited for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Loop(Protocol):
    """The gang loop, or the health loop."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def running(loop: Loop) -> Iterator[None]:
    """The loop in a thread of its own; it has ended after."""
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        thread.join(30)
        assert not thread.is_alive()


class Told:
    """Give it to a loop as `tell`."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []
        self.changed = threading.Condition()

    def __call__(self, subject: str, word: str, line: str) -> None:
        with self.changed:
            self.lines.append((subject, word, line))
            self.changed.notify_all()

    def wait(self, subject: str, word: str, since: int = 0) -> str:
        """The first line with that word about a subject."""

        def found() -> list[str]:
            return [line for who, said, line in self.lines[since:] if (who, said) == (subject, word)]

        with self.changed:
            assert self.changed.wait_for(found, timeout=60), (subject, word, self.lines)
            return found()[0]
