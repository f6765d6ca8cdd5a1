"""`rackyard topo label`: what a cluster's node labels should say of the fabric, and writing what differs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import confirm, emit, output_option, print_table
from rackyard.cli.inputs import counted, read_bytes, some_of

if TYPE_CHECKING:
    from rackyard.backends.kubernetes.apply import Applied
    from rackyard.backends.kubernetes.client import Client
    from rackyard.backends.kubernetes.nodes import ClusterNode
    from rackyard.fabric import Site
    from rackyard.fabric.labelkeys import KeyTable
    from rackyard.fabric.labelplan import LabelPlan

_SHOWN = 40


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The cluster as it was read; `client` is None for a saved list."""

    nodes: "dict[str, ClusterNode]"
    client: "Client | None"


@click.command("label")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--nodes", "saved", type=click.Path(path_type=Path), help="A saved `kubectl get nodes -o json`: plan only."
)
@click.option("--apply", "write", is_flag=True, help="Write the changes (server-side apply); otherwise they are shown.")
@click.option("--dry-run", is_flag=True, help="With --apply: let the server check, store nothing.")
@click.option("--force", is_flag=True, help="Take over labels that somebody else set to another value.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--also", "groups", multiple=True, help="Also write the keys of this group (may be repeated).")
@click.option("--label-keys", "keys", type=click.Path(path_type=Path), help="Your own table of keys, over ours.")
@click.option("--list-keys", is_flag=True, help="List the keys, their meaning and source, and end.")
@click.option("--kubeconfig", help="As for kubectl.")
@click.option("--context", help="As for kubectl.")
@output_option
def label(
    files: tuple[Path, ...],
    saved: Path | None,
    write: bool,
    dry_run: bool,
    force: bool,
    yes: bool,
    groups: tuple[str, ...],
    keys: Path | None,
    list_keys: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Plan the labels of a cluster's nodes from FILES (captures or one site file), and apply what differs.

    Only differences are written, and nothing is removed that is not ours. Facts that a key can carry: domain,
    fabric-clique, clique-id, rack, chassis, slot, tray, rails-up, degraded-links, degraded-gpus, leaf-of-rail, tier.
    """
    from rackyard.cli.captures import found_in, remark
    from rackyard.errors import UsageError

    table = _table(keys)
    if list_keys:
        _list(table, output)
        return
    if write and saved is not None:
        raise UsageError("a saved list can't be written to", fix="leave out --nodes to reach the cluster itself")
    if not files:
        raise UsageError("nothing to take labels from", fix="give captures, folders of captures, or a site file")
    found = found_in(files)
    remark(found)
    site = found.site
    if write and site.simulated:
        raise UsageError("the site is simulated", why="no node of a real cluster is what it says", fix="discover one")
    cluster = _cluster(saved, kubeconfig, context)
    made = _plan(site, cluster, table, groups)
    if not write:
        emit(output, None if output == "table" else _plain(made), lambda: _show(made))
        return
    if made.changes and not yes and not dry_run:
        _show(made)
        labels = counted(sum(len(change) for change in made.changes), "label")
        confirm(f"write {labels} to {counted(len(made.changes), 'node')}?")
    results = _apply(made, cluster, dry_run=dry_run, force=force)
    emit(output, _plain_results(results), lambda: _show_results(results, made, dry_run))
    if any(result.error is not None for result in results):
        sys.exit(1)


def _table(file: Path | None) -> "KeyTable":
    from rackyard.errors import UsageError
    from rackyard.fabric.labelkeys import load, shipped

    if file is None:
        return shipped()
    try:
        return load(read_bytes(file).decode("utf-8"), str(file))
    except UnicodeDecodeError as error:
        raise UsageError("the table of label keys is not UTF-8", where=str(file), why=str(error)) from None


def _list(table: "KeyTable", output: str) -> None:
    rows = [(key.shown, key.group, key.write.value, key.fact.value, key.meaning) for key in table.keys]
    names = ("key", "group", "written", "fact", "meaning")
    emit(output, [dict(zip(names, row, strict=True)) for row in rows], lambda: print_table(names, rows))


def _cluster(saved: Path | None, kubeconfig: str | None, context: str | None) -> _Cluster:
    from rackyard.errors import UsageError

    try:
        from rackyard.backends.kubernetes.client import connect
        from rackyard.backends.kubernetes.nodes import captured_nodes, read_nodes
    except ImportError as error:
        raise UsageError(
            "Kubernetes support is not installed", why=str(error), fix="pip install 'rackyard[kubernetes]'"
        ) from None
    if saved is not None:
        nodes = captured_nodes(read_bytes(saved), str(saved))
        return _Cluster({node.name: node for node in nodes}, None)
    client = connect(kubeconfig, context)
    return _Cluster({node.name: node for node in read_nodes(client)}, client)


def _plan(site: "Site", cluster: _Cluster, table: "KeyTable", groups: Sequence[str]) -> "LabelPlan":
    from rackyard.fabric.discover.names import HostNames
    from rackyard.fabric.labelplan import Ours, plan
    from rackyard.fabric.labels import labels_of

    current = {name: node.labels for name, node in cluster.nodes.items()}
    managed = {name: node.managed for name, node in cluster.nodes.items()}
    wanted = labels_of(site, table.written(groups))
    # A cluster may know its nodes by their full names, and captures by the short ones, or the reverse.
    names = HostNames()
    names.learn([*cluster.nodes, *wanted])
    of_host = {names(node): node for node in cluster.nodes}
    return plan(
        {of_host.get(names(node), node): labels for node, labels in wanted.items()}, current, Ours(table, managed)
    )


def _show(made: "LabelPlan") -> None:
    rows = []
    for change in made.changes:
        rows += [(change.node, key, old or "-", new) for key, old, new in change.set]
        rows += [(change.node, key, old, "(removed)") for key, old in change.remove]
    if rows:
        print_table(["node", "label", "now", "becomes"], rows[:_SHOWN])
        if len(rows) > _SHOWN:
            click.echo(f"and {len(rows) - _SHOWN} more (-o json shows them all)")
    click.echo(
        f"{counted(len(made.changes), 'node')} to change, {counted(len(rows), 'label')};"
        f" {made.unchanged} as they should be"
    )
    for names, what in (
        (made.not_in_cluster, "of the site, not in the cluster"),
        (made.not_in_site, "not in the site"),
    ):
        if names:
            click.echo(f"{counted(len(names), 'node')} {what}: {some_of(names)}")


def _plain(made: "LabelPlan") -> dict[str, Any]:
    changes = [
        {
            "node": change.node,
            "set": {key: {"now": old, "becomes": new} for key, old, new in change.set},
            "remove": dict(change.remove),
        }
        for change in made.changes
    ]
    return {
        "changes": changes,
        "unchanged": made.unchanged,
        "not_in_cluster": list(made.not_in_cluster),
        "not_in_site": list(made.not_in_site),
    }


def _apply(made: "LabelPlan", cluster: _Cluster, *, dry_run: bool, force: bool) -> "tuple[Applied, ...]":
    from rackyard.backends.kubernetes.apply import How, apply

    assert cluster.client is not None  # a saved list was refused before
    return apply(cluster.client, made.changes, cluster.nodes, How(dry_run=dry_run, force=force))


def _plain_results(results: "Sequence[Applied]") -> list[dict[str, Any]]:
    return [
        {"node": one.node, "outcome": one.outcome.value, "error": str(one.error) if one.error else None}
        for one in results
    ]


def _show_results(results: "Sequence[Applied]", made: "LabelPlan", dry_run: bool) -> None:
    for one in results:
        if one.error is not None:
            click.echo(f"{one.node}: {one.outcome.value}: {one.error}")
    done = sum(one.error is None for one in results)
    word = "would change" if dry_run else "changed"
    click.echo(f"{word} {done} of {len(results)} nodes; {made.unchanged} were as they should be")
