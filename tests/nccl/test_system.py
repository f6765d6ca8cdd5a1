"""From tree to graph: nodes, links in order, bandwidths, and what NCCL refuses."""

import pytest

from rackyard.nccl.cpus import affinity, ranges
from rackyard.nccl.linktypes import CPU, CXB, DEV, GIN, GPU, LINK_TYPES, NET, NIC, NVS, PCI, RMA
from rackyard.nccl.numbers import as_float
from rackyard.nccl.system import build_system
from rackyard.nccl.system_graph import bus_id
from rackyard.nccl.topology import System
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused

NEW, OLD = Version(2, 30, 7), Version(2, 29, 7)
AMD = 'arch="x86_64" vendor="AuthenticAMD"'
GEN4 = 'link_speed="16.0 GT/s PCIe" link_width="16"'


def gpu(bus: int, rank: int, inside: str = "", sm: int = 90, extra: str = "", function: int = 0) -> str:
    return (
        f'<pci busid="0000:{bus:02x}:00.{function}" class="0x030200" {GEN4}>\n'
        f'<gpu dev="{rank}" sm="{sm}" rank="{rank}" gdr="1"{extra}>{inside}</gpu></pci>\n'
    )


def nic(bus: int, nets: str) -> str:
    return f'<pci busid="0000:{bus:02x}:00.0" class="0x020000" {GEN4}><nic>{nets}</nic></pci>\n'


def switch(bus: int, inside: str, extra: str = "", speed: str = GEN4) -> str:
    return f'<pci busid="0000:{bus:02x}:00.0" class="0x060400" {speed}{extra}>\n{inside}</pci>\n'


def cpu(inside: str, numa: int = 0, what: str = AMD, host: str = "0xa") -> str:
    return f'<cpu host_hash="{host}" numaid="{numa}" {what}>\n{inside}</cpu>\n'


def nvlink(bus: int, count: int = 4) -> str:
    return f'<nvlink target="0000:{bus:02x}:00.0" count="{count}" tclass="0x030200"/>'


SWITCHED = '<nvlink target="0000:c0:00.0" count="18" tclass="0x068000"/>'


def built(inside: str, version: Version = NEW) -> System:
    text = f'<system version="1">\n{inside}</system>\n'
    return build_system(parse(text.encode(), "made.xml", version, 4000).root, version, file="made.xml")


def refused(inside: str, version: Version = NEW) -> TopologyRefused:
    with pytest.raises(TopologyRefused) as caught:
        built(inside, version)
    assert caught.value.stage == "system_from_xml"
    return caught.value


def links(system: System, name: str) -> list[tuple[str, str, float]]:
    node = next(n for numbers in system.of_type for n in numbers if system.nodes[n].name == name)
    return [
        (LINK_TYPES[system.link_type[n]], system.nodes[system.link_to[n]].name, system.link_bw[n])
        for n in system.links[node]
    ]


def test_a_gpu_hangs_below_its_device_from_2_30_on() -> None:
    text = cpu(gpu(0x10, 0, nvlink(0x20)) + gpu(0x20, 1, nvlink(0x10)))
    new, old = built(text), built(text, OLD)
    assert [new.count(kind) for kind in (GPU, DEV, CPU)] == [2, 2, 1]
    assert [old.count(kind) for kind in (GPU, DEV, CPU)] == [2, 0, 1]
    assert links(new, "DEV/0-10000") == [
        ("LOC", "GPU/0-10000", 5000.0),
        ("NVL", "DEV/0-20000", as_float(82.4)),
        ("PCI", "CPU/0-0", 24.0),
    ]
    assert links(old, "GPU/0-10000") == [("NVL", "GPU/0-20000", as_float(82.4)), ("PCI", "CPU/0-0", 24.0)]
    assert [node.parent for node in new.gpus()] == new.of_type[DEV]


def test_links_to_one_target_add_up_and_faster_links_come_first() -> None:
    system = built(cpu(gpu(0x10, 0, nvlink(0x20, 1) + nvlink(0x30, 2) + nvlink(0x20, 2)) + gpu(0x20, 1) + gpu(0x30, 2)))
    assert [target for kind, target, _ in links(system, "DEV/0-10000") if kind == "NVL"] == [
        "DEV/0-20000",
        "DEV/0-30000",
    ]
    assert links(system, "DEV/0-10000")[1][2] == pytest.approx(3 * 20.6)


