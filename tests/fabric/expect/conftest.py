"""Facts of a made-up healthy site, as captures of every kind would give them, for rules to find nothing wrong with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from rackyard.fabric.facts import (
    CableFact,
    CpuFact,
    End,
    Facts,
    GpuFact,
    HostFact,
    NicFact,
    NvEnd,
    NvPortFact,
    PciFact,
    Source,
    SwitchFact,
)
from rackyard.fabric.model import DomainKey, Node, Provenance, Rack, Site

LINKS = 18


@dataclass(frozen=True, slots=True)
class Make:
    """Makes healthy facts and the site that goes with them."""

    def racks(
        self, racks: int = 3, trays: int = 4, product: str = "NVIDIA GB300", first: int = 1, **nic: object
    ) -> Facts:
        """NVL72 racks r01, r02, …; `nic` overrides values of the NIC facts."""
        facts = Facts()
        for rack in range(first, first + racks):
            for tray in range(trays):
                _tray(facts, rack, tray, product, nic)
        return facts

    def servers(self, count: int = 4) -> Facts:
        """HGX servers of eight GPUs with a zero cluster UUID, in one rack."""
        facts = Facts()
        for number in range(1, count + 1):
            _server(facts, f"hgx{number}")
        return facts

    def cables(self, leaves: int = 2, hosts: int = 4, spines: int = 2) -> Facts:
        """Leaves with hosts and spines, each cable told by both ends."""
        facts = Facts()
        for leaf in range(leaves):
            facts.switches.append(SwitchFact(name=f"leaf{leaf}", source=_at("ib", leaf), guid=f"a{leaf:015x}"))
            for host in range(hosts):
                down = End("switch", f"leaf{leaf}", "", host + 1, f"a{leaf:015x}")
                up = End("hca", f"h{host}", f"mlx5_{leaf}", 1, f"b{leaf:07x}{host:08x}")
                _cable(facts, down, up)
            for spine in range(spines):
                for lane in range(2):
                    a = End("switch", f"leaf{leaf}", "", 40 + spine * 2 + lane, f"a{leaf:015x}")
                    b = End("switch", f"spine{spine}", "", 1 + leaf * 2 + lane, f"c{spine:015x}")
                    _cable(facts, a, b)
        return facts

    def nvlink(self, domains: int = 1, gpus: int = 8, asics: int = 4) -> Facts:
        """What a fabric manager reports: each GPU has one link to each ASIC, two ASICs a switch tray."""
        facts = Facts()
        for domain in range(domains):
            for gpu in range(gpus):
                for asic in range(asics):
                    _nvlink(facts, domain, gpu, asic)
        return facts

    def site(self, facts: Facts) -> Site:
        """The site of these facts, as far as the audit looks at it: where nodes stand."""
        rack = {host.node: host.rack or "unplaced" for host in reversed(facts.hosts)}
        names = dict.fromkeys(fact.node for part in (facts.hosts, facts.gpus, facts.nics) for fact in part)
        nodes = tuple(
            Node(name, "nvl72-tray", rack.get(name, "unplaced"), 0, DomainKey(f"node:{name}", 0), (), ())
            for name in names
        )
        racks = tuple(Rack(name) for name in dict.fromkeys(node.rack for node in nodes))
        return Site("made", True, racks, nodes, (), (), Provenance("made", simulated=True))


@pytest.fixture(scope="session")
def make() -> Make:
    """Healthy facts and their site."""
    return Make()


Change = Callable[..., None]


@pytest.fixture(scope="session")
def change() -> Change:
    """`change(list of facts, index or test, field=value, …)`: replace the facts picked by the test."""

    def alter(facts: list[Any], pick: Callable[[Any], bool] | int, **values: object) -> None:
        places = [pick] if isinstance(pick, int) else [i for i, fact in enumerate(facts) if pick(fact)]
        assert places
        for place in places:
            facts[place] = msgspec.structs.replace(facts[place], **values)

    return alter


def _at(file: str, line: int, text: str = "") -> Source:
    return Source("test", f"{file}.txt", line, text or f"{file} line {line}")


def uuid_of(rack: int) -> str:
    return f"{rack:08x}-0000-4000-8000-000000000001"


def _tray(facts: Facts, rack: int, tray: int, product: str, nic: dict[str, object]) -> None:
    node = f"r{rack:02d}-t{tray}"
    place = {"chassis": f"SN{rack}", "slot": tray + 1, "tray": tray}
    member = {"cluster_uuid": uuid_of(rack), "clique_id": 1}
    labels = (("nvidia.com/gpu.clique", f"{uuid_of(rack)}.1"),)
    versions = {"driver": "580.1", "kernel": "6.8.0"}
    facts.hosts.append(
        HostFact(node=node, source=_at(node, 1), rack=f"r{rack:02d}", labels=labels, **place, **member, **versions)
    )
    facts.cpus += [CpuFact(node=node, source=_at(node, 2), numa=numa, cpus="0-71", arch="arm64") for numa in (0, 1)]
    for index, pci in enumerate(("0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0")):
        facts.gpus.append(
            GpuFact(
                node=node,
                source=_at(node, 10 + index),
                index=index,
                pci=pci,
                uuid=f"GPU-{rack:02d}-{tray:02d}-{index}",
                product=product,
                links=LINKS,
                links_seen=LINKS,
                fabric_state="completed",
                fabric_status="Success",
                health_mask=0x1AA,
                health_summary="Healthy",
                vbios="97.10",
                pci_gen=1,
                pci_gen_max=6,
                pci_width=16,
                pci_width_max=16,
                **place,
                **member,
            )
        )
    _hcas(facts, node, f"{rack:04x}{tray:04x}", nic)


def _hcas(facts: Facts, node: str, serial: str, override: dict[str, object]) -> None:
    for index, pci in enumerate(("0000:03:00.0", "0002:03:00.0", "0010:03:00.0", "0012:03:00.0")):
        values: dict[str, object] = {
            "numa": index // 2,
            "gbps": 800.0,
            "state": "ACTIVE",
            "phys_state": "LinkUp",
            "link_layer": "InfiniBand",
            "firmware": "40.1",
            "board_id": "MT_0000001",
            "hca_type": "MT4131",
            **override,
        }
        name, line = f"mlx5_{index}", _at(node, 20 + index)
        facts.nics.append(NicFact(node=node, source=line, name=name, pci=pci, guid=f"{serial}{index:08x}", **values))
        facts.pci.append(
            PciFact(
                node=node,
                source=_at(node, 30 + index),
                bdf=pci,
                pci_class="0x020700",
                speed="32.0 GT/s PCIe",
                speed_max="32.0 GT/s PCIe",
                width=16,
                width_max=16,
            )
        )


def _server(facts: Facts, node: str) -> None:
    facts.hosts.append(HostFact(node=node, source=_at(node, 1), rack="h01", driver="570.1", kernel="6.5.0"))
    for index in range(8):
        facts.gpus.append(
            GpuFact(
                node=node,
                source=_at(node, 10 + index),
                index=index,
                pci=f"0000:{index + 16:02x}:00.0",
                uuid=f"GPU-{node}-{index}",
                product="NVIDIA H200",
                links=LINKS,
                cluster_uuid="0" * 8 + "-0000-0000-0000-" + "0" * 12,
                clique_id=0,
                fabric_state="completed",
                fabric_status="Success",
                vbios="96.00",
                pci_gen_max=5,
                pci_width=16,
                pci_width_max=16,
            )
        )
        facts.nics.append(
            NicFact(
                node=node,
                source=_at(node, 20 + index),
                name=f"mlx5_{index}",
                pci=f"0000:{index + 32:02x}:00.0",
                numa=index // 4,
                guid=f"dd{int(node[3:]):06x}{index:08x}",
                gbps=400.0,
                state="ACTIVE",
                phys_state="LinkUp",
                link_layer="InfiniBand",
                firmware="28.1",
                board_id="MT_0000838",
                hca_type="MT4129",
            )
        )


def _cable(facts: Facts, a: End, b: End) -> None:
    for one, two in ((a, b), (b, a)):
        facts.cables.append(
            CableFact(
                a=one,
                b=two,
                source=_at("ib", 100 + len(facts.cables)),
                width=4,
                speed="NDR",
                gbps=400.0,
                state="Active",
                phys_state="LinkUp",
                width_max=4,
                speed_max="NDR",
            )
        )


def _nvlink(facts: Facts, domain: int, gpu: int, asic: int) -> None:
    here = NvEnd("gpu", f"g{domain}-{gpu}", f"SN{domain}", gpu // 4 + 1, gpu // 4, gpu % 4, "", "HEALTHY")
    there = NvEnd("switch", f"s{domain}-{asic}", f"SN{domain}", asic // 2 + 11, asic // 2, asic % 2, "", "HEALTHY")
    for end, port, far, far_port in ((here, asic, there, gpu), (there, gpu, here, asic)):
        facts.nvports.append(
            NvPortFact(
                end=end,
                port=port,
                source=_at("nmx", 1 + len(facts.nvports)),
                domain=f"d{domain}",
                peer_uid=far.uid,
                peer_port=far_port,
                logical="STATE_ACTIVE",
                physical="LINKUP",
                plane=asic,
            )
        )
