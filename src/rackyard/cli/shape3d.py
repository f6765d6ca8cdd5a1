"""`rackyard shape3d`: train, sample and measure the 3D-generation models."""

from pathlib import Path

import click

from rackyard.cli.common import emit, output_option, print_table

_folder = click.Path(path_type=Path, file_okay=False)


@click.group(name="shape3d")
def shape3d() -> None:
    """Train, sample and measure the 3D-generation models."""


@shape3d.command()
@click.option("--config", default="tiny", show_default=True, help="Model configuration.")
@click.option("--data", type=_folder, required=True, help="Folder of OBJ, PLY, STL or GLB files.")
@click.option("--steps", type=click.IntRange(min=1), required=True, help="Optimizer steps of the whole run.")
@click.option("--checkpoint", type=_folder, required=True, help="Folder for checkpoints; a run resumes from it.")
@click.option("--every", type=click.IntRange(min=1), default=20, show_default=True, help="Steps between checkpoints.")
@click.option("--parallel", type=click.Choice(["ddp", "fsdp2"]), default="ddp", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--batch", type=click.IntRange(min=1), default=2, show_default=True, help="Shapes per rank and step.")
@click.option("--scratch", is_flag=True, help="Do not start from the committed denoiser.")
def train(scratch: bool, **options: object) -> None:
    """Train the denoiser in this process (one rank).

    Several ranks: torchrun -m rackyard.shape3d.train, or a job file and `rackyard run`.
    """
    from rackyard.shape3d.train import execute, parse

    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    execute(parse([*flags, *(["--scratch"] if scratch else [])]))


@shape3d.command()
@click.option("--data", type=_folder, required=True, help="Folder of mesh files that say what to generate.")
@click.option("--weights", type=_folder, help="Checkpoint folder of a run, or folder of weights [default: committed].")
@click.option("--out", type=_folder, default=Path("out/shapes"), show_default=True)
@click.option("--count", type=click.IntRange(min=1), default=8, show_default=True, help="How many of the meshes.")
@click.option("--steps", type=click.IntRange(min=1), default=24, show_default=True, help="Euler steps.")
@click.option("--guidance", type=float, default=2.0, show_default=True, help="Classifier-free guidance; 1 is none.")
@click.option("--resolution", type=click.IntRange(8, 512), default=64, show_default=True, help="Grid cells a side.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@output_option
def sample(data: Path, weights: Path | None, out: Path, count: int, output: str, **options: float) -> None:
    """Generate a shape for each mesh: watertight GLB files and one PNG sheet beside the truth."""
    from rackyard.shape3d.sample import SampleOptions, sample_sheet

    chosen = SampleOptions(int(options["steps"]), options["guidance"], int(options["resolution"]), int(options["seed"]))
    report = sample_sheet(weights, data, out, count, chosen)
    rows = [{"mesh": name, "iou": round(value, 4)} for name, value in zip(report.names, report.iou, strict=True)]
    found = {
        "shapes": rows,
        "glb": [str(path) for path in report.glbs],
        "png": str(report.png),
        "seconds": {stage: round(value, 4) for stage, value in report.seconds.items()},
    }

    def table() -> None:
        print_table(["mesh", "iou (measured)"], [(row["mesh"], f"{row['iou']:.3f}") for row in rows])
        click.echo(f"{len(report.glbs)} GLB files in {out}; sheet {report.png}")

    emit(output, found, table)


@shape3d.command()
@click.option("--resolution", type=click.IntRange(8, 256), default=64, show_default=True, help="Grid cells a side.")
@click.option("--steps", type=click.IntRange(min=1), default=24, show_default=True, help="Euler steps.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="The best of so many counts.")
@output_option
def bench(resolution: int, steps: int, repeats: int, output: str) -> None:
    """Measure each stage of generation on this machine, with the committed tiny weights."""
    import torch

    from rackyard.shape3d.bench import bench as measure
    from rackyard.shape3d.bench import machine

    torch.set_num_threads(1)
    timings = measure(resolution, steps, repeats)
    found = {
        "machine": machine(),
        "stages": [{"stage": t.stage, "seconds": round(t.seconds, 5), "work": t.work} for t in timings],
    }

    def table() -> None:
        print_table(["stage", "seconds (measured)", "work"], [(t.stage, f"{t.seconds:.4f}", t.work) for t in timings])
        click.echo(f"one shape of the tiny family, grid {resolution}; {found['machine']}")

    emit(output, found, table)


@shape3d.command()
@click.argument("folder", type=_folder)
@click.option("--count", type=click.IntRange(1, 10_000), default=16, show_default=True)
def meshes(folder: Path, count: int) -> None:
    """Write sample mesh files of procedural (synthetic) shapes to FOLDER, in OBJ, PLY, STL and GLB."""
    from rackyard.shape3d.meshes import write_samples

    paths = write_samples(folder, count)
    click.echo(f"{len(paths)} mesh files in {folder}, listed in {folder / 'manifest.json'}")
