"""One reader in a process of its own: `python -m rackyard.agent.child READER NODE ROOT` answers each line on stdin with
one on stdout, its facts as JSON.

In a process, because NVML is a library of somebody else's that can crash, and a driver or a device that hangs takes the
thread with it that asked. What is read is what `rackyard topo discover` reads of this host (`rackyard.collect`).
"""

import platform
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from rackyard.agent.reading import Trouble
from rackyard.collect import read_nvml, walk
from rackyard.errors import RackyardError
from rackyard.fabric.facts import Facts, HostFact, Source
from rackyard.fabric.readers.sysfs_tree import facts_of


class Answer(msgspec.Struct, frozen=True):
    """What a child says: facts, or a trouble and its line."""

    facts: Facts | None = None
    trouble: Trouble | None = None
    line: str = ""


def sysfs(node: str, root: Path) -> Answer:
    """PCI functions, HCAs, CPUs and the kernel, from /sys and /proc under `root`."""
    tree = walk(root / "sys", proc=root / "proc")
    facts = facts_of(node, tree.files, tree.links, origin=str(root / "sys"))
    facts.hosts.append(HostFact(node=node, source=Source("uname"), kernel=_kernel(root)))
    return Answer(facts)


def nvml(node: str, root: Path) -> Answer:
    """The GPUs through NVML, where the driver is loaded."""
    driver = root / "proc" / "driver" / "nvidia"
    if not driver.is_dir():
        return Answer(None, Trouble.NO_DRIVER, f"there is no {driver}")
    facts = read_nvml(node)
    if facts.findings and not facts.gpus and not facts.hosts:  # not even its version was told
        first = facts.findings[0]
        proof = f": {first.evidence[0].text}" if first.evidence else ""
        return Answer(None, Trouble.SILENT, f"{first.summary}{proof}")
    return Answer(facts)


READERS: dict[str, Callable[[str, Path], Answer]] = {"sysfs": sysfs, "nvml": nvml}
"""By the name under which a reading, its metrics and the conditions that need it go."""


def answer(reader: str, node: str, root: Path) -> Answer:
    """What one reader gives; its errors are an answer, too."""
    try:
        return READERS[reader](node, root)
    except (RackyardError, OSError) as error:
        return Answer(None, Trouble.FAILED, " ".join(str(error).split()))


def _kernel(root: Path) -> str:
    try:
        return (root / "proc/sys/kernel/osrelease").read_text("utf-8", "replace").strip()
    except OSError:
        return platform.release()


def main() -> None:
    """Read whenever a line comes, until there are no more: when the agent ends, so does this."""
    reader, node, root = sys.argv[1:]
    for _ in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(answer(reader, node, Path(root))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
