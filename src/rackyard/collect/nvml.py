"""The GPUs of this host through NVML, by way of nvidia-ml-py (module `pynvml`), which is imported only when asked for.

NVML says what nvidia-smi prints nowhere in CSV: the fabric's health mask. Structures and field ids: nvml.h; a field's
`scopeId` is the link.
"""

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import UUID

from rackyard.errors import UsageError
from rackyard.fabric.facts import FABRIC_STATES, Facts, GpuFact, HostFact, Source
from rackyard.fabric.readers.smi_fields import bus_id
from rackyard.findings import Evidence, Finding, Severity, Verdict

NAME = "nvml"

_SUMMARIES = (None, "healthy", "unhealthy", "limited-capacity")
_ACTIVE = 1
"""NVML_NVLINK_STATE_ACTIVE; 0 is inactive, 2 asleep, 3 up without traffic."""


def read_nvml(node: str, nvml: Any = None) -> Facts:
    """A GpuFact for each GPU and a HostFact with the driver. `nvml` stands in for the module in tests.

    UsageError when nvidia-ml-py is not installed; a driver or a GPU that does not answer is a finding.
    """
    nvml = nvml or _module()
    facts = Facts()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        facts.findings.append(_silent(node, "the NVIDIA driver does not answer", error))
        return facts
    try:
        ask = _Asker(nvml)
        if driver := ask("nvmlSystemGetDriverVersion"):
            facts.hosts.append(HostFact(node=node, source=Source(NAME), driver=_str(driver)))
        for index in range(ask("nvmlDeviceGetCount") or 0):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
            except nvml.NVMLError as error:
                facts.findings.append(_silent(node, f"GPU {index} does not answer", error))
            else:
                facts.gpus.append(_gpu(node, index, ask, handle))
    finally:
        nvml.nvmlShutdown()
    return facts


def _module() -> Any:
    try:
        return import_module("pynvml")
    except ImportError:
        raise UsageError(
            "NVML can't be asked",
            why="the package nvidia-ml-py is not installed",
            fix="pip install nvidia-ml-py, or use the tarball of collect.sh",
        ) from None


class _Asker:
    """Calls NVML by name, and takes None for what this GPU, driver or binding does not have."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def __call__(self, name: str, *arguments: Any) -> Any:
        function: Callable[..., Any] | None = getattr(self.nvml, name, None)
        try:
            return function(*arguments) if function else None
        except self.nvml.NVMLError:
            return None

    def filled(self, name: str, handle: Any, *structs: str) -> Any:
        """The first of the structs, newest first, that the driver fills; None when it fills none."""
        for struct in structs:
            made = getattr(self.nvml, struct, None)
            if made is not None:
                info = made()
                if self(name, handle, ctypes.byref(info)) is not None:
                    return info
        return None

    def fields(self, handle: Any, wanted: list[tuple[int, int]]) -> list[int | None]:
        """Values of fields (id, link); None for each that the GPU does not have."""
        found = self("nvmlDeviceGetFieldValues", handle, wanted)
        if found is None:
            return [None] * len(wanted)
        return [None if one.nvmlReturn else int(one.value.uiVal) for one in found]


def _gpu(node: str, index: int, ask: _Asker, handle: Any) -> GpuFact:
    pci = ask("nvmlDeviceGetPciInfo", handle)
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    found: dict[str, Any] = {
        "pci": bus_id(_str(pci.busId)) if pci is not None else None,
        "uuid": _str(ask("nvmlDeviceGetUUID", handle)) or None,
        "product": _str(ask("nvmlDeviceGetName", handle)) or None,
        "memory_mib": int(memory.total) >> 20 if memory is not None else None,
        "vbios": _str(ask("nvmlDeviceGetVbiosVersion", handle)) or None,
        "module_id": ask("nvmlDeviceGetModuleId", handle),
        "pci_gen": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pci_gen_max": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pci_width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pci_width_max": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
    }
    found |= _fabric(ask, handle) | _platform(ask, handle) | _links(ask, handle)
    return GpuFact(node=node, source=Source(NAME, text=f"GPU {index}"), index=index, **found)


def _fabric(ask: _Asker, handle: Any) -> dict[str, Any]:
    info = ask.filled("nvmlDeviceGetGpuFabricInfoV", handle, "c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t")
    if info is None:
        return {}
    said: dict[str, Any] = {"fabric_state": FABRIC_STATES[info.state] if info.state < len(FABRIC_STATES) else None}
    if said["fabric_state"] == "completed":  # nvml.h: the rest only counts once the probe is complete
        summary = int(getattr(info, "healthSummary", 0))
        said |= {
            "fabric_status": "Success" if not info.status else _str(ask("nvmlErrorString", info.status)) or None,
            "clique_id": int(info.cliqueId),
            "cluster_uuid": str(UUID(bytes=bytes(info.clusterUuid))),
            "health_mask": int(info.healthMask) or None,
            "health_summary": _SUMMARIES[summary] if summary < len(_SUMMARIES) else None,
        }
    return said


def _platform(ask: _Asker, handle: Any) -> dict[str, Any]:
    info = ask.filled("nvmlDeviceGetPlatformInfo", handle, "c_nvmlPlatformInfo_v2_t")
    if info is None:
        return {}
    guid = int.from_bytes(_raw(info, "ibGuid")[:8], "big")  # as nvidia-smi prints it: GPU Fabric GUID
    return {
        "chassis": _str(info.chassisSerialNumber).strip() or None,
        "slot": _byte(info.slotNumber),
        "tray": _byte(info.trayIndex),
        "host_id": _byte(info.hostId),
        "module_id": _byte(info.moduleId),
        "fabric_guid": f"{guid:016x}" if guid else None,
    }


def _links(ask: _Asker, handle: Any) -> dict[str, Any]:
    nvml = ask.nvml
    (count,) = ask.fields(handle, [(nvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0)])
    if not count:
        return {}
    links = range(count)
    states = ask.fields(handle, [(nvml.NVML_FI_DEV_NVLINK_GET_STATE, link) for link in links])
    speeds = ask.fields(handle, [(nvml.NVML_FI_DEV_NVLINK_GET_SPEED, link) for link in links])
    seen = [state for state in states if state is not None]
    if not seen:
        return {}
    rates = [speed for state, speed in zip(states, speeds, strict=True) if state == _ACTIVE and speed]
    return {
        "links": seen.count(_ACTIVE),
        "links_seen": len(seen),
        "link_gbps": min(rates) / 1000 if rates else None,  # nvml.h gives MB/s
    }


def _silent(node: str, what: str, error: Exception) -> Finding:
    return Finding(
        "fabric/nvml-silent",
        Verdict.FAIL,
        Severity.ERROR,
        node,
        what,
        (Evidence(NAME, str(error)),),
        "Look for an Xid in the kernel log, and whether the driver is loaded.",
    )


def _raw(info: Any, name: str) -> bytes:
    """A char array of a ctypes structure with its zeros, which attribute access would cut it at."""
    field = getattr(type(info), name)
    return bytes(info)[field.offset : field.offset + field.size]


def _byte(value: Any) -> int:
    """A C char, which ctypes gives as bytes."""
    return value[0] if isinstance(value, bytes) and value else int(value or 0)


def _str(value: Any) -> str:
    """Text that older bindings give as bytes; empty for None."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
