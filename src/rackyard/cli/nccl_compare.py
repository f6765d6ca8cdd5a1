"""`rackyard nccl topo compare`: the graphs that a real NCCL dumped, beside the ones predicted for its topology."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import emit, output_option, print_table
from rackyard.cli.inputs import read_bytes
from rackyard.cli.nccl_input import hint_rules, loaded, nccl_option, version_of

if TYPE_CHECKING:
    from rackyard.nccl.graphs import Graph


@click.command("compare")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("dump", type=click.Path(path_type=Path))
@nccl_option
@output_option
def compare(file: Path, dump: Path, version: str, output: str) -> None:
    """Compare DUMP (NCCL_GRAPH_DUMP_FILE) with what is predicted for the topology FILE (NCCL_TOPO_DUMP_FILE).

    Both are of one communicator of the GPUs in FILE. Exit code 4 when a graph differs.
    """
    import sys

    from rackyard.cli.findings import EXIT_FINDINGS
    from rackyard.nccl.graphxml import read_graphs, resolve
    from rackyard.nccl.predict import predict

    rules = version_of(version)
    hint_rules(rules)
    made = predict(loaded(file, None, rules).root, rules, file=str(file))
    rows = []
    for dumped in read_graphs(read_bytes(dump), str(dump), rules):
        real = resolve(dumped, made.one_view.system, str(dump))
        ours = made.one.get(real.name)
        rows.append(_row(real, ours))
    emit(output, rows, lambda: _table(rows, dump))
    if any(row["differs"] for row in rows):
        sys.exit(EXIT_FINDINGS)


def _row(real: "Graph", ours: "Graph | None") -> dict[str, Any]:
    differs = []
    if ours is None and not real.n_channels:
        pass  # a dump lists collnet graphs even where no plugin is loaded, with no channel
    elif ours is None or ours.brief() != real.brief():
        differs.append("channels or bandwidth")
    elif [channel.ranks for channel in ours.channels] != [channel.ranks for channel in real.channels]:
        differs.append("order of ranks")
    predicted = ours.brief() if ours is not None else "none"
    return {"graph": real.name, "dumped": real.brief(), "predicted": predicted, "differs": differs}


def _table(rows: list[dict[str, Any]], dump: Path) -> None:
    cells = [(row["graph"], row["dumped"], row["predicted"], ", ".join(row["differs"]) or "same") for row in rows]
    print_table(["graph", "dumped", "predicted", ""], cells)
    if not rows:
        click.echo(f"{dump} holds no graph")
