"""`rackyard demo`: the main job end to end, on two simulated racks with real processes.

A job of 8 ranks trains the shape denoiser on mesh files; a tray dies, later a rack's NVLink domain; the job ends
by itself on the second rack. A control run without faults must give the same loss, bit for bit.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.common import print_table, span
from rackyard.errors import RackyardError, UsageError

if TYPE_CHECKING:
    from rackyard.controller.home import Home
    from rackyard.jobs.events import Record
    from rackyard.jobs.state import JobState

JOB = """\
# The job of `rackyard demo`: 8 ranks on 2 trays of one NVLink domain.
name: {name}
run: python -m rackyard.shape3d.train --config tiny --data {meshes} --steps {steps} --checkpoint {ckpt} --every {every}
gpus: 8
segment: {{gpus: 8, required: true}}
rails: aligned
checkpoint: {{dir: {ckpt}, every: {every} steps}}
recover: {{attempts: 5, spares: {spares}, mode: act}}
watch: {{hang: 60s}}
warm: [rackyard.shape3d.train]
"""
MARK = ".rackyard-demo"


@dataclass(frozen=True, slots=True)
class Course:
    """How far the demo's job goes, and where it is struck."""

    steps: int
    every: int
    tray_at: int
    rack_at: int


@click.command("demo")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/demo"), show_default=True)
@click.option(
    "--steps", type=click.IntRange(min=20), default=100, show_default=True, help="Optimizer steps of the job."
)
def demo(out: Path, steps: int) -> None:
    """One job from YAML to a mesh, through a tray fault and a rack fault. Exit code 1 if anything does not hold."""
    began = time.monotonic()
    course = Course(steps, max(4, steps // 10), steps * 35 // 100, steps * 68 // 100)
    _fresh(out)
    meshes = _meshes(out)
    click.echo("\n== the job, struck twice ==")
    home, state, lines = _run(out, "shape-dit", meshes, course, faults=True)
    if state.phase != "succeeded":
        raise RackyardError(
            "the demo's job did not end well", where=str(out), why=state.finished.reason if state.finished else None
        )
    click.echo("\n== the control run, no faults ==")
    control_home, control, _ = _run(out, "control", meshes, course, faults=False)
    click.echo("\n== shapes sampled from the weights the job trained ==")
    sheet, ious = _sample(out, meshes)
    same = _summary(state, control) and _same_files(out)
    _report(out, (home, state, lines), (control_home, control), sheet)
    click.echo(f"\ngenerated shapes: IoU with the truth {', '.join(f'{value:.2f}' for value in ious)}")
    click.echo(f"report {out / 'report.html'}\nshapes {sheet} and {out / 'shapes'}/*.glb")
    click.echo(f"done in {time.monotonic() - began:.0f} s")
    sys.exit(0 if same else 1)


def _fresh(out: Path) -> None:
    """An empty output folder; what an earlier demo left is removed, anything else is not touched."""
    import shutil

    if out.exists():
        if any(out.iterdir()) and not (out / MARK).exists():
            raise UsageError(
                "the output folder holds something else", where=str(out), fix="name an empty one with --out"
            )
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).touch()


def _meshes(out: Path) -> Path:
    click.echo("making mesh files (OBJ, PLY, STL, GLB) from procedural shapes …")
    from rackyard.shape3d.meshes import write_samples

    folder = out / "meshes"
    files = write_samples(folder)
    click.echo(f"{len(files)} mesh files in {folder}")
    return folder.absolute()


def _run(out: Path, name: str, meshes: Path, course: Course, *, faults: bool) -> "tuple[Home, JobState, list[str]]":
    from rackyard.cli.session import drive, read_spec
    from rackyard.cli.timeline import line
    from rackyard.controller.home import Home
    from rackyard.controller.submit import submit
    from rackyard.jobs.events import FaultRequested

    file = out / f"{name}.yaml"
    ckpt = (out / f"{name}-ckpt").absolute()
    told = {"name": name, "meshes": meshes, "steps": course.steps, "every": course.every, "ckpt": ckpt}
    file.write_text(JOB.format(**told, spares=1 if faults else 0))
    home = Home(out / f"{name}-state")
    site = home.site()
    spec, workdir = read_spec(file)
    job = submit(home.store, spec, workdir, site.digest())
    if faults:
        strikes = (("tray", course.tray_at), ("rack-nvlink", course.rack_at))
        requests = [
            FaultRequested(fault=at, kind=kind, target="", at_step=step) for at, (kind, step) in enumerate(strikes, 1)
        ]
        home.store.append(job, requests)
    click.echo(f"{job} on {site.name} (simulated hardware, real processes)")
    lines: list[str] = []

    def listen(record: "Record", state: "JobState") -> None:
        text = line(record)
        if text is not None:
            lines.append(text)
            click.echo(text)

    return home, drive(home, site, job, listen), lines


def _summary(state: "JobState", control: "JobState") -> bool:
    from rackyard.jobs.recovery import PARTS, goodput, recoveries
    from rackyard.report.incident import mean_recovery

    found = recoveries(state)
    click.echo("\n== what it cost (measured) ==")
    rows = [
        (item.cause, item.action, span(item.total), *(span(item.parts[part]) for part in PARTS), item.steps_lost)
        for item in found
    ]
    print_table(["fault", "action", "recovered in", *PARTS, "steps lost"], rows)
    share = goodput(state)
    click.echo(
        f"\nmean time to recover {span(mean_recovery(found))}; steps lost {sum(item.steps_lost for item in found)}",
        nl=False,
    )
    click.echo(f"; goodput {share:.1%}" if share is not None else "")
    ours, theirs = state.metrics.get("loss"), control.metrics.get("loss")
    same = ours is not None and ours == theirs
    verdict = "equal, bit for bit" if same else "DIFFERENT"
    click.echo(f"final loss  with faults {_hex(ours)}\n            control     {_hex(theirs)}  → {verdict}")
    return same


def _same_files(out: Path) -> bool:
    """Whether the two runs' last checkpoints hold the same bytes: weights, optimizer, averages, random states."""
    from rackyard.checkpoint import list_checkpoints
    from rackyard.checkpoint.manifest import read

    ours, theirs = (read(list_checkpoints(out / f"{name}-ckpt")[0].path).files for name in ("shape-dit", "control"))
    same = ours == theirs
    verdict = "equal by SHA-256, one by one" if same else "DIFFERENT"
    click.echo(f"final checkpoint, {len(ours)} files of weights, optimizer and random states: {verdict}")
    return same


def _hex(value: float | None) -> str:
    return "none" if value is None else f"{value:.6f} ({value.hex()})"


def _sample(out: Path, meshes: Path) -> tuple[Path, Sequence[float]]:
    from rackyard.shape3d.sample import sample_sheet

    report = sample_sheet(out / "shape-dit-ckpt", meshes, out / "shapes", 6)
    return report.png, report.iou


def _report(out: Path, ours: "tuple[Home, JobState, list[str]]", control: "tuple[Home, JobState]", sheet: Path) -> None:
    from rackyard.report import Extra, render
    from rackyard.report.incident import losses

    home, state, lines = ours
    control_home, control_state = control
    same = state.metrics.get("loss") == control_state.metrics.get("loss")
    extra = Extra(
        control=losses(control_home.store.records(control_state.job)),
        figures=[("final loss against control", "bit for bit" if same else "different")],
        pictures=[("Generated shapes beside their conditions", sheet)],
        timeline=lines,
    )
    (out / "report.html").write_text(render(home.store.records(state.job), home.site(), extra))
