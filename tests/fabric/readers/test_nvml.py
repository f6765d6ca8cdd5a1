"""NVML through a stand-in for nvidia-ml-py: made-up answers in the structures of nvml.h."""

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rackyard.collect import read_nvml
from rackyard.errors import UsageError
from rackyard.findings import Verdict

GUID = bytes.fromhex("593ac6c850427ec6") + bytes(8)
CLUSTER = bytes.fromhex("0f0e0d0c000040008000000000000001")


class StandInError(Exception):
    """What the stand-in raises, as pynvml raises NVMLError."""


class FabricV3(ctypes.Structure):
    """nvmlGpuFabricInfo_v3_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint32),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint32),
        ("healthSummary", ctypes.c_uint8),
    )


class FabricV2(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t: no summary."""

    _fields_ = FabricV3._fields_[:-1]


class PlatformV2(ctypes.Structure):
    """nvmlPlatformInfo_v2_t."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("ibGuid", ctypes.c_char * 16),
        ("chassisSerialNumber", ctypes.c_char * 16),
        ("slotNumber", ctypes.c_char),
        ("trayIndex", ctypes.c_char),
        ("hostId", ctypes.c_char),
        ("peerType", ctypes.c_char),
        ("moduleId", ctypes.c_char),
    )


class StandInNvml:
    """A stand-in for the module pynvml on a made-up tray of two GPUs; the second has lost links 4 and 5."""

    NVMLError = StandInError
    c_nvmlGpuFabricInfo_v3_t = FabricV3
    c_nvmlGpuFabricInfo_v2_t = FabricV2
    c_nvmlPlatformInfo_v2_t = PlatformV2
    NVML_FI_DEV_NVLINK_LINK_COUNT = 91
    NVML_FI_DEV_NVLINK_GET_SPEED = 164
    NVML_FI_DEV_NVLINK_GET_STATE = 165

    def __init__(self, *, state: int = 3, v3: bool = True, dead: tuple[int, ...] = ()) -> None:
        self.state, self.v3, self.dead, self.open = state, v3, dead, 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.95.05"

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.dead:
            raise StandInError("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA GB300"

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"0000000{8 + handle}:06:00.0".encode())

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=284208 << 20)

    def nvmlDeviceGetVbiosVersion(self, handle: int) -> str:
        raise StandInError("Not Supported")

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlErrorString(self, code: int) -> bytes:
        return b"Insufficient Resources"

    def nvmlDeviceGetGpuFabricInfoV(self, handle: int, reference: Any) -> int:
        info = reference._obj
        if isinstance(info, FabricV3) and not self.v3:
            raise StandInError("Argument Version Mismatch")
        info.state, info.cliqueId, info.healthMask = self.state, 7, 0x1AA
        info.clusterUuid[:] = CLUSTER
        info.status = 0 if handle == 0 else 71
        if self.v3:
            info.healthSummary = 1
        return 0

    def nvmlDeviceGetPlatformInfo(self, handle: int, reference: Any) -> int:
        info = reference._obj
        ctypes.memmove(ctypes.addressof(info) + PlatformV2.ibGuid.offset, GUID, 16)
        info.chassisSerialNumber = b"1820025180411"
        info.slotNumber, info.trayIndex, info.hostId, info.moduleId = 12, b"\x04", b"\x01", bytes([handle + 1])
        return 0

    def nvmlDeviceGetFieldValues(self, handle: int, wanted: list[tuple[int, int]]) -> list[Any]:
        return [self.field(handle, *field) for field in wanted]

    def field(self, handle: int, field: int, link: int) -> Any:
        down = handle == 1 and link in (4, 5)
        value = {91: 18, 164: 0 if down else 53125, 165: 0 if down else 1}[field]
        return SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=value))


def test_a_tray() -> None:
    nvml = StandInNvml()
    facts = read_nvml("n1", nvml)
    first, second = facts.gpus
    assert (first.index, first.uuid, first.pci, first.memory_mib) == (0, "GPU-0", "0008:06:00.0", 284208)
    assert (first.fabric_state, first.fabric_status, first.clique_id) == ("completed", "Success", 7)
    assert first.cluster_uuid == "0f0e0d0c-0000-4000-8000-000000000001"
    assert (first.health_mask, first.health_summary) == (0x1AA, "healthy")
    assert (first.chassis, first.slot, first.tray, first.host_id, first.module_id) == ("1820025180411", 12, 4, 1, 1)
    assert first.fabric_guid == "593ac6c850427ec6"
    assert (first.links, first.links_seen, first.link_gbps) == (18, 18, 53.125)
    assert (second.links, second.links_seen, second.fabric_status) == (16, 18, "Insufficient Resources")
    assert (first.vbios, first.pci_gen, first.pci_width) == (None, None, 16)
    assert [host.driver for host in facts.hosts] == ["580.95.05"]
    assert nvml.open == 0


def test_an_older_driver_has_no_summary() -> None:
    gpu = read_nvml("n1", StandInNvml(v3=False)).gpus[0]
    assert (gpu.health_mask, gpu.health_summary, gpu.clique_id) == (0x1AA, None, 7)


@pytest.mark.parametrize(("state", "name"), [(0, "not-supported"), (1, "not-started"), (2, "in-progress"), (9, None)])
def test_nothing_counts_before_the_probe_is_complete(state: int, name: str | None) -> None:
    gpu = read_nvml("n1", StandInNvml(state=state)).gpus[0]
    assert (gpu.fabric_state, gpu.clique_id, gpu.cluster_uuid, gpu.health_mask) == (name, None, None, None)


def test_a_lost_gpu_is_a_finding() -> None:
    facts = read_nvml("n1", StandInNvml(dead=(1,)))
    (finding,) = facts.findings
    assert (len(facts.gpus), finding.verdict, finding.evidence[0].text) == (1, Verdict.FAIL, "GPU is lost")


def test_a_driver_that_does_not_answer_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = StandInNvml()

    def refuse() -> None:
        raise StandInError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlInit", refuse)
    facts = read_nvml("n1", nvml)
    assert (facts.gpus, facts.findings[0].summary) == ([], "the NVIDIA driver does not answer")


def test_without_the_package_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(UsageError, match="nvidia-ml-py"):
        read_nvml("n1")
