"""`rackyard nccl topo paths` and `graphs`: what NCCL would compute of a topology."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import emit, output_option, print_table, state_option
from rackyard.cli.nccl_input import find_node, hint_rules, loaded, nccl_option, node_option, site_option, version_of

if TYPE_CHECKING:
    from rackyard.nccl.graphs import Graph
    from rackyard.nccl.predict import Prediction
    from rackyard.nccl.search_graphs import Graphs
    from rackyard.nccl.topology import System

_WIDE = 16
"""GPUs up to which the tables have a column for each."""


@click.command("paths")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@nccl_option
@site_option
@node_option
@click.option("--log", is_flag=True, help="Print system and paths as NCCL's log has them.")
@output_option
@state_option
def paths(
    file: Path | None, version: str, site: Path | None, node: str | None, log: bool, output: str, state: Path
) -> None:
    """Predict path type and bandwidth (GB/s) of every GPU and NIC to every GPU and NIC of FILE or of a node.

    FILE is a dump (NCCL_TOPO_DUMP_FILE), or with --node a file for NCCL_TOPO_FILE as that node would load it.
    """
    from rackyard.nccl.paths_compute import compute, sized
    from rackyard.nccl.system_print import printed

    rules = version_of(version)
    chosen = loaded(file, find_node(site, node, state) if node else None, rules)
    if chosen.note:
        click.echo(f"note: {chosen.note}", err=True)
    computed = compute(chosen.root, rules, file=chosen.name)
    system = sized(computed).system
    if log:
        click.echo("\n".join(printed(system)))
        return
    cells = _cells(system)
    emit(output, cells, lambda: _show_paths(system, cells, version))
    if computed.removed:
        click.echo(f"NCCL leaves out {len(computed.removed)} GPUs that rank {computed.comm.rank} can't reach", err=True)


def _cells(system: "System") -> list[dict[str, Any]]:
    from rackyard.nccl.linktypes import GPU, NET, PATH_TYPES

    ends = [(kind, place, system.nodes[n].name) for kind in (GPU, NET) for place, n in enumerate(system.of_type[kind])]
    found = []
    for source_kind, source_place, source in ends:
        for kind, place, target in ends:
            path = system.path(system.of_type[source_kind][source_place], kind, place)
            if path is not None:
                name = PATH_TYPES[path.type]
                found.append({"from": source, "to": target, "type": name, "gbps": path.bw, "hops": path.hops})
    return found


def _show_paths(system: "System", cells: Sequence[dict[str, Any]], version: str) -> None:
    gpus = len(system.gpus())
    click.echo(f"predicted for NCCL {version}: GB/s as NCCL counts them, not measured")
    if gpus <= _WIDE:
        names = list(dict.fromkeys(cell["from"] for cell in cells))
        by_ends = {(cell["from"], cell["to"]): f"{cell['type']} {cell['gbps']:.1f}" for cell in cells}
        for kind in ("GPU", "NET"):
            targets = [name for name in names if name.startswith(f"{kind}/")]
            if targets:
                click.echo("")
                rows = [[one, *(by_ends.get((one, two), "-") for two in targets)] for one in names]
                print_table(["from", *targets], rows, as_is=True)
        return
    # A whole rack has 20,000 cells, and nearly all of them say the same.
    groups: dict[tuple[str, str, str, str], int] = {}
    for cell in cells:
        ends = cell["from"].split("/")[0], cell["to"].split("/")[0]
        key = (*ends, cell["type"], f"{cell['gbps']:.1f}")
        groups[key] = groups.get(key, 0) + 1
    print_table(["from", "to", "type", "GB/s", "cells"], [(*key, count) for key, count in groups.items()])
    click.echo("-o json shows every cell")


@click.command("graphs")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@nccl_option
@site_option
@node_option
@click.option("--channels", is_flag=True, help="Show the order of ranks in every channel.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the graphs of one node as NCCL_GRAPH_FILE.")
@click.option("--max-steps", type=click.IntRange(min=1), help="Give a graph up as not known after so many steps.")
@output_option
@state_option
def graphs(
    file: Path | None,
    version: str,
    site: Path | None,
    node: str | None,
    channels: bool,
    write: Path | None,
    max_steps: int | None,
    output: str,
    state: Path,
) -> None:
    """Predict rings, trees and nvls, within FILE and across two of it, and say what a missing link costs.

    Exit code 4 when the topology is poorer than it should be, 1 when a graph could not be predicted.
    """
    import sys

    from rackyard.cli.findings import exit_by, plain_finding
    from rackyard.findings import Verdict
    from rackyard.nccl.predict import MAX_STEPS, predict

    rules = version_of(version)
    chosen = loaded(file, find_node(site, node, state) if node else None, rules)
    if chosen.note:
        click.echo(f"note: {chosen.note}", err=True)
    hint_rules(version_of(version))
    made = predict(chosen.root, rules, file=chosen.name, max_steps=max_steps or MAX_STEPS)
    if write is not None:
        from rackyard.cli.write import write_file
        from rackyard.nccl.graphxml import write_graphs

        write_file(write, write_graphs(made.one.found.values(), made.one_view.system))
        click.echo(f"wrote {write}", err=True)
    data = {
        "nccl": version,
        "one": _plain_graphs(made.one),
        "two": _plain_graphs(made.two),
        "findings": [plain_finding(one) for one in made.findings],
    }
    emit(output, data, lambda: _show_graphs(made, version, channels))
    exit_by(made.findings)
    if any(one.verdict is Verdict.UNKNOWN for one in made.findings):
        sys.exit(1)


def _show_graphs(made: "Prediction", version: str, channels: bool) -> None:
    from rackyard.cli.findings import show_findings

    click.echo(f"predicted for NCCL {version}: GB/s a channel as NCCL counts them, not measured")
    rows = [
        (scope, *_row(graph))
        for scope, found in (("within", made.one), ("across two", made.two))
        for graph in found.found.values()
    ]
    if rows:
        print_table(["", "graph", "channels", "intra", "inter", "paths", "total intra", "total inter"], rows)
    if channels:
        _show_channels(made.one)
    click.echo("")
    show_findings(made.findings)


def _row(graph: "Graph") -> tuple[Any, ...]:
    from rackyard.nccl.linktypes import PATH_TYPES

    types = f"{PATH_TYPES[graph.type_intra]}/{PATH_TYPES[graph.type_inter]}"
    name = f"{graph.name} (fell back)" if graph.fell_back else graph.name
    totals = f"{graph.total_intra:.1f}", f"{graph.total_inter:.1f}"
    return name, graph.n_channels, f"{graph.bw_intra:.1f}", f"{graph.bw_inter:.1f}", types, *totals


def _show_channels(found: "Graphs") -> None:
    from rackyard.nccl.graphs import net_name

    for graph in found.found.values():
        for number, channel in enumerate(graph.channels):
            nets = f"  {net_name(channel.nets[0])} > {net_name(channel.nets[1])}" if channel.nets else ""
            click.echo(f"{graph.name} {number}: {' '.join(map(str, channel.ranks))}{nets}")


def _plain_graphs(found: "Graphs") -> dict[str, Any]:
    graphs = {
        name: {
            "channels": graph.n_channels,
            "bw_intra": graph.bw_intra,
            "bw_inter": graph.bw_inter,
            "brief": graph.brief(),
            "fell_back": graph.fell_back,
            "orders": [list(channel.ranks) for channel in graph.channels],
        }
        for name, graph in found.found.items()
    }
    ended = str(found.refused) if found.refused else "out of steps" if found.out_of_steps else None
    return {"graphs": graphs, "steps": found.steps, "ended": ended}
