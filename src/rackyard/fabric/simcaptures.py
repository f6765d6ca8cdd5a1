"""Captures of a site that does not exist: what `topo collect`, ibnetdiscover and kubectl would show of a simulated one.

They are for trying `topo discover` without hardware, and for measuring it at sizes nobody has. Every text says in its
first line that it is simulated.
"""

import hashlib
import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Iterator

from rackyard.fabric.discover.run import SIMULATED
from rackyard.fabric.model import Gpu, Health, Leaf, Nic, Node, Site, Spine

NOTE = SIMULATED.decode()

_LINK_GBPS = "50 GB/s"  # NVLink 5, one direction: 100 GB/s both ways (facts/topology.md §3)
_SPEEDS = {800: "XDR", 400: "NDR", 200: "HDR", 100: "EDR"}
_QUERY = (
    "index, uuid, name, pci.bus_id, memory.total [MiB], fabric.state, fabric.status, fabric.cliqueId,"
    " fabric.clusterUuid, platform.chassis_serial_number, platform.slot_number, platform.tray_index"
)


def captures(site: Site) -> Iterator[tuple[str, bytes]]:
    """File name and content: a tarball for each node as `topo collect` makes it, and the fabric's ibnetdiscover."""
    for node in site.nodes:
        yield f"rackyard-{node.name}-20260101T000000Z.tar", bundle(node)
    yield "ibnetdiscover.txt", ibnetdiscover(site).encode()


