"""NCCL versions, and what differs between them as far as topology files are concerned.

Read in NCCL's sources at the tags v2.18.1-1 to v2.30.7-1; 2.31 as carried by torchcomms (commit 59426ba).
"""

import re
from dataclasses import dataclass

from rackyard.errors import UsageError


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version of NCCL, ordered."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> "Version":
        """`2.30.7`, `2.30`, `v2.30.7-1` or `2.30.7+cuda13.0`. Raises UsageError for anything else."""
        found = re.fullmatch(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[-+].*)?", text.strip(), re.ASCII)
        if not found:
            raise UsageError(f"'{text}' is no NCCL version", fix="write it as 2.30.7")
        return cls(int(found[1]), int(found[2]), int(found[3] or 0))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def file_nodes(self) -> int:
        """Elements a loaded file has room for; one of them stays unused."""
        return 256 if self >= Version(2, 21) else 1024

    @property
    def max_children(self) -> int:
        """Children that one element has room for."""
        if self >= Version(2, 29, 7):
            return 640
        return 128 if self >= Version(2, 21) else 32

    @property
    def checks_children(self) -> bool:
        """Too many children are refused; before, NCCL wrote past its array."""
        return self >= Version(2, 21)

    @property
    def matches_quotes(self) -> bool:
        """A value ends at the quote it began with and has a checked length; before, only " ended it."""
        return self >= Version(2, 27)

    @property
    def fuses_ranks(self) -> bool:
        """Each rank detects its own GPU only, and the trees of the ranks are fused."""
        return self >= Version(2, 21)

    def knows_element(self, name: str) -> bool:
        """Whether elements of this name are kept where they belong: c2c came with 2.19, pcilink with 2.22."""
        since = {"c2c": Version(2, 19), "pcilink": Version(2, 22)}
        return name not in since or self >= since[name]

    @property
    def overwrites_host_hash(self) -> bool:
        """cpu@host_hash of a file is replaced by the hash of the host that loads it."""
        return self >= Version(2, 27)

    @property
    def marks_nets(self) -> bool:
        """net@net tells a network device from one that only a collective or GPU-initiated plugin uses."""
        return self >= Version(2, 29, 7)

    @property
    def asks_nvml_for_pci(self) -> bool:
        """Speed and width of a GPU's PCI link are what NVML says at the moment; before, sysfs' greatest."""
        return self >= Version(2, 30, 5)

    @property
    def has_dev_nodes(self) -> bool:
        """A DEV node stands between a GPU and its links; a gpu child needs a pci of class 0x03."""
        return self >= Version(2, 30)

    @property
    def knows_mlopart(self) -> bool:
        """gpu@mlopart: a GPU split in parts. The two lowest bits of a bus id belong to the part."""
        return self >= Version(2, 30, 5)

    @property
    def refuses_missing_system(self) -> bool:
        """A file without a system element ends in an error and not in a crash, where nothing else adds one."""
        return self >= Version(2, 30)

    @property
    def fills_tclass(self) -> bool:
        """A missing nvlink@tclass is read from the machine, or taken for a switch."""
        return self < Version(2, 31)

    @property
    def needs_amd_family(self) -> bool:
        """cpu@familyid and modelid must be there for AMD too."""
        return self >= Version(2, 31)


NEWEST = Version(2, 32, 0)
