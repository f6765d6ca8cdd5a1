"""`lspci -nn` and `lspci -D -nn`: what PCI functions there are. It names no parents and no links; sysfs does."""

import re

from rackyard.fabric.facts import Facts, PciFact, Source
from rackyard.fabric.readers.reader import Capture, Reader, text_of

NAME = "lspci"

_ROW = re.compile(
    r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) "
    r"[^\n]*?\[([0-9a-fA-F]{4})\]: [^\n]*\[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]"
)


def _knows(head: str, file: str) -> bool:
    return any(_ROW.match(line) for line in head.split("\n", 8)[:8])


def read(capture: Capture) -> Facts:
    """A PciFact for each function, with class and ids. lspci leaves the domain out only where all are 0."""
    facts = Facts()
    for number, line in enumerate(text_of(capture).split("\n"), 1):
        if match := _ROW.match(line):
            domain, at, kind, vendor, device = (part.lower() if part else "" for part in match.groups())
            facts.pci.append(
                PciFact(
                    node=capture.node,
                    source=Source(NAME, capture.file, number, line),
                    bdf=f"{domain or '0000'}:{at}",
                    pci_class=f"0x{kind}00",
                    vendor=f"0x{vendor}",
                    device=f"0x{device}",
                )
            )
    return facts


READER = Reader(NAME, _knows, read)
