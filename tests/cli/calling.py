"""Calling the command line: in this process where it only looks, as a process of its own where it works."""

import atexit
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rackyard.cli import main


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


def call(*words: object) -> Answer:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    assert "Traceback" not in err.getvalue()
    return Answer(code, out.getvalue(), err.getvalue())


@cache
def _bytecode() -> str:
    """A folder of our own for compiled modules: where Python may not keep them, each start takes seconds."""
    folder = tempfile.mkdtemp(prefix="rackyard-bytecode-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def start(*words: object, **env: str) -> "subprocess.Popen[str]":
    """Run a command as a process, its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "rackyard", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": _bytecode(), **env},
    )


def end(process: "subprocess.Popen[str]", timeout: float = 90) -> Answer:
    """Wait for a process that was started here."""
    out, err = process.communicate(timeout=timeout)
    assert "Traceback" not in err
    return Answer(process.returncode, out, err)


def wait_until(ready: Callable[[], object], timeout: float = 90) -> None:
    """Poll until `ready` is true."""
    deadline = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def job_file(folder: Path, text: str = "", *, script: str = "print('hello')\n", gpus: int = 1) -> Path:
    """A job file beside a small script; `text` is more YAML."""
    (folder / "script.py").write_text(script)
    file = folder / "job.yaml"
    file.write_text(f"run: python script.py\ngpus: {gpus}\nwarm: []\n{text}")
    return file
