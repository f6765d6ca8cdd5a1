"""Making a process give way to running work, in a way that can be taken back."""

import contextlib
import os

_POLITE = 10
_CAP_SYS_NICE = 23


def give_way(pid: int) -> None:
    """Let the process run when others don't want to. Only ever done as far as `hurry` can undo it."""
    if _may_renice():
        _set_nice(pid, _POLITE)
    else:
        # Nobody but root may lower a nice value again, and the ranks forked later would inherit it.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))


def hurry(pid: int) -> None:
    """Undo `give_way`."""
    if _may_renice():
        _set_nice(pid, 0)
    else:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def _set_nice(pid: int, value: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, value)
    # With autogroups, nice counts only among the processes of one session: the session has a value of its own.
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as file,
    ):
        file.write(str(value))


def _may_renice() -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        effective = next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)
    return bool(effective >> _CAP_SYS_NICE & 1)
