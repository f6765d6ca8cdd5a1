"""Run a script or module in this process exactly as `python script.py` or `python -m module` would.

What a fresh interpreter does at its top level and `runpy.run_path` does not: `__main__` stays in place until the
very end, so threads, exit handlers and pickles that refer to it work.
"""

import atexit
import builtins
import contextlib
import io
import os
import signal
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def first_path(kind: str, target: str, cwd: str) -> str:
    """What Python puts first in `sys.path`: the script's folder, links resolved, or the current one for `-m`."""
    return os.fspath(Path(cwd, target).resolve().parent if kind == "script" else Path(cwd).resolve())


def run(kind: str, target: str, args: Sequence[str], argv: Sequence[str]) -> None:
    """Run it. Returns, or leaves by SystemExit; the interpreter's own ending does the rest."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    sys.orig_argv = list(argv)
    sys.argv = [target, *args]
    interrupted = _die_of_interrupt_at_exit()
    try:
        _run_script(target, main) if kind == "script" else _run_module(target)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - what Python does with one that nobody caught
        # A fresh interpreter that is interrupted dies of the signal, so that its parent sees why.
        interrupted[0] = isinstance(error, KeyboardInterrupt)
        error.__traceback__ = _without_our_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None


def _run_script(target: str, main: types.ModuleType) -> None:
    path = os.path.abspath(target)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        text = f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        sys.stderr.write(text + "\n")
        raise SystemExit(2) from None
    from importlib.machinery import SourceFileLoader

    main.__dict__.update(__file__=path, __cached__=None, __spec__=None, __loader__=SourceFileLoader("__main__", path))
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - this is the job


def _run_module(target: str) -> None:
    import runpy
    import warnings

    # The very function that `python -m` calls. It is private, but it has been that since 2.7.
    sys.argv[0] = "-m"
    # The module itself may be among those that were imported to be warm, which is no accident worth a warning.
    warnings.filterwarnings("ignore", ".*found in sys.modules after import of package", RuntimeWarning, "runpy")
    runpy._run_module_as_main(target)  # type: ignore[attr-defined]


def _die_of_interrupt_at_exit() -> list[bool]:
    """Arrange that the process dies of SIGINT, after all other exit handlers, once the list's item is true."""
    interrupted = [False]

    def die() -> None:
        if interrupted[0]:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)

    atexit.register(die)
    return interrupted


def _without_our_frames(trace: Any) -> Any:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
