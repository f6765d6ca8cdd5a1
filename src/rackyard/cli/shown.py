"""What the commands about jobs show, of whatever target."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from rackyard.cli.common import ago, hint, print_table

ATTEMPTS = ("attempt", "launched", "resumed", "step", "fault", "action", "seats")
"""Headers of a job's attempts."""
_ERROR = re.compile(r"Traceback|Error\b|Exception\b|Fatal|Xid|\[Errno ")
_SHOWN = 40
"""Lines of a log from its first error on."""
_TAIL = 20
"""Lines of a log that ends badly, and tells of no error."""


def jobs_table(rows: list[dict[str, Any]]) -> None:
    """Print the rows of jobs."""
    headers = ["job", "phase", "gpus", "attempt", "step", "age", "reason"]
    cells = []
    for row in rows:
        step = "-" if row["step"] is None else row["step"]
        age = ago(row["submitted"])
        cells.append((row["job"], row["phase"], row["gpus"], row["attempt"], step, age, row["reason"]))
    print_table(headers, cells)


def first_errors(logs: Mapping[str, list[str]], failed: Collection[str]) -> dict[str, list[str]]:
    """Of each log, by name, the first line that tells of an error and what follows it. Where none has such a line: the
    last lines of those that `failed`, which is said on stderr.
    """
    found = {}
    for name, lines in logs.items():
        at = next((at for at, text in enumerate(lines) if _ERROR.search(text)), None)
        if at is not None:
            found[name] = lines[at : at + _SHOWN]
    if found or not any(logs.values()):
        return found
    there = [name for name in logs if name in failed]
    if there:
        hint(f"no line tells of an error: the last {_TAIL} lines of {', '.join(there)} instead")
    else:
        hint("no line tells of an error")
    return {name: logs[name][-_TAIL:] for name in there}
