"""`rackyard topo`: what the racks really are, whether that is right, and everybody's form of it."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.accept import known_rules
from rackyard.cli.common import emit, output_option, plain, print_table
from rackyard.cli.inputs import counted
from rackyard.cli.topo_export import export
from rackyard.cli.topo_label import label
from rackyard.cli.topo_show import show

if TYPE_CHECKING:
    from rackyard.fabric import Node, Rack, Site
    from rackyard.fabric.discover import Discovered

_GROUP = {"help_option_names": ["-h", "--help"]}
files_argument = click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))


@click.group("topo", context_settings=_GROUP)
def topo() -> None:
    """Discover, check, label and export what the racks really are."""


@topo.command("discover")
@files_argument
@click.option("--name", default="site", show_default=True, help="What to call the site; a site file has its own name.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the site as YAML, for --site of other commands.")
@output_option
def discover(files: tuple[Path, ...], name: str, out: Path | None, output: str) -> None:
    """Merge captures of many hosts and switches into one site. Without FILES this host is looked at.

    FILES are captures of any kind in any mix, folders of them, or `-`: tarballs of `topo collect`, nvidia-smi, sysfs
    trees, ibnetdiscover, iblinkinfo, lldpctl, NMX, NetQ, kubectl, Slurm, topograph, NCCL dumps and logs. Contradictions
    are reported; the exit code is then 4. `-o yaml` is the site file itself, with the findings on standard error.
    """
    from rackyard.cli.captures import found_in
    from rackyard.cli.findings import exit_by, plain_finding, show_findings
    from rackyard.fabric import dump

    found = found_in(files, name)
    if out is not None:
        from rackyard.cli.write import write_file

        write_file(out, dump(found.site))
    if output == "yaml":
        click.echo(dump(found.site), nl=False)
    elif output == "json":
        data = {"site": plain(found.site), "findings": [plain_finding(one) for one in found.findings]}
        emit(output, data, lambda: None)
    else:
        _summary(found)
    if output != "json" and found.findings:
        click.echo("", err=output == "yaml")
        show_findings(found.findings, err=output == "yaml")
    if not found.site.nodes and not found.site.leaves:
        click.echo("warning: what was read names no node and no switch", err=True)
    if out is not None:
        click.echo(f"wrote {out}", err=True)
    exit_by(found.findings)


def _summary(found: "Discovered") -> None:
    site = found.site
    made_up = " (simulated)" if site.simulated else ""
    sizes = [
        counted(len(site.racks), "rack"),
        counted(len(site.nodes), "node"),
        counted(site.gpus(), "GPU"),
        counted(len(site.leaves), "leaf", "leaves"),
        counted(len(site.spines), "spine"),
    ]
    click.echo(f"site {site.name}{made_up}: {', '.join(sizes)}, rails {_rails(site)}")
    if site.racks:
        print_table(
            ["rack", "NVLink domain", "nodes", "GPUs", "NVLink", "switch trays", "leaves by rail"],
            _rack_rows(site),
        )
    if found.rails.others:
        click.echo(f"also on the fabric, not compute: {', '.join(sorted(found.rails.others))}")


def _rack_rows(site: "Site") -> list[list[Any]]:
    nodes: dict[str, list[Node]] = defaultdict(list)
    for node in site.nodes:
        nodes[node.rack].append(node)
    leaves: dict[str, list[str]] = defaultdict(list)
    for leaf in site.leaves:
        leaves[leaf.rack].append(f"{leaf.rail}: {leaf.name}")
    return [_rack_row(rack, nodes[rack.name], ", ".join(leaves[rack.name])) for rack in site.racks]


def _rack_row(rack: "Rack", nodes: "Sequence[Node]", leaves: str) -> list[Any]:
    kinds = sorted({gpu.kind for node in nodes for gpu in node.gpus})
    gpus = f"{sum(len(node.gpus) for node in nodes)} {'+'.join(kinds)}".strip()
    # Without a domain nobody has looked at its NVLinks, or there are none.
    nvlink = rack.nvlink.value if rack.domain else "-"
    trays = len(rack.switch_trays) or "-"
    return [rack.name, rack.domain or "-", len(nodes), gpus, nvlink, trays, leaves or "-"]


def _rails(site: "Site") -> str:
    return ", ".join(str(rail) for rail in site.rails()) or "none"


@topo.command("audit")
@files_argument
@click.option("--design", type=click.Path(path_type=Path), help="Site file of what should be there.")
@click.option("--rule", "rules", multiple=True, help="Only these rules (may be repeated); see --list.")
@click.option("--list", "listing", is_flag=True, help="List the rules and end.")
@click.option("-v", "--verbose", is_flag=True, help="Show checks that passed, too.")
@output_option
def audit(
    files: tuple[Path, ...], design: Path | None, rules: tuple[str, ...], listing: bool, verbose: bool, output: str
) -> None:
    """Check a fabric: FILES are captures as for `topo discover`, or one site file. Without FILES, this host.

    Without --design the site's own commonest pattern is the expectation. Exit code 4 when something is wrong.
    """
    from rackyard.cli.captures import found_in, site_of_file
    from rackyard.cli.common import hint
    from rackyard.cli.findings import exit_by, noteworthy, plain_finding, show_findings
    from rackyard.fabric.expect import ALL_RULES
    from rackyard.fabric.expect import audit as audit_site

    if listing:
        rows = [(rule.id, rule.severity.value, rule.what) for rule in ALL_RULES]
        data = [dict(zip(("rule", "severity", "what"), row, strict=True)) for row in rows]
        emit(output, data, lambda: print_table(["rule", "severity", "what it checks"], rows))
        return
    known_rules(rules)
    found = found_in(files)
    if found.site.simulated:
        hint(f"note: site {found.site.name} is simulated")
    findings = [*found.findings, *audit_site(found, site_of_file(design) if design else None)]
    if rules:
        left_out = noteworthy(one for one in found.findings if one.rule not in rules)
        if left_out:
            hint(f"note: {counted(len(left_out), 'finding')} in what was read left out by --rule")
        findings = [one for one in findings if one.rule in rules]
    emit(output, [plain_finding(one) for one in findings], lambda: show_findings(findings, passed=verbose))
    exit_by(findings)


@topo.command("diff")
@click.argument("design", type=click.Path(path_type=Path))
@click.argument("found", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option
def diff(design: Path, found: tuple[Path, ...], output: str) -> None:
    """Compare what was found with what was designed, each a site file or captures. Exit code 4 when they differ."""
    from rackyard.cli.captures import found_in, site_of_file
    from rackyard.cli.findings import exit_by, plain_finding, show_findings
    from rackyard.fabric.expect import diff as compare

    seen = found_in(found)
    findings = [*seen.findings, *compare(seen.site, site_of_file(design))]
    emit(output, [plain_finding(one) for one in findings], lambda: show_findings(findings))
    exit_by(findings)


@topo.command("simulate")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--racks", type=click.IntRange(min=0), default=2, show_default=True, help="NVL72 racks.")
@click.option("--hgx", type=click.IntRange(min=0), default=0, show_default=True, help="HGX servers beside them.")
@click.option(
    "--racks-per-block",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Racks in a row that have spines of their own; 0: all racks have the same.",
)
@click.option("--site", "file", type=click.Path(path_type=Path), help="Make captures of this site file instead.")
def simulate_captures(folder: Path, racks: int, hgx: int, racks_per_block: int, file: Path | None) -> None:
    """Write into FOLDER what `topo collect` and ibnetdiscover would show of a made-up site, for trying the others."""
    from rackyard.cli.captures import site_of_file
    from rackyard.cli.write import make_folder, write_file
    from rackyard.errors import UsageError
    from rackyard.fabric import simulate
    from rackyard.fabric.simcaptures import captures, kube_nodes

    site = simulate(racks=racks, hgx=hgx, racks_per_block=racks_per_block) if file is None else site_of_file(file)
    if not site.nodes:
        raise UsageError("the site has no nodes", why="there is nothing to make captures of", fix="--racks 1")
    make_folder(folder)
    count = 0
    for name, data in captures(site):
        write_file(folder / name, data)
        count += 1
    write_file(folder / "nodes.json", kube_nodes(site))
    click.echo(f"wrote {count + 1} simulated captures of {counted(len(site.nodes), 'node')} into {folder}")


@topo.command("collect")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--full", is_flag=True, help="Also the long forms of nvidia-smi and lspci.")
@click.option("--print-script", is_flag=True, help="Print the script, to run it on a host without Python.")
def collect(folder: Path, full: bool, print_script: bool) -> None:
    """Gather what this host knows of itself into a tarball in FOLDER. Reads only, needs no root, changes nothing.

    On a host without Python: rackyard topo collect --print-script | ssh HOST sh
    """
    from rackyard.cli.write import make_folder
    from rackyard.collect import run_script, script

    if print_script:
        click.echo(script(), nl=False)
        return
    make_folder(folder)
    path, said = run_script(folder, full=full)
    click.echo(f"{said}\nwrote {path}")


topo.add_command(show)
topo.add_command(label)
topo.add_command(export)