def test_all_nvlink_switches_are_one_node_across_hosts() -> None:
    other = '<nvlink target="0000:d0:00.0" count="9" tclass="0x068000"/>'
    system = built(cpu(gpu(0x10, 0, SWITCHED + other)) + cpu(gpu(0x10, 1, SWITCHED), host="0xb"))
    assert system.count(NVS) == 1
    assert [target for _, target, _ in links(system, "NVS/0-0")] == ["DEV/0-10000", "DEV/1-10000"]
    assert [bw for *_, bw in links(system, "NVS/0-0")] == pytest.approx([27 * 20.6, 18 * 20.6])
    assert system.host_hashes == [0xA, 0xB]


def test_uplinks_stand_behind_what_is_below() -> None:
    system = built(cpu(switch(0x01, gpu(0x10, 0) + nic(0x12, '<net name="a" dev="0" speed="400000"/>'))))
    assert [target for _, target, _ in links(system, "PCI/0-1000")] == ["DEV/0-10000", "NIC/0-12000", "CPU/0-0"]
    assert links(system, "NIC/0-12000") == [("NET", "NET/0-0", 50.0), ("PCI", "PCI/0-1000", 24.0)]


@pytest.mark.parametrize(
    ("speed", "gbps"),
    [
        ('link_speed="32.0 GT/s PCIe" link_width="16"', 48.0),
        ('link_speed="32.0 GT/s" link_width="16"', 12.0),
        ('link_speed="2.5 GT/s" link_width="16"', 3.0),
        ('link_speed="2.5 GT/s PCIe" link_width="1"', as_float(15 / 80)),
        ('link_speed="5 GT/s" link_width="8"', 3.0),
        ('link_speed="" link_width=""', 12.0),
        ('link_speed="64.0 GT/s PCIe" link_width="08"', 96.0),
        ('link_speed="16.0 GT/s PCIe" link_width="0x8"', 12.0),
        ('link_speed="8.0 GT/s PCIe" link_width="-4"', -3.0),
    ],
)
def test_pci_speed_is_a_string_and_width_a_c_number(speed: str, gbps: float) -> None:
    assert links(built(cpu(switch(0x01, "", speed=speed))), "PCI/0-1000") == [("PCI", "CPU/0-0", gbps)]


@pytest.mark.parametrize(
    ("what", "gbps"),
    [
        ('arch="arm64"', 6.0),
        ('arch="ppc64le"', 32.0),
        ('arch="aarch64"', 5000.0),
        (AMD, 16.0),
        ('arch="x86_64" vendor="Somebody"', 5000.0),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="63"', 6.0),
        ('arch="x86_64" vendor="GenuineIntel" familyid="15" modelid="207"', 6.0),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"', 10.0),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="0x8f"', 22.0),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="173"', 22.0),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"', 40.0),
        ('arch="x86_64" vendor="CentaurHauls" familyid="7" modelid="91"', 9.0),
        ('arch="x86_64" vendor="  Shanghai  " familyid="7" modelid="90"', 6.0),
    ],
)
def test_speed_to_the_other_socket_is_that_of_the_cpu_it_leaves(what: str, gbps: float) -> None:
    system = built(cpu("", 0, what) + cpu("", 1, 'arch="arm64"') + cpu("", 1, AMD, host="0xb"))
    assert links(system, "CPU/0-0") == [("SYS", "CPU/0-1", gbps)]
    assert links(system, "CPU/0-1") == [("SYS", "CPU/0-0", 6.0)]
    assert links(system, "CPU/1-1") == []


@pytest.mark.parametrize(("sm", "gbps"), [(121, 40.1), (100, 40.1), (90, 20.6), (89, 20.0), (86, 12.0), (62, 18.0)])
def test_nvlink_speed_follows_compute_capability(sm: int, gbps: float) -> None:
    system = built(cpu(gpu(0x10, 0, '<nvlink target="x" count="1" tclass="0x068000"/>', sm=sm)))
    assert links(system, "NVS/0-0") == [("NVL", "DEV/0-10000", as_float(gbps))]


def test_power_gpus_reach_their_cpu_by_nvlink() -> None:
    inside = switch(0x01, gpu(0x10, 0, '<nvlink target="0004:00:00.0" count="3" tclass="0x068001"/>', sm=70))
    assert ("NVL", "DEV/0-10000", 60.0) in links(built(cpu(inside, what='arch="ppc64"')), "CPU/0-0")


