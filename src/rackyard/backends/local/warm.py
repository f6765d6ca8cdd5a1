"""The warm parent: a process that has done a job's imports, and forks its ranks in milliseconds.

Started by the agent as `python -c <bootstrap> FD CONFIG`. It talks over the socket FD: up goes one message a fact
(JSON); down comes one message a fork, with three descriptors: the rank's gate, its order (JSON in a memory
file, so that an environment of any size fits), and its log. The rank is forked twice, so that the agent, which is a
child subreaper, becomes its parent.
"""

import array
import contextlib
import gc
import json
import os
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from rackyard.backends.local import toplevel

BOOTSTRAP = "import sys; del sys.path[0]; from rackyard.backends.local.warm import main; main()"
"""With `-c` rather than `-m`, no file of the user's folder can shadow what we import ourselves."""

GO = b"g"


def main() -> None:
    """Import, report, and fork on request until the agent hangs up. Returns only in a rank that has finished."""
    control, config = socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])
    control.set_inheritable(False)
    if not sys.flags.safe_path:
        sys.path.insert(0, config["first_path"])
    imported = _import(config["modules"])
    # What the imports have made stays for good: the ranks' collectors need not touch it, and it stays shared.
    gc.collect()
    gc.freeze()
    control.send(json.dumps(imported).encode())
    order = _serve(control)
    control.close()
    toplevel.run(order["kind"], order["target"], order["args"], order["argv"])


def _import(modules: list[str]) -> dict[str, Any]:
    began, problem, done = time.monotonic(), "", []
    for name in modules:
        try:
            import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may do anything
            problem = f"can't import {name}: {type(error).__name__}: {error}"
            break
        done.append(name)
    return {
        "seconds": time.monotonic() - began,
        "modules": done,
        "problem": problem or unfit(),
    }


def unfit() -> str:
    """Why this process can't be forked safely; empty when it can."""
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    if threads != 1:
        return (
            f"the imports left {threads - 1} more thread(s) running, and a process with threads can't be forked safely"
        )
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or _holds_gpu():
        return "the imports initialised CUDA, which doesn't survive a fork"
    return ""


def _holds_gpu() -> bool:
    """Whether the driver has been opened, which some imports do without telling torch."""
    for link in Path("/proc/self/fd").iterdir():
        # The one that lists the folder is gone by the time it is looked at.
        with contextlib.suppress(FileNotFoundError):
            if os.fspath(link.readlink()).startswith("/dev/nvidia"):
                return True
    return False


def _serve(control: socket.socket) -> dict[str, Any]:
    while True:
        message, fds, _, _ = socket.recv_fds(control, 64, 3)
        if not message:
            # The agent has hung up. No exit handlers: the imported modules' are meant for the ranks.
            os._exit(0)
        problem = unfit()
        if problem:
            control.send(json.dumps({"problem": problem}).encode())
        elif _fork(fds):
            gate, order, log = fds
            return _become_rank(socket.socket(fileno=gate), order, log)
        for fd in fds:
            os.close(fd)


def _fork(fds: list[int]) -> bool:
    """Fork twice; true in the grandchild."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    # Only when the agent has become the parent can it be told the pid, or it might wait for a stranger.
    while os.getppid() == parent:
        time.sleep(0.0002)
    return True


def _become_rank(gate: socket.socket, order_fd: int, log: int) -> dict[str, Any]:
    """Turn into the rank, up to the point where its script starts."""
    os.setsid()
    gate.send(array.array("i", [os.getpid()]).tobytes())
    if gate.recv(1) != GO:
        # The agent has died, or the attempt was stopped before this rank was on record: it never was.
        os._exit(0)
    gate.close()
    with os.fdopen(order_fd, "rb") as file:
        file.seek(0)
        order: dict[str, Any] = json.load(file)
    null = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((null, 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    os.close(null)
    os.close(log)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    _forget_parent()
    return order


def _forget_parent() -> None:
    """Renew what a fresh interpreter draws at random; `random` itself is reseeded by Python after a fork."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
