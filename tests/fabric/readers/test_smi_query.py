"""nvidia-smi --query-gpu as CSV."""

import pytest
from tests.conftest import Fuzz

from rackyard.errors import SpecError
from rackyard.fabric.readers import smi_query
from rackyard.fabric.readers.reader import Capture
from rackyard.findings import Verdict

HEADER = (
    "index, uuid, name, pci.bus_id, memory.total [MiB], driver_version, vbios_version, pcie.link.gen.current, "
    "pcie.link.width.max, fabric.state, fabric.status, fabric.cliqueId, fabric.clusterUuid, "
    "platform.chassis_serial_number, platform.slot_number, platform.tray_index, platform.host_id, platform.module_id, "
    "platform.gpu_fabric_guid"
)
UUID = "GPU-00000000-1111-2222-3333-44444444444"
ROW = (
    f"0, {UUID}0, NVIDIA GB300, 00000008:06:00.0, 284208 MiB, 580.95.05, 97.10.4C.00.05, 6, 16, Completed, Success, "
    "7, 0F0E0D0C-0000-4000-8000-000000000001, 1820025180411, 12, 4, 1, 2, 0x593ac6c850427ec6"
)
TEXT = f"{HEADER}\n{ROW}\n"


def capture(text: str, node: str = "n1") -> Capture:
    return Capture("query.csv", text.encode(), node)


def test_every_field_that_is_used() -> None:
    facts = smi_query.read(capture(TEXT))
    (gpu,) = facts.gpus
    assert (gpu.node, gpu.index, gpu.uuid, gpu.product) == ("n1", 0, f"{UUID}0", "NVIDIA GB300")
    assert (gpu.pci, gpu.memory_mib, gpu.vbios, gpu.pci_gen, gpu.pci_width_max) == (
        "0008:06:00.0",
        284208,
        "97.10.4C.00.05",
        6,
        16,
    )
    assert (gpu.fabric_state, gpu.fabric_status, gpu.clique_id) == ("completed", "Success", 7)
    assert gpu.cluster_uuid == "0f0e0d0c-0000-4000-8000-000000000001"
    assert (gpu.chassis, gpu.slot, gpu.tray, gpu.host_id, gpu.module_id) == ("1820025180411", 12, 4, 1, 2)
    assert gpu.fabric_guid == "593ac6c850427ec6"
    assert (gpu.source.line, gpu.source.text) == (2, ROW)
    assert [(host.driver, host.source.line) for host in facts.hosts] == [("580.95.05", 2)]


def test_order_and_units_of_the_header_decide() -> None:
    facts = smi_query.read(capture("memory.total [MiB], gpu_bus_id, gpu_name\n81559, 00010000:E1:00.0, NVIDIA H100\n"))
    (gpu,) = facts.gpus
    assert (gpu.memory_mib, gpu.pci, gpu.product, gpu.index) == (81559, "10000:e1:00.0", "NVIDIA H100", None)


def test_without_header_the_order_of_collect_sh() -> None:
    cells = dict.fromkeys(smi_query.FIELDS, "[N/A]") | {"index": "3", "uuid": f"{UUID}3", "fabric.cliqueId": "9"}
    text = ", ".join(cells.values()) + "\n"
    assert smi_query.READER.knows(text, "x.csv")
    (gpu,) = smi_query.read(capture(text)).gpus
    assert (gpu.index, gpu.uuid, gpu.clique_id, gpu.fabric_state) == (3, f"{UUID}3", 9, None)


def test_what_is_not_there_is_none() -> None:
    rows = (
        "index, uuid, fabric.state, fabric.cliqueId, fabric.clusterUuid, platform.slot_number, platform.gpu_fabric_guid"
    )
    (gpu,) = smi_query.read(capture(f"{rows}\n0, {UUID}0, [N/A], [Not Supported], N/A, [Unknown Error], 0x0\n")).gpus
    assert (gpu.fabric_state, gpu.clique_id, gpu.cluster_uuid, gpu.slot, gpu.fabric_guid) == (None,) * 5


def test_a_zero_cluster_is_an_answer() -> None:
    zero = "00000000-0000-0000-0000-000000000000"
    head = "index, fabric.state, fabric.clusterUuid, fabric.cliqueId"
    (gpu,) = smi_query.read(capture(f"{head}\n0, Completed, {zero}, 0\n")).gpus
    assert (gpu.fabric_state, gpu.cluster_uuid, gpu.clique_id) == ("completed", zero, 0)


def test_host_name_from_the_column_when_nobody_else_knows() -> None:
    facts = smi_query.read(capture("hostname, index\nrack1-t02, 0\n", node=""))
    assert facts.gpus[0].node == "rack1-t02"


def test_a_row_that_does_not_fit_says_where() -> None:
    with pytest.raises(SpecError, match="3 values where 19 fields") as caught:
        smi_query.read(capture(f"{HEADER}\n{ROW}\n1, {UUID}1, NVIDIA"))
    assert str(caught.value.where) == "query.csv:3:1"


def test_a_gpu_that_is_lost_is_a_finding() -> None:
    text = f"{TEXT}Unable to determine the device handle for GPU0009:06:00.0: Unknown Error\n"
    facts = smi_query.read(capture(text))
    (finding,) = facts.findings
    assert (len(facts.gpus), finding.rule, finding.verdict) == (1, "fabric/gpu-unreachable", Verdict.FAIL)
    assert finding.evidence[0].line == 3
    nothing = smi_query.read(capture(f"{HEADER}\n" + ", ".join(["[GPU is lost]"] * 19)))
    assert (nothing.gpus, nothing.findings[0].verdict) == ([], Verdict.UNKNOWN)


@pytest.mark.parametrize("text", ["", "\n\n", "name\nvalue\n", "a,b,c\n1,2,3\n", "GPU 0: NVIDIA (UUID: GPU-1)\n"])
def test_other_files_are_not_taken(text: str) -> None:
    assert not smi_query.READER.knows(text, "x.csv")


def test_fuzz(fuzz: Fuzz) -> None:
    fuzz(lambda data: smi_query.read(Capture("f", data)), [TEXT.encode(), b"index, uuid\n0, GPU-1\n"])
