"""`rackyard racks`: racks, their NVLink domains and how much of them is free."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import emit, output_option, plain, print_table, state_option
from rackyard.cli.nodes import give_back, heading, known, look, origin, show_table, site_option
from rackyard.cli.nodes import summary as node_summary

if TYPE_CHECKING:
    from rackyard.fabric import Rack, Site
    from rackyard.placement import Occupancy


@click.group("racks", context_settings={"help_option_names": ["-h", "--help"]})
def racks() -> None:
    """Show racks and their NVLink domains."""


@racks.command("ls")
@site_option
@output_option
@state_option
def ls(file: Path | None, output: str, state: Path) -> None:
    """List the racks."""
    site, occupancy = look(file, state)
    data = [summary(site, rack, occupancy) for rack in site.racks]
    emit(output, {**origin(site), "racks": data}, lambda: _table(site, data))


@racks.command("show")
@click.argument("name")
@site_option
@output_option
@state_option
def show(name: str, file: Path | None, output: str, state: Path) -> None:
    """Show one rack: its NVLink domain, switch trays, leaves and nodes."""
    site, occupancy = look(file, state)
    rack = site.rack(known(name, [rack.name for rack in site.racks], "rack"))
    rows = [node_summary(node, occupancy) for node in site.nodes_in_rack(name)]
    leaves = [plain(leaf) for leaf in site.leaves if leaf.rack == name]
    data = {**origin(site), **plain(rack), "nodes": rows, "leaves": leaves}
    emit(output, data, lambda: show_rack(site, rack, rows))


@racks.command("return")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be returned; return nothing.")
@state_option
def return_(name: str, yes: bool, dry_run: bool, state: Path) -> None:
    """Return a rack's NVLink domain to service that a fault took out of use. Its nodes are returned one by one."""
    give_back(state, "rack", name, yes=yes, dry_run=dry_run)


def summary(site: "Site", rack: "Rack", occupancy: "Occupancy") -> dict[str, Any]:
    """One rack in a few fields; a node is free when it is healthy, not cordoned and nobody uses any of it."""
    from rackyard.fabric import Health

    nodes = site.nodes_in_rack(rack.name)
    free = [
        node
        for node in nodes
        if node.health is Health.HEALTHY and not node.cordoned and len(occupancy.free(node)) == len(node.gpus)
    ]
    return {
        "name": rack.name,
        "domains": sorted({str(node.domain) for node in nodes}),
        "nvlink": rack.nvlink.value,
        "switch_trays": len(rack.switch_trays),
        "nodes": len(nodes),
        "nodes_free": len(free) if rack.nvlink is not Health.DOWN else 0,
        "gpus": sum(len(node.gpus) for node in nodes),
        "gpus_in_use": sum(len(occupancy.busy(node.name)) for node in nodes),
    }


def show_rack(site: "Site", rack: "Rack", rows: list[dict[str, Any]]) -> None:
    """Print one rack and what stands in it."""
    click.echo(f"rack {rack.name}: NVLink {rack.nvlink.value}, domain {rack.domain or 'none of its own'}")
    leaves = ", ".join(f"{leaf.name} (rail {leaf.rail})" for leaf in site.leaves if leaf.rack == rack.name)
    click.echo(f"leaves: {leaves or 'none'}\n")
    if rack.switch_trays:
        print_table(
            ["switch tray", "slot", "asics", "health"],
            [(tray.name, tray.slot, tray.asics, tray.health) for tray in rack.switch_trays],
        )
        click.echo("")
    show_table(site, rows)


def _table(site: "Site", rows: list[dict[str, Any]]) -> None:
    click.echo(heading(site))
    print_table(
        ["rack", "NVLink", "domains", "switch trays", "nodes", "free", "gpus", "in use"],
        [
            (
                row["name"],
                row["nvlink"],
                len(row["domains"]),
                *(row[key] for key in ("switch_trays", "nodes", "nodes_free", "gpus", "gpus_in_use")),
            )
            for row in rows
        ],
    )
