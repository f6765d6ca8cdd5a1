"""From the tree of a topology file to NCCL's graph.

Source: NCCL 2.30.7 and 2.29.7, ``src/graph/topo.cc``.
"""

from rackyard.nccl.element import Element
from rackyard.nccl.numbers import c_int, c_unsigned_long
from rackyard.nccl.system_switches import Switches
from rackyard.nccl.topology import System
from rackyard.nccl.version import Version


def build_system(root: Element | None, version: Version, *, local_rank: int | None = None, file: str = "") -> System:
    """The graph of a tree (its system element), seen from the host of ``local_rank``, by default from the first cpu's.

    Raises TopologyRefused with stage ``system_from_xml``, the line of the element, and NCCL's result and message.
    """
    growing = Switches(version, file)
    if root is None or root.name != "system":
        crashes = not version.refuses_missing_system
        growing.refuse("" if crashes else "ncclTopoGetSystemFromXml: system node not found in XML", crashes=crashes)
    for child in root.children:
        if child.name == "cpu":
            growing.add_cpu(child)
    system = growing.system
    local = _local_host(root, local_rank)
    growing.at = root
    if local not in system.host_hashes:
        growing.refuse(f"localHostHash = 0x{local:x} not found in the list of system hostHashes", "ncclInvalidArgument")
    system.system_id = system.host_hashes.index(local)
    growing.add_links(root)
    growing.finish()
    return system


def _local_host(root: Element, local_rank: int | None) -> int:
    """The host_hash of the cpu that holds a rank, or of the first cpu; 0 where there is none."""
    cpus = [child for child in root.children if child.name == "cpu"]
    if local_rank is not None:
        for cpu in cpus:
            if any(c_int(gpu.get("rank") or "") == local_rank for gpu in cpu.find_all("gpu")):
                return c_unsigned_long(cpu.get("host_hash") or "", 16)
    return c_unsigned_long(cpus[0].get("host_hash") or "", 16) if cpus else 0
