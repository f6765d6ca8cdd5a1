"""nvidia-smi -q, as text and as XML: the same log of the same made-up tray must give the same facts."""

import pytest
from tests.conftest import Fuzz

from rackyard.errors import SpecError
from rackyard.fabric.facts import GpuFact
from rackyard.fabric.readers import smi_q, smi_xml
from rackyard.fabric.readers.reader import Capture
from rackyard.findings import Verdict

UUID = "GPU-00000000-1111-2222-3333-44444444444"
CLUSTER = "0f0e0d0c-0000-4000-8000-000000000001"


def block(number: int, address: str, *, width: int = 34) -> str:
    """One GPU as driver 580 prints it; `width` is how far the colons stand out."""
    rows = f"""\
GPU {address}
    Product Name: NVIDIA GB300
    GPU UUID: {UUID}{number}
    Minor Number: {number}
    VBIOS Version: 97.10.4C.00.05
    Platform Info
        Chassis Serial Number: 1820025180411
        Slot Number: 12
        Tray Index: 4
        Host ID: 1
        Peer Type: Switch Connected
        Module Id: {number + 1}
        GPU Fabric GUID: 0x593ac6c850427ec6
    PCI
        Bus: 0x06
        Bus Id: {address}
        GPU Link Info
            PCIe Generation
                Max: 6
                Current: 5
                Device Max: 6
                Host Max: N/A
            Link Width
                Max: 16x
                Current: 8x
    FB Memory Usage
        Total: 284208 MiB
        Used: 0 MiB
    BAR1 Memory Usage
        Total: 524288 MiB
    Fabric
        State: Completed
        Status: Success
        CliqueId: 7
        ClusterUUID: {CLUSTER}
        Health
            Summary: Healthy
            Bandwidth: Full
            Route Recovery in progress: False
            Route Unhealthy: False
            Access Timeout Recovery: False
            Incorrect Configuration: None
            Partition Assigned: N/A
    Processes: None
"""
    lines = []
    for line in rows.splitlines():
        key, colon, value = line.partition(": ")
        lines.append(f"{key:<{width}}: {value}" if colon else line)
    return "\n".join(lines) + "\n"


LOG = f"""
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 30 09:40:00 2026
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 2
{block(0, "00000008:06:00.0")}
{block(1, "00000009:06:00.0", width=46)}"""

GPU_XML = """\
\t<gpu id="{address}">
\t\t<product_name>NVIDIA GB300</product_name>
\t\t<uuid>{uuid}</uuid>
\t\t<vbios_version>97.10.4C.00.05</vbios_version>
\t\t<platformInfo>
\t\t\t<chassis_serial_number>1820025180411</chassis_serial_number>
\t\t\t<slot_number>12</slot_number>
\t\t\t<tray_index>4</tray_index>
\t\t\t<host_id>1</host_id>
\t\t\t<module_id>{module}</module_id>
\t\t\t<gpu_fabric_guid>0x593ac6c850427ec6</gpu_fabric_guid>
\t\t</platformInfo>
\t\t<pci>
\t\t\t<pci_bus_id>{address}</pci_bus_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen><max_link_gen>6</max_link_gen><current_link_gen>5</current_link_gen></pcie_gen>
\t\t\t\t<link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
\t\t\t</pci_gpu_link_info>
\t\t</pci>
\t\t<fb_memory_usage><total>284208 MiB</total></fb_memory_usage>
\t\t<bar1_memory_usage><total>524288 MiB</total></bar1_memory_usage>
\t\t<fabric>
\t\t\t<state>Completed</state>
\t\t\t<status>Success</status>
\t\t\t<cliqueId>7</cliqueId>
\t\t\t<clusterUuid>{cluster}</clusterUuid>
\t\t\t<health>
\t\t\t\t<summary>Healthy</summary>
\t\t\t\t<bandwidth>Full</bandwidth>
\t\t\t\t<route_recovery_in_progress>False</route_recovery_in_progress>
\t\t\t\t<route_unhealthy>False</route_unhealthy>
\t\t\t\t<access_timeout_recovery>False</access_timeout_recovery>
\t\t\t\t<incorrect_configuration>None</incorrect_configuration>
\t\t\t\t<partition_assigned>N/A</partition_assigned>
\t\t\t</health>
\t\t</fabric>
\t</gpu>
"""
TWO = "".join(
    GPU_XML.format(address=address, uuid=f"{UUID}{number}", module=number + 1, cluster=CLUSTER)
    for number, address in enumerate(("00000008:06:00.0", "00000009:06:00.0"))
)
XML = f"""\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
\t<driver_version>580.95.05</driver_version>
\t<attached_gpus>2</attached_gpus>
{TWO}</nvidia_smi_log>
"""


def without_source(gpu: GpuFact) -> dict[str, object]:
    return {name: getattr(gpu, name) for name in gpu.__struct_fields__ if name != "source"}


