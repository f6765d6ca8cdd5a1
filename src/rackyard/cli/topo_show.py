"""`rackyard topo show`: racks, trays and the rail matrix, in the terminal or as a picture."""

import sys
from pathlib import Path

import click

from rackyard.cli.common import state_option
from rackyard.cli.inputs import counted, one_of


@click.command("show")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--rack", "name", help="One rack in full.")
@click.option("--rails", "rails_only", is_flag=True, help="The rail matrix only.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write a picture instead.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with picture, rails and audit instead.")
@click.option("--ascii", "plain", is_flag=True, help="Only ASCII signs.")
@state_option
def show(
    files: tuple[Path, ...],
    name: str | None,
    rails_only: bool,
    svg: Path | None,
    html: Path | None,
    plain: bool,
    state: Path,
) -> None:
    """Draw a site: FILES are captures or one site file; without any, the state folder's site."""
    from rackyard.cli.captures import found_in, remark
    from rackyard.cli.common import open_store
    from rackyard.cli.write import write_file
    from rackyard.controller.sites import stored_site
    from rackyard.errors import UsageError
    from rackyard.fabric import draw
    from rackyard.fabric.discover import restated

    found = found_in(files) if files else restated(stored_site(open_store(state)))
    site = found.site
    if not site.nodes:
        raise UsageError("the site has no nodes", why="there is nothing to draw", fix="see: rackyard topo discover")
    remark(found, told=not rails_only and not name)
    if svg is not None or html is not None:
        from rackyard.fabric.expect import audit
        from rackyard.report import topology

        if svg is not None:
            write_file(svg, topology.svg(site))
            click.echo(f"wrote {svg}")
        if html is not None:
            write_file(html, topology.page(site, (*found.findings, *audit(found))))
            click.echo(f"wrote {html}")
        return
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    marks = draw.SIGNS if encoding.startswith("utf") and not plain else draw.ASCII
    if name is not None:
        lines = draw.rack(site, one_of(name, [rack.name for rack in site.racks], "rack"), marks)
    else:
        note = " (simulated)" if site.simulated else ""
        sizes = [(len(site.racks), "rack"), (len(site.nodes), "node"), (site.gpus(), "GPU")]
        head = f"site {site.name}{note}: " + ", ".join(counted(number, noun) for number, noun in sizes)
        picture = [] if rails_only else [head, "", *draw.racks(site, marks), ""]
        lines = [*picture, *(draw.rails(site, marks) if site.leaves else ["no leaf switch is known"])]
    click.echo("\n".join(lines))