def bundle(node: Node) -> bytes:
    """The tarball of one node, uncompressed."""
    files = {
        "meta": f"rackyard-collect 1\n# {NOTE}\nhost={node.name}\n",
        "query-gpu.csv": query_gpu(node),
        "nvlink-s.txt": nvlink_status(node),
        "sysfs.tsv": sysfs_table(node),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(f"rackyard-{node.name}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def query_gpu(node: Node) -> str:
    """`nvidia-smi --query-gpu=… --format=csv` of a node."""
    shared = not node.domain.is_own
    state = ("Completed", "Success") if shared else ("N/A", "N/A")
    uuid = node.domain.cluster_uuid if shared else "N/A"
    clique = node.domain.clique_id if shared else "N/A"
    chassis, tray = (_chassis(node.rack), node.slot - 1) if shared else ("N/A", "N/A")
    rows = [
        f"{gpu.index}, {gpu.uuid}, NVIDIA {gpu.kind}, 0000{gpu.pci.upper()}, {round(gpu.memory_gib * 1024)} MiB,"
        f" {state[0]}, {state[1]}, {clique}, {uuid}, {chassis}, {node.slot if shared else 'N/A'}, {tray}"
        for gpu in node.gpus
    ]
    return "\n".join([_QUERY, *rows, ""])


def nvlink_status(node: Node) -> str:
    """`nvidia-smi nvlink -s` of a node: links that are down are inactive."""
    lines = []
    for gpu in node.gpus:
        lines.append(f"GPU {gpu.index}: NVIDIA {gpu.kind} (UUID: {gpu.uuid})")
        lines += [f"\t Link {link}: {_LINK_GBPS if link < _links(gpu) else '<inactive>'}" for link in range(18)]
    return "\n".join([*lines, ""])


def _links(gpu: Gpu) -> int:
    return 0 if gpu.health is Health.DOWN else gpu.nvlinks


def sysfs_table(node: Node) -> str:
    """The sysfs table of a node, as `topo collect` writes it."""
    arm = node.kind == "nvl72-tray"
    machine = "aarch64\t\t\t" if arm else "x86_64\tGenuineIntel\t6\t143"
    rows = ["#rackyard-sysfs 1", f"host\t6.11.0\t{NOTE}\t{machine}"]
    rows += [f"cpu\t{cpu.numa}\t{cpu.cpus}" for cpu in node.cpus]
    for device in node.pci:
        speed = f"{device.link_speed}\t{device.link_speed}\t{device.link_width}\t{device.link_width}"
        ids = f"{device.pci_class}\t{device.vendor}\t{device.device}\t\t"
        rows.append(f"pci\t{device.bdf}\t{device.parent}\t{device.numa}\t{ids}\t{speed}")
    if not node.pci:
        rows += [_pci_row(gpu.pci, gpu.numa, "0x030200", "0x10de") for gpu in node.gpus]
        rows += [_pci_row(nic.pci, nic.numa, "0x020700", "0x15b3") for nic in node.nics]
    for nic in node.nics:
        up = "4: ACTIVE\t5: LinkUp" if nic.health is not Health.DOWN else "1: DOWN\t2: Polling"
        guid = nic_guid(node.name, nic)
        dotted = ":".join(guid[at : at + 4] for at in range(0, 16, 4))
        rows.append(
            f"ib\t{nic.name}\t1\t{nic.pci}\t{nic.numa}\t{dotted}\tMT_0000001027\tMT4131\t40.45.1200"
            f"\t{nic.gbps} Gb/sec (4X {_SPEEDS.get(nic.gbps, 'NDR')})\t{up}\tInfiniBand"
        )
    return "\n".join([*rows, ""])


def _pci_row(bdf: str, numa: int, kind: str, vendor: str) -> str:
    return f"pci\t{bdf}\t\t{numa}\t{kind}\t{vendor}\t\t\t\t32.0 GT/s PCIe\t32.0 GT/s PCIe\t16\t16"


def nic_guid(node: str, nic: Nic) -> str:
    """The node GUID of an HCA: its own, or one that follows from its name."""
    return nic.guid or hashlib.sha256(f"guid {node} {nic.name}".encode()).hexdigest()[:16]


def _chassis(rack: str) -> str:
    return str(int(hashlib.sha256(f"chassis {rack}".encode()).hexdigest()[:12], 16) % 10**13).zfill(13)


def ibnetdiscover(site: Site) -> str:
    """What ibnetdiscover prints of the site's compute network: leaves, spines, and the HCAs that are up."""
    wires = _Wires(site)
    lines = [f"# {NOTE}", "#", "# Topology file: generated on Thu Jan  1 00:00:00 2026", "#", ""]
    for leaf in site.leaves:
        lines += _switch_head(leaf.name, _switch_guid(leaf.name))
        lines += [f"[{port}]\t{far}" for port, far in wires.of_leaf(leaf)]
        lines.append("")
    for spine in site.spines:
        wires.up(spine)
    for spine in site.spines:
        lines += _switch_head(spine.name, _switch_guid(spine.name))
        lines += wires.of_spine[spine.name]
        lines.append("")
    for node in site.nodes:
        for nic in node.nics:
            if nic.leaf and nic.health is not Health.DOWN:
                lines += _adapter(node, nic, wires.port_of[node.name, nic.name])
    return "\n".join(lines) + "\n"


class _Wires:
    """Port numbers: hosts from 1 in site order, uplinks from 41, spine ports as the leaves come, then upwards."""

    def __init__(self, site: Site) -> None:
        self._hosts: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.port_of: dict[tuple[str, str], int] = {}
        self.of_spine: dict[str, list[str]] = defaultdict(list)
        for node in site.nodes:
            for nic in node.nics:
                if not nic.leaf:
                    continue
                port = int(nic.leaf_port) if nic.leaf_port.isdecimal() else len(self._hosts[nic.leaf]) + 1
                self.port_of[node.name, nic.name] = port
                guid, speed = nic_guid(node.name, nic), _SPEEDS.get(nic.gbps, "NDR")
                far = f'"H-{guid}"[1]({guid}) \t\t# "{node.name} {nic.name}" lid {port} 4x{speed}'
                self._hosts[nic.leaf].append((port, far if nic.health is not Health.DOWN else ""))

    def of_leaf(self, leaf: Leaf) -> list[tuple[int, str]]:
        """The ports of a leaf that have a link, with their far ends."""
        found = [(port, far) for port, far in self._hosts[leaf.name] if far]
        for number in range(leaf.uplinks if leaf.spines else 0):
            spine = leaf.spines[number % len(leaf.spines)]
            mine, theirs = 41 + number, len(self.of_spine[spine]) + 1
            found.append((mine, f'"S-{_switch_guid(spine)}"[{theirs}]\t\t# "{spine}" lid 9 4xNDR'))
            self.of_spine[spine].append(
                f'[{theirs}]\t"S-{_switch_guid(leaf.name)}"[{mine}]\t\t# "{leaf.name}" lid 8 4xNDR'
            )
        return found

    def up(self, spine: Spine) -> None:
        """Join a spine to each switch above it by one link."""
        for above in spine.above:
            mine, theirs = len(self.of_spine[spine.name]) + 1, len(self.of_spine[above]) + 1
            self.of_spine[spine.name].append(
                f'[{mine}]\t"S-{_switch_guid(above)}"[{theirs}]\t\t# "{above}" lid 9 4xNDR'
            )
            self.of_spine[above].append(
                f'[{theirs}]\t"S-{_switch_guid(spine.name)}"[{mine}]\t\t# "{spine.name}" lid 9 4xNDR'
            )


def _switch_guid(name: str) -> str:
    return hashlib.sha256(f"switch {name}".encode()).hexdigest()[:16]


def _switch_head(name: str, guid: str) -> list[str]:
    return [
        "vendid=0x2c9",
        "devid=0xd2f2",
        f"sysimgguid=0x{guid}",
        f"switchguid=0x{guid}({guid})",
        f'Switch\t65 "S-{guid}"\t\t# "{name}" enhanced port 0 lid 8 lmc 0',
    ]


def _adapter(node: Node, nic: Nic, port: int) -> list[str]:
    guid, switch, speed = nic_guid(node.name, nic), _switch_guid(nic.leaf), _SPEEDS.get(nic.gbps, "NDR")
    return [
        "vendid=0x2c9",
        "devid=0x1021",
        f"sysimgguid=0x{guid}",
        f"caguid=0x{guid}",
        f'Ca\t1 "H-{guid}"\t\t# "{node.name} {nic.name}"',
        f'[1]({guid}) \t"S-{switch}"[{port}]\t\t# lid {port} lmc 0 "{nic.leaf}" lid 8 4x{speed}',
        "",
    ]


def kube_nodes(site: Site) -> str:
    """`kubectl get nodes -o json` of a cluster on the site, labelled as GPU feature discovery does."""
    items = []
    for node in site.nodes:
        labels = {"kubernetes.io/hostname": node.name}
        if not node.domain.is_own:
            labels["nvidia.com/gpu.clique"] = str(node.domain)
        status = "False" if node.health is Health.DOWN else "True"
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node.name, "labels": labels, "annotations": {"rackyard/note": NOTE}},
                "spec": {"unschedulable": True} if node.cordoned else {},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }
        )
    return json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {"note": NOTE}, "items": items})