@pytest.mark.parametrize(
    ("upper", "lower"), [("0xa000", "0xa000"), ("0xa123", "0xa456")], ids=["base mode", "any low bits"]
)
def test_a_two_level_gen4_switch_becomes_one(upper: str, lower: str) -> None:
    ids = ' vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" subsystem_device="{}"'
    halves = "".join(switch(bus, gpu(bus + 1, rank), ids.format(lower)) for rank, bus in enumerate((0x10, 0x20)))
    system = built(cpu(switch(0x01, halves, ids.format(upper))))
    assert [system.nodes[n].name for n in system.of_type[PCI]] == ["PCI/0-1000"]
    assert [target for _, target, _ in links(system, "PCI/0-1000")] == ["DEV/0-11000", "DEV/0-21000", "CPU/0-0"]
    assert ("PCI", "PCI/0-1000", 24.0) in links(system, "DEV/0-21000")


def test_a_gen5_switch_is_flattened_only_over_its_own_second_level() -> None:
    ids = ' vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="{}"'
    nested = switch(0x10, gpu(0x11, 0), ids.format("0x1000")) + switch(0x20, gpu(0x21, 1), ids.format("0x0000"))
    system = built(cpu(switch(0x01, nested, ids.format("0x0000"))))
    assert [system.nodes[n].name for n in system.of_type[PCI]] == ["PCI/0-1000", "PCI/0-20000"]


def test_a_switch_that_loses_its_last_link_takes_one_from_behind_the_end() -> None:
    """NCCL moves the uplink to the end of what it finds there, which is one more than the switch has links."""
    ids = ' vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" subsystem_device="0xa000"'
    slow = 'link_speed="8.0 GT/s PCIe" link_width="16"'
    inside = gpu(0x11, 0) + switch(0x12, "", ids, slow)
    system = built(cpu(switch(0x01, switch(0x10, inside, ids))))
    assert [target for _, target, _ in links(system, "PCI/0-10000")] == ["DEV/0-11000", "PCI/0-12000"]


def test_networks_have_defaults_and_kinds() -> None:
    nets = (
        '<net name="a" dev="0" speed="-1"/><net name="b" dev="1" speed="100000" guid="0x1f" gin="1" rma="1" rail="2"/>'
        '<net name="c" dev="2" net="0" gin="1"/><net name="no device"/>'
    )
    system = built(cpu(nic(0x10, nets)))
    first, second = system.nets()
    assert (first.bw, first.asic, first.max_channels, first.gdr, first.port) == (1.25, 0, 64, 0, 0)
    assert (second.bw, second.asic, second.rail, second.plane) == (12.5, 0x1F, 2, -1)
    assert [net.dev for net in system.nets(GIN)] == [1, 2]
    assert [net.dev for net in system.nets(RMA)] == [1]
    assert first.pci_key == second.pci_key
    assert built(cpu(nic(0x10, nets)), OLD).count(RMA) == 0


def test_nics_right_below_a_cpu_share_a_node() -> None:
    one = '<nic><net name="a" dev="0" guid="1"/></nic><nic><net name="b" dev="1" guid="2"/></nic>'
    system = built(cpu(one))
    assert system.count(NIC) == 1
    assert links(system, "CPU/0-0") == [("PCI", "NIC/0-0", 5000.0)]
    assert len({net.pci_key for net in system.nets()}) == 2


def test_parts_of_a_split_gpu_share_its_links() -> None:
    c2c = '<c2c bw="44712" count="5"/>'
    halves = "".join(f'<gpu dev="0" sm="103" rank="{n}" gdr="1" mlopart="{n}">{SWITCHED}{c2c}</gpu>' for n in (0, 1))
    system = built(cpu(f'<pci busid="0000:10:00.0" class="0x030200" {GEN4}>{halves}</pci>', what='arch="arm64"'))
    assert [system.nodes[n].name for n in system.of_type[DEV]] == ["DEV/0-10001", "DEV/0-10003"]
    assert ("LOC", "DEV/0-10003", 2618.0) in links(system, "DEV/0-10001")
    assert links(system, "NVS/0-0") == [("NVL", f"DEV/0-1000{n}", as_float(721.8 / 2)) for n in (1, 3)]
    assert system.count(CXB) == 1
    assert ("C2C", "CPU/0-0", as_float(223.56)) in links(system, "CXB/0-10000")