def test_text_gives_every_value_whatever_the_width_of_columns() -> None:
    facts = smi_q.read(Capture("q.txt", LOG.encode(), "n1"))
    first, second = facts.gpus
    assert (first.pci, first.uuid, first.product, first.memory_mib) == (
        "0008:06:00.0",
        f"{UUID}0",
        "NVIDIA GB300",
        284208,
    )
    assert (first.pci_gen, first.pci_gen_max, first.pci_width, first.pci_width_max) == (5, 6, 8, 16)
    assert (first.chassis, first.slot, first.tray, first.host_id, first.module_id) == ("1820025180411", 12, 4, 1, 1)
    assert (first.fabric_state, first.fabric_status, first.clique_id) == ("completed", "Success", 7)
    assert (first.cluster_uuid, first.fabric_guid) == (CLUSTER, "593ac6c850427ec6")
    assert (first.health_mask, first.health_summary) == (0x1AA, "healthy")
    assert first.index is None
    assert (second.pci, second.module_id, second.health_mask) == ("0009:06:00.0", 2, 0x1AA)
    assert [host.driver for host in facts.hosts] == ["580.95.05"]
    assert LOG.splitlines()[first.source.line - 1] == "GPU 00000008:06:00.0" if first.source.line else False


def test_xml_gives_the_same() -> None:
    text = smi_q.read(Capture("q.txt", LOG.encode(), "n1"))
    xml = smi_xml.read(Capture("q.xml", XML.encode(), "n1"))
    assert [without_source(gpu) for gpu in xml.gpus] == [without_source(gpu) for gpu in text.gpus]
    assert [host.driver for host in xml.hosts] == ["580.95.05"]
    assert xml.gpus[0].source.line == 6


def test_an_older_driver_has_no_health_and_nothing_is_made_up() -> None:
    text = f"""\
==============NVSMI LOG==============
Attached GPUs                         : 1
GPU 00000000:18:00.0
    Product Name                      : NVIDIA H100 80GB HBM3
    GPU UUID                          : {UUID}0
    GPU Module ID                     : 4
    Fabric
        State                         : Completed
        Status                        : Success
    Processes                         : None
    Reset Status
        State                         : Not Needed
"""
    (gpu,) = smi_q.read(Capture("q.txt", text.encode())).gpus
    assert (gpu.fabric_state, gpu.module_id, gpu.clique_id, gpu.cluster_uuid) == ("completed", 4, None, None)
    assert (gpu.health_mask, gpu.health_summary, gpu.chassis) == (None, None, None)


def test_not_available_is_none_and_faults_are_in_the_mask() -> None:
    text = LOG.replace("Full", "Degraded").replace("Healthy", "Limited Capacity").replace("1820025180411", "N/A")
    gpu = smi_q.read(Capture("q.txt", text.encode())).gpus[0]
    assert (gpu.health_mask, gpu.health_summary, gpu.chassis) == (0x1A9, "limited-capacity", None)
    silent = LOG.replace("Full", "N/A").replace("Healthy", "N/A").replace("False", "N/A").replace(": None", ": N/A")
    gpu = smi_q.read(Capture("q.txt", silent.encode())).gpus[0]
    assert (gpu.health_mask, gpu.health_summary) == (None, None)


def test_a_log_that_was_cut_short_says_so() -> None:
    cut = LOG[: LOG.index("GPU 00000009")]
    (finding,) = smi_q.read(Capture("q.txt", cut.encode())).findings
    assert (finding.rule, finding.verdict) == ("fabric/capture-cut", Verdict.UNKNOWN)
    with pytest.raises(SpecError, match="describes none") as caught:
        smi_q.read(Capture("q.txt", LOG[: LOG.index("GPU 00000008")].encode()))
    assert str(caught.value.where) == "q.txt:8:1"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("</gpu>\n</nvidia_smi_log>", "mismatched|no element found|unclosed"),
        ("<gpu", "not well-formed|unclosed|invalid token"),
    ],
)
def test_malformed_xml_says_where(damage: str, why: str) -> None:
    broken = XML.replace("</nvidia_smi_log>", damage)
    with pytest.raises(SpecError, match=why) as caught:
        smi_xml.read(Capture("q.xml", broken.encode()))
    assert str(caught.value.where).startswith("q.xml:")


def test_entities_are_refused_and_the_dtd_is_not_followed() -> None:
    bomb = XML.replace(
        'SYSTEM "nvsmi_device_v13.dtd">', '[<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    )
    with pytest.raises(SpecError, match="declares the entity a"):
        smi_xml.read(Capture("q.xml", bomb.encode()))
    deep = "<nvidia_smi_log>" + "<a>" * 5000
    with pytest.raises(SpecError, match="nested"):
        smi_xml.read(Capture("q.xml", deep.encode()))


def test_what_each_reader_takes() -> None:
    assert smi_q.READER.knows(LOG, "") and not smi_xml.READER.knows(LOG, "")
    assert smi_xml.READER.knows(XML, "") and not smi_q.READER.knows(XML, "")
    for text in ("", "GPU 0: NVIDIA GB300 (UUID: GPU-0)\n", "<system version='1'/>", "==== LOG ====\n"):
        assert not smi_q.READER.knows(text, "") and not smi_xml.READER.knows(text, "")


def test_fuzz_text(fuzz: Fuzz) -> None:
    fuzz(lambda data: smi_q.read(Capture("f", data)), [LOG.encode(), block(0, "00000008:06:00.0").encode()])


def test_fuzz_xml(fuzz: Fuzz) -> None:
    fuzz(
        lambda data: smi_xml.read(Capture("f", data)), [XML.encode(), b"<nvidia_smi_log><gpu id='1'/></nvidia_smi_log>"]
    )
