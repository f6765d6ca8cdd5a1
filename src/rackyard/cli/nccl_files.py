"""NCCL topology files of many nodes at once: all of them or none are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rackyard.cli.inputs import counted, some_of

if TYPE_CHECKING:
    from rackyard.fabric import Node


def write_files(folder: Path, nodes: "Sequence[Node]", *, pin_links: bool = False, simulated: bool = False) -> int:
    """Write <node>.xml of every node that has GPUs, and say on stderr which have none. How many were written.

    UsageError when there is none to write, or one can't be made: nothing is written then.
    """
    from rackyard.cli.common import hint
    from rackyard.cli.write import make_folder, write_file
    from rackyard.errors import UsageError
    from rackyard.nccl import generate

    bare = [node.name for node in nodes if not node.gpus]
    texts = {f"{node.name}.xml": noted(generate(node, pin_links=pin_links), simulated) for node in nodes if node.gpus}
    if not texts:
        raise UsageError("no node of the site has a GPU", why="NCCL needs no topology files there")
    if bare:
        hint(f"note: no file for {counted(len(bare), 'node')} without a GPU: {some_of(bare)}")
    make_folder(folder)
    for name, text in texts.items():
        write_file(folder / name, text)
    return len(texts)


def noted(text: str, simulated: bool) -> str:
    """The file's text; that of a made-up node says so in its first line."""
    from rackyard.fabric.simcaptures import NOTE

    return f"<!-- {NOTE} -->\n{text}" if simulated else text