def test_two_ranks_on_one_gpu_share_its_device() -> None:
    ranks = "".join(f'<gpu dev="0" sm="90" rank="{n}" gdr="1">{SWITCHED}</gpu>' for n in (0, 1))
    system = built(cpu(f'<pci busid="0000:10:00.0" class="0x030200" {GEN4}>{ranks}</pci>'))
    assert system.count(DEV) == 1
    assert [node.local for node in system.gpus()] == [0x10000, 1 << 40 | 0x10000]
    assert [bw for *_, bw in links(system, "NVS/0-0")] == pytest.approx([18 * 20.6])


def test_a_gpu_without_rank_is_left_out() -> None:
    text = f'<pci busid="0000:10:00.0" class="0x030200" {GEN4}><gpu dev="0" sm="90" gdr="1"></gpu></pci>'
    assert built(cpu(text)).count(GPU) == 0


@pytest.mark.parametrize(
    ("inside", "message", "line"),
    [
        (cpu("", what=""), "Attribute arch of node cpu not found", 2),
        (cpu("", what='arch="x86_64" vendor="GenuineIntel"'), "Attribute familyid of node cpu not found", 2),
        (cpu("<pci></pci>"), "Attribute class of node pci not found", 3),
        (cpu(gpu(0x10, 0).replace('sm="90"', "")), "Attribute sm of node gpu not found", 4),
        (cpu(gpu(0x10, 0, '<nvlink target="x" count="1"/>')), "Attribute tclass of node nvlink not found", 4),
        (cpu(gpu(0x10, 0, '<c2c count="1"/>')), "Attribute bw of node c2c not found", 4),
        (
            cpu(gpu(0x10, 0, SWITCHED).replace('rank="0"', "")),
            "Add NVLink error : could not find DEV for GPU 0000:10:00.0",
            4,
        ),
        (
            cpu(gpu(0x10, 0, function=1)),
            "BusId 0x10001 has non-zero bits in MLOPart mask 0x3,"
            " cannot encode MLOPart partition index without collision",
            4,
        ),
        (cpu(gpu(0x10, 0, extra=' mlopart="2"')), "MLOPart index 2 out of range (max 1)", 4),
        (cpu("".join(switch(n, "") for n in range(577))), "Error : too many Topo links (max 576)", 1155),
    ],
)
def test_refusals_name_nccls_words_and_the_line(inside: str, message: str, line: int) -> None:
    caught = refused(inside)
    assert caught.nccl_message == message
    assert caught.nccl_result == "ncclInternalError"
    assert str(caught.where) == f"made.xml:{line}"


def test_a_gpu_at_function_1_was_fine_before_2_30() -> None:
    assert built(cpu(gpu(0x10, 0, function=1)), OLD).gpus()[0].local == 0x10001


def test_no_cpu_no_host_no_system() -> None:
    assert refused("").nccl_result == "ncclInvalidArgument"
    with pytest.raises(TopologyRefused) as caught:
        build_system(None, NEW)
    assert caught.value.nccl_message == "ncclTopoGetSystemFromXml: system node not found in XML"
    with pytest.raises(TopologyRefused) as caught:
        build_system(None, OLD)
    assert caught.value.crashes


def test_amd_models_are_needed_from_2_31_on() -> None:
    text = cpu("")
    assert built(text).count(CPU) == 1
    assert refused(text, Version(2, 31, 0)).nccl_message == "Attribute familyid of node cpu not found"


def test_affinity_masks_and_ranges() -> None:
    assert ranges(affinity("ff,ffffffff,ffffffff")) == "0-71"
    assert ranges(affinity("00000001,,80000000")) == "31-32"
    assert ranges(affinity("0-15")) == ""
    assert affinity(",".join(["1"] * 33)) == affinity(",".join(["1"] * 32))
    assert ranges(0b1011) == "0-1,3"


def test_bus_ids_are_hexadecimal_digits_without_separators() -> None:
    assert bus_id("0008:06:00.0") == 0x806000
    assert bus_id("0008:06:00.0 junk") == 0x806000
    assert bus_id("garbage") == 0
    assert bus_id("ffffffffffffffff1") == 2**63 - 1


def test_nodes_of_one_type_are_limited() -> None:
    many = "".join(cpu("".join(switch(bus, "") for bus in range(321)), numa) for numa in (0, 1))
    assert refused(many).nccl_message == "Error : tried to create too many nodes of type 1"
    assert built(cpu("", 1)).nets(NET) == []
