"""`python -m testbed`: build, up, down, status."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from rackyard.errors import RackyardError, UsageError
from testbed import layout, processes
from testbed.build import build as build_families
from testbed.build import missing
from testbed.cluster import Cluster, end, leftovers
from testbed.families import FAMILIES, PARTS, cache, wanted
from testbed.options import Options
from testbed.programs import ORDER

_PART = click.Choice(PARTS)


def say(line: str) -> None:
    """A line of progress: standard output is for results."""
    click.echo(line, err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """A real Kubernetes control plane on this machine, on 127.0.0.1 only, for tests and benchmarks."""


@main.command()
@click.argument("families", nargs=-1, type=click.Choice([family.name for family in FAMILIES]))
def build(families: tuple[str, ...]) -> None:
    """Build all FAMILIES, or those named, unless they are in the cache."""
    build_families([family for family in FAMILIES if not families or family.name in families], say)
    click.echo(cache())


@main.command()
@click.option("--name", default="testbed", show_default=True, help="The cluster's name, also of its context.")
@click.option("--with", "parts", multiple=True, type=_PART, help="More than the bare control plane; repeatable.")
@click.option("--folder", type=click.Path(path_type=Path), help="Its state; by default under the user's cache folder.")
@click.option("--racks", default=0, help="So many simulated NVL72 racks as KWOK nodes.")
@click.option("--trays", default=18, show_default=True, help="Compute trays in each of the racks.")
@click.option("--racks-per-block", default=0, help="Racks under one set of spines; 0: all.")
@click.option("--site", "file", type=click.Path(path_type=Path, exists=True), help="A site file's nodes instead.")
@click.option("--flag", "flags", multiple=True, metavar="PROGRAM=FLAG", help="`kube-scheduler=--v=4`; repeatable.")
@click.option("--load", is_flag=True, help="No limits on requests in flight in the API server.")
def up(
    name: str,
    parts: tuple[str, ...],
    folder: Path | None,
    load: bool,
    flags: tuple[str, ...],
    **trays: Any,
) -> None:
    """Build what is missing, start a cluster, and print the path of its kubeconfig."""
    from testbed import nodes

    wants = nodes.site(**trays)
    parts = tuple(dict.fromkeys((*parts, "kwok") if wants else parts))
    options = Options(name=name, parts=parts, load=load, flags=_flags(flags))
    families = wanted(parts)
    if missing(families):
        build_families(families, say)
    started = time.monotonic()
    found = Cluster.start(folder or cache() / "run" / name, options)
    say(f"testbed: {name} is ready after {time.monotonic() - started:.1f} s")
    if wants:
        try:
            nodes.create(found, wants)
        except BaseException:
            found.down()
            raise
        say(f"testbed: {len(wants.nodes)} nodes are ready after {time.monotonic() - started:.1f} s")
    click.echo(found.kubeconfig)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every cluster on the list, left over or not.")
@click.option("--folder", type=click.Path(path_type=Path), help="The cluster of this folder.")
def down(names: tuple[str, ...], everything: bool, folder: Path | None) -> None:
    """End the clusters called NAMES (default: testbed) and delete their folders."""
    if folder is not None:
        Cluster.open(folder).down()
        return
    ended = 0
    for mark, place in leftovers().items():
        if everything or _name(place) in (names or ("testbed",)):
            end(mark, place)
            say(f"testbed: {place} is down")
            ended += 1
    if not ended and not everything:
        raise UsageError(f"no cluster called {' or '.join(names or ('testbed',))}", fix="python -m testbed status")


@main.command()
def status() -> None:
    """Every cluster that was started and not ended, with its programs and their memory."""
    for family in FAMILIES:
        click.echo(f"{family.name:<12}{'not built' if family in missing() else 'built'}")
    for mark, folder in leftovers().items():
        try:
            found = Cluster.open(folder)
        except UsageError:
            left = len(processes.marked(mark))
            click.echo(f"{folder}: no cluster in it any more, {left} processes left (python -m testbed down --all)")
            continue
        memory = found.memory()
        minutes = (time.time() - found.plan.created) / 60
        click.echo(f"{found.plan.options.name}: {found.kubeconfig}, {minutes:.0f} min old")
        for noted in processes.noted(found.layout.pids):
            size = memory.get(noted.name)
            shown = f"{size / 2**20:>6.0f} MiB" if size is not None else "not running"
            click.echo(f"  {noted.name:<24}{noted.who.pid:>8}  {shown}")
        click.echo(f"  {'together':<24}{'':>8}  {sum(memory.values()) / 2**20:>6.0f} MiB")


def _flags(given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Flags by program. UsageError for a program that there is not."""
    found: dict[str, tuple[str, ...]] = {}
    programs = [name for names in ORDER.values() for name in names]
    for one in given:
        program, _, flag = one.partition("=")
        if program not in programs or not flag:
            raise UsageError(f"--flag {one}: no program and flag", fix=f"PROGRAM=FLAG, one of {', '.join(programs)}")
        found[program] = (*found.get(program, ()), flag)
    return found


def _name(folder: Path) -> str:
    try:
        return layout.read(folder)[1].options.name
    except UsageError:
        return folder.name


if __name__ == "__main__":
    try:
        main()
    except RackyardError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
