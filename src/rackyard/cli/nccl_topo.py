"""`rackyard nccl topo`: read, check, write and compare topology files, and predict what NCCL makes of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import emit, output_option, print_table, state_option
from rackyard.cli.inputs import counted, one_of, read_bytes
from rackyard.cli.nccl_compare import compare
from rackyard.cli.nccl_input import (
    find_node,
    loaded,
    nccl_option,
    node_option,
    site_of,
    site_option,
    version_of,
)
from rackyard.cli.nccl_predict import graphs, paths

if TYPE_CHECKING:
    from rackyard.findings import Finding
    from rackyard.nccl.element import Element

file_argument = click.argument("file", type=click.Path(path_type=Path))


@click.group("topo", context_settings={"help_option_names": ["-h", "--help"]})
def topo() -> None:
    """Topology files (NCCL_TOPO_FILE) and dumps (NCCL_TOPO_DUMP_FILE)."""


@topo.command("parse")
@file_argument
@nccl_option
@output_option
def parse(file: Path, version: str, output: str) -> None:
    """Show what NCCL keeps of FILE, and what it passes over without a word. Exit code 1 where init would fail."""
    from rackyard.errors import RackyardError, Where
    from rackyard.nccl import parse as read
    from rackyard.nccl.xmldepth import FITTING, overdeep

    parsed = read(read_bytes(file), str(file), version_of(version))
    deep = overdeep(parsed.root) if parsed.root is not None else None
    if deep is not None:
        raise RackyardError(
            "NCCL crashes on this topology",
            where=Where(str(file), deep.line or None),
            why=f"more than {FITTING} PCI bridges in a row overflow the buffer that it prints the system from",
            fix="leave bridges out: NCCL needs those that devices share",
        )
    notes = [{"line": note.line, "column": note.column, "what": note.text} for note in parsed.notes]
    data = {"nodes": parsed.nodes, "ignored": notes, "tree": _plain(parsed.root) if parsed.root else None}

    def table() -> None:
        click.echo(f"{file}: NCCL {version} keeps {counted(parsed.nodes, 'element')}")
        if parsed.root is None:
            click.echo("no <system> element: NCCL goes on as if there were no file")
        for depth, element in _walk(parsed.root):
            attrs = " ".join(f'{key}="{value}"' for key, value in element.attrs.items())
            click.echo(f"{element.line:>5}  {'  ' * depth}{element.name} {attrs}".rstrip())
        for note in notes:
            click.echo(f"{file}:{note['line']}:{note['column']}: passed over: {note['what']}")

    emit(output, data, table)


def _walk(root: "Element | None") -> "list[tuple[int, Element]]":
    waiting = [(0, root)] if root is not None else []
    found = []
    while waiting:
        depth, element = waiting.pop()
        found.append((depth, element))
        waiting += [(depth + 1, child) for child in reversed(element.children)]
    return found


def _plain(element: "Element") -> dict[str, Any]:
    children = [_plain(child) for child in element.children]
    return {"name": element.name, "line": element.line, "attrs": dict(element.attrs), "children": children}


@topo.command("lint")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@nccl_option
@click.option("-v", "--verbose", is_flag=True, help="Show checks that passed, too.")
@output_option
def lint(files: tuple[Path, ...], version: str, verbose: bool, output: str) -> None:
    """Say what is wrong with FILES by the rules of one version of NCCL. Exit code 4 when something is."""
    from rackyard.cli.findings import exit_by, plain_finding, show_findings
    from rackyard.nccl import lint as check

    rules = version_of(version)
    findings: list[Finding] = []
    for file in files:
        findings += check(read_bytes(file), str(file), rules)
    emit(output, [plain_finding(one) for one in findings], lambda: show_findings(findings, passed=verbose))
    exit_by(findings)


@topo.command("generate")
@click.argument("nodes", nargs=-1)
@site_option
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write <node>.xml into this folder; needed for more than one node."
)
@click.option("--pin-links", is_flag=True, help="Also pin GPUs and NVLinks: NCCL then stops looking for them itself.")
@state_option
def generate(nodes: tuple[str, ...], site: Path | None, out: Path | None, pin_links: bool, state: Path) -> None:
    """Write the topology files of NODES, or of all nodes: CPUs and PCI tree only, so that NCCL still probes links."""
    from rackyard.cli.nccl_files import noted, write_files
    from rackyard.errors import UsageError
    from rackyard.nccl import generate as make

    ground = site_of(site, state)
    names = [node.name for node in ground.nodes]
    wanted = [ground.node(one_of(name, names, "node")) for name in nodes] or list(ground.nodes)
    if pin_links:
        click.echo("warning: pinned links hide a GPU that loses its own; use it for experiments only", err=True)
    if out is None:
        if len(wanted) != 1:
            raise UsageError(f"{len(wanted)} nodes, and one output", fix="name one node, or give a folder with --out")
        click.echo(noted(make(wanted[0], pin_links=pin_links), ground.simulated), nl=False)
        return
    count = write_files(out, wanted, pin_links=pin_links, simulated=ground.simulated)
    click.echo(f"wrote {counted(count, 'file')} into {out}")


@topo.command("show")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@nccl_option
@site_option
@node_option
@state_option
def show(file: Path | None, version: str, site: Path | None, node: str | None, state: Path) -> None:
    """Print the system that NCCL builds of FILE or of a node, as NCCL prints it (NCCL_DEBUG_SUBSYS=GRAPH)."""
    from rackyard.nccl.paths_compute import compute, sized
    from rackyard.nccl.system_print import printed_tree

    rules = version_of(version)
    chosen = loaded(file, find_node(site, node, state) if node else None, rules)
    if chosen.note:
        click.echo(f"note: {chosen.note}", err=True)
    for line in printed_tree(sized(compute(chosen.root, rules, file=chosen.name)).system):
        click.echo(line)


@topo.command("diff")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@nccl_option
@click.option("--all", "volatile", is_flag=True, help="Compare host hashes, GUIDs and marks, too.")
@output_option
def diff(before: Path, after: Path, version: str, volatile: bool, output: str) -> None:
    """Compare two topology files or dumps device by device. Exit code 4 when they differ."""
    import sys
    from dataclasses import asdict

    from rackyard.cli.findings import EXIT_FINDINGS
    from rackyard.nccl import diff as compare
    from rackyard.nccl.dumpread import MOST_NODES
    from rackyard.nccl.element import Element
    from rackyard.nccl.xmlread import parse as read

    rules = version_of(version)
    one, two = (
        read(read_bytes(file), str(file), rules, max_nodes=MOST_NODES).root or Element("system")
        for file in (before, after)
    )
    found = compare(one, two, volatile=volatile)
    rows = [(d.path, d.attribute or "-", _side(d.before, d.line_before), _side(d.after, d.line_after)) for d in found]

    def table() -> None:
        if not rows:
            click.echo("the same")
            return
        click.echo(f"before: {before}\nafter:  {after}")
        print_table(["device", "attribute", "before", "after"], rows)

    emit(output, [asdict(one) for one in found], table)
    if found:
        sys.exit(EXIT_FINDINGS)


def _side(text: str | None, line: int) -> str:
    return "-" if text is None else f"{text} (line {line})" if line else text


topo.add_command(paths)
topo.add_command(graphs)
topo.add_command(compare)
