"""What the commands about jobs show, of whatever target."""

import re
from typing import Any

from rackyard.cli.common import ago, print_table

ATTEMPTS = ("attempt", "launched", "resumed", "step", "fault", "action", "seats")
"""Headers of a job's attempts."""
_ERROR = re.compile(r"Traceback|Error\b|Exception\b|Fatal|Xid")
_SHOWN = 40
"""Lines of a log from its first error on."""


def jobs_table(rows: list[dict[str, Any]]) -> None:
    """Print the rows of jobs."""
    headers = ["job", "phase", "gpus", "attempt", "step", "age", "reason"]
    print_table(
        headers,
        [
            (row["job"], row["phase"], row["gpus"], row["attempt"], row["step"], ago(row["submitted"]), row["reason"])
            for row in rows
        ],
    )


def from_error(lines: list[str]) -> list[str]:
    """The first line of a log that tells of an error, and what follows it; nothing where there is none."""
    at = next((at for at, text in enumerate(lines) if _ERROR.search(text)), len(lines))
    return lines[at : at + _SHOWN]
