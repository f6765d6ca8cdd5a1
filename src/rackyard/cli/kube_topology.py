"""`rackyard kube topology`: tells a cluster's own scheduler of the site's topology."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import confirm, emit, output_option, print_table
from rackyard.cli.inputs import counted

if TYPE_CHECKING:
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
    is not ours is left alone. Kueue does not let a Topology be changed: it says so.
    """
    from rackyard.backends.kubernetes.client import connect
    from rackyard.backends.kubernetes.topology import apply, plan
    from rackyard.cli.captures import found_in, remark

    found = found_in((site,))
    remark(found)
    with connect(kubeconfig, context) as client:
        steps = plan(client, _objects(found.site, name))
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
