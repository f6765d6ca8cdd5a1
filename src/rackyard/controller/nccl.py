"""What a job needs of the fabric before it starts: a site without errors under it, and an NCCL topology file a node."""

from collections.abc import Iterable
from pathlib import Path

from rackyard.fabric import Node, Site
from rackyard.fabric.discover import restated
from rackyard.fabric.expect import audit as audit_found
from rackyard.findings import Finding, Severity, Verdict
from rackyard.nccl import generate


def audit(site: Site) -> tuple[Finding, ...]:
    """What is wrong with the site as it is described."""
    found = audit_found(restated(site))
    return tuple(one for one in found if one.verdict is Verdict.FAIL and one.severity is Severity.ERROR)


def write_topologies(folder: Path, nodes: Iterable[Node]) -> None:
    """`<folder>/<node>.xml` for each node, as NCCL_TOPO_FILE names it. OSError when the disk refuses.

    A file that says the same already is left alone, so that a restart does not touch what running ranks have read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for node in nodes:
        path = folder / f"{node.name}.xml"
        text = generate(node)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            fresh = path.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(path)
