"""`rackyard kube topology`: tells a cluster's own scheduler of the site's topology."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import confirm, emit, hint, output_option, print_table
from rackyard.cli.inputs import counted, some_of

if TYPE_CHECKING:
    from rackyard.backends.kubernetes.client import Client
    from rackyard.backends.kubernetes.topology import Done, Step
    from rackyard.fabric import Site

_SHOWN = 40
_WIDE = 60


@click.command("topology")
@click.option("--site", type=click.Path(path_type=Path), required=True, help="Site file; its nodes are the cluster's.")
@click.option("--to", "name", required=True, type=click.Choice(["volcano", "kueue"]), help="Whose objects to write.")
@click.option("--dry-run", is_flag=True, help="Let the server check what changes, store nothing.")
@click.option("--force", is_flag=True, help="Take over objects and fields that are somebody else's.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--kubeconfig", help="As for kubectl.")
@click.option("--context", help="As for kubectl.")
@output_option
def topology(
    site: Path,
    name: str,
    dry_run: bool,
    force: bool,
    yes: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Write HyperNodes (volcano), or Topology and ResourceFlavor (kueue), to a cluster: only what differs.

    By server-side apply, after showing what changes. HyperNodes of ours that the site no longer has are removed; what
    is not ours is left alone. Kueue does not let a Topology be changed: it says so. Nodes of the site that the cluster
    does not have are told.
    """
    from rackyard.backends.kubernetes.client import connect
    from rackyard.backends.kubernetes.topology import apply, plan
    from rackyard.controller.sites import read_site

    found = read_site(site)
    objects = _objects(found, name)
    if found.simulated:
        hint(f"note: site {found.name} is simulated")
    with connect(kubeconfig, context) as client:
        steps = plan(client, objects)
        _compare(client, found)
        if output == "table":
            _show(steps)
        if steps and not yes and not dry_run:
            confirm(f"write {counted(len(steps), 'object')} to {client.server}?")
        done = tuple(apply(client, steps, dry_run=dry_run, force=force))
    emit(output, [_plain(each) for each in done], lambda: _told(done, dry_run))
    if len(done) < len(steps) or any(each.error is not None for each in done):
        sys.exit(1)


def _objects(site: "Site", name: str) -> list[dict[str, Any]]:
    """What `topo export` writes, read again."""
    from ruamel.yaml import YAML

    from rackyard.fabric.writers.formats import formats

    return [body for body in YAML(typ="safe", pure=True).load_all(formats()[name].write(site)) if body]


def _compare(client: "Client", site: "Site") -> None:
    """Say which nodes of the site the cluster does not have: it is most often a wrong file, or a wrong cluster."""
    from rackyard.backends.kubernetes.client import ApiError
    from rackyard.backends.kubernetes.nodes import read_nodes

    try:
        there = {node.name for node in read_nodes(client)}
    except ApiError as error:
        if error.status.code != 403:
            raise
        hint("note: whether the site's nodes are in the cluster is not known: this user may not list nodes")
        return
    gone = [node.name for node in site.nodes if node.name not in there]
    if gone:
        hint(f"warning: {len(gone)} of the site's {len(site.nodes)} nodes are not in the cluster: {some_of(gone, 3)}")


def _show(steps: "Sequence[Step]") -> None:
    rows = [
        (step.kind.kind, step.name, step.word.value, *(_short(cell) for cell in field))
        for step in steps
        for field in step.fields or (("", "", ""),)
    ]
    if rows:
        print_table(["kind", "name", "what", "field", "now", "becomes"], rows[:_SHOWN])
        if len(rows) > _SHOWN:
            click.echo(f"and {len(rows) - _SHOWN} more")


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"


def _plain(done: "Done") -> dict[str, Any]:
    step = done.step
    return {
        "kind": step.kind.kind,
        "name": step.name,
        "what": step.word.value,
        "fields": {at: {"now": now, "becomes": new} for at, now, new in step.fields},
        "error": str(done.error) if done.error else None,
    }


def _told(done: "Sequence[Done]", dry_run: bool) -> None:
    for each in done:
        if each.error is not None:
            click.echo(f"{each.step.kind.kind} {each.step.name}: {each.error}")
    if not done:
        click.echo("all objects are as they should be")
        return
    well = Counter(each.step.word.value for each in done if each.error is None)
    words = ", ".join(f"{word} {count}" for word, count in well.items()) or "nothing"
    click.echo(f"{'would do' if dry_run else 'done'}: {words}; {len(done) - sum(well.values())} failed")
