"""`rackyard topo export`: a site in the form that a scheduler, NCCL or a drawing program reads."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackyard.cli.inputs import counted

if TYPE_CHECKING:
    from rackyard.fabric import Site

NCCL = "nccl"
_TO = ("volcano", "kueue", "podgroup", "slurm-tree", "slurm-block", "slurm-yaml", "topograph", NCCL, "dot", "json")
_COMMENT = {"dot": "//", "json": ""}
"""How a format begins a comment, where it is not `#`; empty where there is none, and the file says it by itself."""


@click.command("export")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--to", "name", required=True, type=click.Choice(_TO), help="The form to write.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write this file; for nccl the folder of <node>.xml, which it needs."
)
def export(files: tuple[Path, ...], name: str, out: Path | None) -> None:
    """Write a site in somebody else's form: FILES are captures or one site file.

    \b
    volcano      HyperNodes by tier, for kubectl apply
    kueue        Topology and ResourceFlavor over the keys of `topo label`
    podgroup     an example PodGroup of kube-scheduler, over the domain's key
    slurm-tree   topology.conf of topology/tree
    slurm-block  topology.conf of topology/block
    slurm-yaml   topology.yaml with both
    topograph    a topograph model
    nccl         a file for NCCL_TOPO_FILE for each node: CPUs and PCI tree
    dot          a Graphviz graph
    json         the whole site, which the other commands read
    """
    from rackyard.cli.captures import found_in, remark
    from rackyard.cli.write import write_file
    from rackyard.errors import UsageError
    from rackyard.fabric.writers.formats import formats

    if not files:
        raise UsageError("nothing to export", fix="give captures, folders of captures, or a site file")
    found = found_in(files)
    remark(found)
    if name == NCCL:
        _nccl(found.site, out)
        return
    text = _marked(formats()[name].write(found.site), found.site, name)
    if out is None:
        click.echo(text, nl=False)
        return
    write_file(out, text)
    click.echo(f"wrote {out}", err=True)


def _marked(text: str, site: "Site", name: str) -> str:
    """The text, with a comment at its top where the site is made up: `topo discover` knows it again by that."""
    from rackyard.fabric.simcaptures import NOTE

    sign = _COMMENT.get(name, "#")
    return f"{sign} {NOTE}\n{text}" if site.simulated and sign else text


def _nccl(site: "Site", out: Path | None) -> None:
    from rackyard.cli.nccl_files import write_files
    from rackyard.errors import UsageError

    if out is None:
        raise UsageError(
            "nccl files are one for each node", fix="give a folder with --out; or rackyard nccl topo generate NODE"
        )
    count = write_files(out, site.nodes, simulated=site.simulated)
    click.echo(f"wrote {counted(count, 'file')} into {out}", err=True)
