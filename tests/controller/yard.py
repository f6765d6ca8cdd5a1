"""A state folder with a toy job on a small simulated site, and the ending of everything that was started there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackyard.backends.local import LocalBackend
from rackyard.cli.session import drive
from rackyard.controller.home import Home
from rackyard.controller.submit import submit
from rackyard.jobs.events import FaultRequested
from rackyard.jobs.specfile import parse_spec
from rackyard.jobs.state import JobState

HERE = Path(__file__).parent
SITE = "simulate: {racks: 2, trays: 3}\n"


@contextmanager
def yard(folder: Path, site: str = SITE) -> Iterator[Home]:
    """A fresh state folder; at the end every agent and rank in it is ended."""
    file = folder / "site.yaml"
    file.write_text(site)
    home = Home(folder / "state")
    home.site(file)
    try:
        yield home
    finally:
        backend = LocalBackend(home.path)
        backend.shutdown(grace=0.0)
        backend.close()


def toy(home: Home, *, steps: int = 20, gpus: int = 4, text: str = "", run: str | None = None) -> str:
    """Submit the toy job; `text` is more YAML."""
    folder = home.path.parent
    command = run or f"python {HERE / 'toy.py'}"
    gate = folder / "gate"
    spec = parse_spec(
        f"name: toy\nrun: {command}\ngpus: {gpus}\nwarm: []\n"
        f"env: {{STEPS: '{steps}', GATE: '{gate}', PYTHONPATH: '{os.pathsep.join(sys.path[1:])}'}}\n"
        f"checkpoint: {{dir: {folder / 'ckpt'}, every: 5 steps}}\nsegment: {{gpus: {gpus}}}\n"
        + (text or "recover: {spares: 1}\n")
    )
    return submit(home.store, spec.to_dict(), folder, home.site().digest())


def open_gate(home: Home) -> None:
    """Let the toy job go on past step 14."""
    (home.path.parent / "gate").touch()


def strike(home: Home, job: str, *faults: tuple[str, int]) -> None:
    """Ask for faults, each a kind and a step."""
    home.store.append(
        job, [FaultRequested(fault=at, kind=kind, target="", at_step=step) for at, (kind, step) in enumerate(faults, 1)]
    )


def finish(home: Home, job: str) -> JobState:
    """Be the controller until the job is over."""
    return drive(home, home.site(), job, lambda record, state: None)


def die_at(home: Home, job: str, commit: int, when: str) -> int:
    """Run a controller that dies at its `commit`-th batch; returns its exit code (-9, or 0 when it got to the end)."""
    words = [sys.executable, str(HERE / "dying.py"), str(home.path), job, str(commit), when]
    return subprocess.run(words, timeout=60, check=False, capture_output=True).returncode
