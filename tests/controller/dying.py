"""A controller that dies by SIGKILL when it stores its N-th batch of events: `dying.py STATE JOB N when`.

`when` is `after` (stored, not acted on) or `before` (what came before was acted on, this is not stored).
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rackyard.cli.session import drive
from rackyard.controller.home import Home
from rackyard.jobs.events import Event, Record


def main() -> None:
    state, job, number, when = sys.argv[1:]
    home = Home(Path(state))
    commit = home.store.commit
    count = 0

    def dying(
        batch: Mapping[str, Sequence[Event]], *, cursor: Mapping[str, int] | None = None
    ) -> dict[str, list[Record]]:
        nonlocal count
        count += 1
        last = count == int(number)
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        written = commit(batch, cursor=cursor)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    home.store.commit = dying  # type: ignore[method-assign]
    drive(home, home.site(), job, lambda record, state: None)
    print(f"commits {count}")


main()
