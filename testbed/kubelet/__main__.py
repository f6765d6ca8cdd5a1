"""python -m testbed.kubelet [run] --kubeconfig F --site SITE.yaml | --racks N --trays M [--state DIR], and what to do
with one that runs: lose, condition, restore (simulated faults), logs.
"""

import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from rackyard.backends.kubernetes.client import connect
from rackyard.errors import RackyardError, UsageError
from rackyard.fabric import Site, load, simulate
from testbed.kubelet import faults
from testbed.kubelet.kubelet import Kubelet, Options, held
from testbed.kubelet.lifecycle import Backoff
from testbed.kubelet.logs import find, text
from testbed.kubelet.processes import Processes

_state = click.option(
    "--state", type=click.Path(path_type=Path), default=Path("out/kubelet"), show_default=True, help="what it remembers"
)


class _Group(click.Group):
    """`run` is what is meant where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Group, help="A kubelet that runs pods as processes of this machine, on simulated trays.")
def cli() -> None:
    pass


@cli.command(help="Register the trays and run their pods, until SIGTERM or Ctrl-C.")
@click.option("--kubeconfig", help="of the cluster; else as kubectl finds it")
@click.option("--site", type=click.Path(path_type=Path, dir_okay=False), help="a site file")
@click.option("--racks", type=int, default=0, help="simulate so many racks")
@click.option("--trays", type=int, default=18, show_default=True, help="trays a simulated rack")
@click.option("--lease", type=click.IntRange(1), default=40, show_default=True, help="seconds a lease lasts")
@click.option("--renew", type=float, default=10.0, show_default=True, help="seconds between renewals")
@click.option("--restart-wait", type=float, default=10.0, show_default=True, help="seconds before a second restart")
@click.option("--keep", is_flag=True, help="leave the processes running at the end, for the next kubelet")
@_state
def run(
    kubeconfig: str | None,
    site: Path | None,
    racks: int,
    trays: int,
    lease: int,
    renew: float,
    restart_wait: float,
    keep: bool,
    state: Path,
) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    over = threading.Event()

    def ends(_number: int, _frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ends)
    options = Options(lease=lease, renew=renew, backoff=Backoff(base=restart_wait, most=max(restart_wait, 300.0)))
    yard = _site(site, racks, trays)
    with connect(kubeconfig) as client:
        kubelet = Kubelet(client, yard, state, options)
        kubelet.start()
        click.echo(f"{len(yard.nodes)} nodes registered; what runs is in {state}")
        while not over.wait(0.5):
            if not kubelet.alive():
                kubelet.stop(end=not keep)
                raise SystemExit("the kubelet's loop died: see above")
        kubelet.stop(end=not keep)


@cli.command(help="[simulated] NODE loses power: all its processes die, and its heartbeat stops.")
@click.argument("node")
@_state
def lose(node: str, state: Path) -> None:
    faults.lose(_there(state), node)


@cli.command(help="[simulated] NODE says the condition TYPE, such as NVLinkDown.")
@click.argument("node")
@click.argument("kind", metavar="TYPE")
@click.option("--status", type=click.Choice(["True", "False", "Unknown"]), default="True", show_default=True)
@click.option("--reason", default="Injected", show_default=True)
@_state
def condition(node: str, kind: str, status: str, reason: str, state: Path) -> None:
    faults.condition(_there(state), node, kind, status, reason)


@cli.command(help="NODE is powered and well again.")
@click.argument("node")
@_state
def restore(node: str, state: Path) -> None:
    faults.restore(_there(state), node)


@cli.command(help="What the containers of POD wrote, all runs of it.")
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("-c", "--container", default="", help="only this container")
@_state
def logs(pod: str, namespace: str, container: str, state: Path) -> None:
    for name, content in text(find(_there(state), namespace, pod), container):
        click.echo(f"==> {name} <==")
        click.echo(content, nl=False)


@cli.command(help="End all processes that a kubelet which was killed has left running.")
@_state
def end(state: Path) -> None:
    with held(_there(state)):
        parts = [path.parent.parent for path in state.absolute().glob("pods/*/*/0/run.json")]
        for part in parts:
            Processes(part).wipe()
    click.echo(f"{len(parts)} containers ended")


def _site(file: Path | None, racks: int, trays: int) -> Site:
    if (file is None) == (racks == 0):
        raise UsageError("what site?", fix="give either --site FILE or --racks N")
    if file is None:
        return simulate(racks=racks, trays=trays)
    try:
        return load(file.read_text(encoding="utf-8"), str(file))
    except OSError as error:
        raise UsageError("the site file can't be read", where=str(file), why=error.strerror) from None


def _there(state: Path) -> Path:
    if not (state / "lock").exists():
        raise UsageError("no kubelet has had this state folder", where=str(state), fix="give its --state")
    return state


if __name__ == "__main__":
    try:
        cli()
    except RackyardError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
