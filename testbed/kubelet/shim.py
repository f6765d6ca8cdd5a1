"""Runs one process of a container, outlives the kubelet, and writes down how it ended.

    python -I -S shim.py FOLDER

FOLDER/run.json says what to run; FOLDER/shim.json is who runs it, FOLDER/exit.json how that ended. Whatever the process
leaves behind is ended with it, as the end of a container's first process ends the container. Standard library only,
and little of it: one of these runs beside every process.
"""

import ctypes
import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

_child = 0
_asked = False


def main(folder: str) -> int:
    """Run it; 0 also where another shim has the folder."""
    os.chdir(folder)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    if os.path.exists("exit.json"):
        return 0
    signal.signal(signal.SIGTERM, _forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Orphans of the process come to us, so that none gets away.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open("run.json", encoding="utf-8") as file:
        run = json.load(file)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    _write("shim.json", {"pid": os.getpid(), "start": _stat(os.getpid())[1], "boot": boot})
    said = _start(run)
    if said:
        _write("exit.json", {"code": 128, "at": time.time(), "reason": "StartError", "message": said})
        os.waitpid(_child, 0)
        return 0
    code = _reap(_child)
    ended = time.time()
    _end_the_rest()
    sign = -code if code < 0 else 0
    _write("exit.json", {"code": 128 + sign if sign else code, "at": ended, "signal": sign})
    return 0


def _start(run: dict[str, Any]) -> str:
    """Start it, and return why that failed."""
    global _child
    read, write = os.pipe()  # both close on exec, which is how we learn that all went well
    pid = os.fork()
    if pid == 0:
        _become(run, write)
    _child = pid
    if _asked:
        os.kill(pid, signal.SIGTERM)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read().decode(errors="replace")


def _become(run: dict[str, Any], write: int) -> NoReturn:
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(run["cwd"])
        os.execvpe(run["argv"][0], run["argv"], run["env"])  # noqa: S606 - what the pod says, and no shell
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        os.write(write, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def _reap(wanted: int) -> int:
    """Wait for everything that ends until that process does; its exit code, or minus its signal."""
    global _child
    while True:
        # Looked at before it is reaped, so that no signal is passed on to a number that is somebody else's by then.
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert found is not None
        if found.si_pid == wanted:
            _child = 0
        pid, status = os.waitpid(found.si_pid, 0)
        if pid == wanted:
            return os.waitstatus_to_exitcode(status)


def _end_the_rest() -> None:
    while True:
        for name in os.listdir("/proc"):
            # Not reaped, children keep their numbers: no one else can be hit.
            if name.isdigit() and _stat(int(name))[0] == os.getpid():
                os.kill(int(name), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _forward(number: int, _: object) -> None:
    global _asked
    _asked = True
    if _child:
        os.kill(_child, number)  # not reaped while it has this number


def _stat(pid: int) -> tuple[int, int]:
    """Parent and start time of a process, (0, 0) when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    return int(fields[1]), int(fields[19])


def _write(name: str, content: dict[str, Any]) -> None:
    with open(f"{name}.new", "w", encoding="utf-8") as file:
        json.dump(content, file)
    os.replace(f"{name}.new", name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
