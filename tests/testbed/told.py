"""What a loop says, kept and waited for."""

import threading


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
