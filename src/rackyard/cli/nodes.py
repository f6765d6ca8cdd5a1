"""`rackyard nodes`: what nodes there are, how they are and who uses them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import confirm, emit, open_home, open_store, output_option, plain, print_table, state_option

if TYPE_CHECKING:
    from rackyard.fabric import Node, Site
    from rackyard.placement import Occupancy

site_option = click.option(
    "--site", "file", type=click.Path(path_type=Path), help="Site file; default: the state folder's site."
)


@click.group("nodes", context_settings={"help_option_names": ["-h", "--help"]})
def nodes() -> None:
    """Show nodes and their use."""


@nodes.command("ls")
@site_option
@output_option
@state_option
def ls(file: Path | None, output: str, state: Path) -> None:
    """List the nodes."""
    site, occupancy = look(file, state)
    data = [summary(node, occupancy) for node in site.nodes]
    emit(output, {**origin(site), "nodes": data}, lambda: show_table(site, data))


@nodes.command("show")
@click.argument("name")
@site_option
@output_option
@state_option
def show(name: str, file: Path | None, output: str, state: Path) -> None:
    """Show one node: its GPUs, NICs, rails and NUMA nodes."""
    site, occupancy = look(file, state)
    node = site.node(known(name, [node.name for node in site.nodes], "node"))
    data = {**origin(site), **plain(node), "in_use": sorted(occupancy.busy(name))}
    emit(output, data, lambda: show_node(site, node, occupancy))


@nodes.command("return")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be returned; return nothing.")
@state_option
def return_(name: str, yes: bool, dry_run: bool, state: Path) -> None:
    """Return a node to service that a fault took out of use. Jobs that wait for seats are looked at again."""
    give_back(state, "node", name, yes=yes, dry_run=dry_run)


def give_back(state: Path, what: str, name: str, *, yes: bool, dry_run: bool) -> None:
    """Return a node or rack (`what`) to service. UsageError for a name the site does not have."""
    from rackyard.controller.sites import stored_site
    from rackyard.errors import UsageError
    from rackyard.jobs.events import Returned
    from rackyard.jobs.site import SITE_STREAM, cordons

    store = open_store(state)
    site = stored_site(store)
    known(name, [item.name for item in (site.nodes if what == "node" else site.racks)], what)
    why = cordons(store.records(SITE_STREAM)).get(name)
    if why is None:
        if what == "node" and site.node(name).cordoned:
            raise UsageError(
                f"{name} is cordoned by the site file",
                why=site.node(name).cordoned,
                fix="take `cordoned` out of the site file and give it with --site",
            )
        click.echo(f"{name} is in service already")
        return
    if dry_run:
        click.echo(f"would return {name} to service (out of use: {why})")
        return
    if not yes:
        confirm(f"return {name} to service (out of use: {why})?")
    open_home(state).store.append(SITE_STREAM, [Returned(subject=name)])
    click.echo(f"{name}: returned to service")


def look(file: Path | None, state: Path) -> "tuple[Site, Occupancy]":
    """The site with what is out of use, and what jobs hold on it; with a site file, that site unused.

    UsageError for a missing file, SpecError for a bad one.
    """
    from rackyard.controller.sites import read_site, stored_site
    from rackyard.placement import Occupancy

    if file is not None:
        return read_site(file), Occupancy()
    from rackyard.controller.seats import occupancy_of
    from rackyard.jobs.site import SITE_STREAM, cordons, with_cordons

    store = open_store(state)
    site = with_cordons(stored_site(store), cordons(store.records(SITE_STREAM)))
    live = [store.state(str(row["job"])) for row in store.jobs(live_only=True)]
    return site, occupancy_of(live, site)


def known(name: str, names: list[str], what: str) -> str:
    """`name` when it is one of `names`. UsageError with the nearest one when it is not."""
    import difflib

    from rackyard.errors import UsageError

    if name in names:
        return name
    near = difflib.get_close_matches(name, names, 1)
    raise UsageError(
        f"there is no {what} {name!r}", fix=f"did you mean {near[0]}?" if near else f"see `rackyard {what}s ls`"
    )


def origin(site: "Site") -> dict[str, Any]:
    """What every answer says first: whose site, and whether it is real."""
    return {"site": site.name, "simulated": site.simulated}


def heading(site: "Site") -> str:
    """The same as a line of text."""
    return f"site {site.name}" + (" (simulated)" if site.simulated else "")


def summary(node: "Node", occupancy: "Occupancy") -> dict[str, Any]:
    """One node in a few fields; GPUs as counts."""
    return {
        "name": node.name,
        "kind": node.kind,
        "rack": node.rack,
        "slot": node.slot,
        "gpu": node.gpus[0].kind if node.gpus else "",
        "gpus": len(node.gpus),
        "gpus_in_use": len(occupancy.busy(node.name)),
        "health": condition(node),
        "cordoned": node.cordoned,
    }


def condition(node: "Node") -> str:
    """The node's health; `degraded` when only a GPU or NIC of it is not healthy."""
    from rackyard.fabric import Health

    parts = [gpu.health for gpu in node.gpus] + [nic.health for nic in node.nics]
    if node.health is Health.HEALTHY and any(health is not Health.HEALTHY for health in parts):
        return Health.DEGRADED.value
    return node.health.value


def show_table(site: "Site", rows: list[dict[str, Any]]) -> None:
    """Print nodes as a table."""
    click.echo(heading(site))
    print_table(
        ["node", "kind", "rack", "slot", "gpus", "in use", "health", "cordoned"],
        [
            (
                *(row[key] for key in ("name", "kind", "rack", "slot")),
                f"{row['gpus']} x {row['gpu']}",
                row["gpus_in_use"],
                row["health"],
                row["cordoned"] or "-",
            )
            for row in rows
        ],
    )


def show_node(site: "Site", node: "Node", occupancy: "Occupancy") -> None:
    """Print one node and its parts."""
    click.echo(heading(site))
    slot = f"slot {node.slot}" if node.slot >= 0 else "slot unknown"
    click.echo(f"node {node.name}: {node.kind} in rack {node.rack}, {slot}, {condition(node)}")
    click.echo(f"NVLink domain {node.domain}")
    click.echo(f"cordoned: {node.cordoned or 'no'}")
    click.echo("cpus: " + ("; ".join(f"NUMA {cpu.numa}: {cpu.cpus}" for cpu in node.cpus) or "unknown"))
    busy = occupancy.busy(node.name)
    click.echo("")
    print_table(
        ["gpu", "kind", "pci", "numa", "nvlinks", "memory GiB", "health", "in use"],
        [
            (g.index, g.kind, g.pci, g.numa, g.nvlinks, g.memory_gib, g.health, "yes" if g.index in busy else "-")
            for g in node.gpus
        ],
    )
    click.echo("")
    print_table(
        ["nic", "name", "rail", "Gb/s", "numa", "pci", "leaf", "health"],
        [(n.index, n.name, n.rail, n.gbps, n.numa, n.pci, n.leaf, n.health) for n in node.nics],
    )
