"""Host trees as they are recorded, and a driver to go with them: made up, on the pattern of a GB300 tray."""

import os
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as struct_replace

from rackyard.agent.reading import Reading, Trouble
from rackyard.fabric import simulate
from rackyard.fabric.discover.run import read as read_captures
from rackyard.fabric.facts import Facts, GpuFact
from rackyard.fabric.model import Health, Node
from rackyard.fabric.readers import READERS
from rackyard.fabric.readers.reader import Capture
from rackyard.fabric.simcaptures import bundle

NODE = "r01-t01"
TRAY: Node = simulate(1, 1).nodes[0]

FAKE_NVML = '''
"""A stand-in for pynvml: four GPUs of a made-up GB300 tray. NVML_DEAD names GPUs that do not answer, NVML_DOWN how many
links of GPU 1 are down, NVML_HANG and NVML_CRASH what they say, NVML_REFUSE the driver's words."""
import ctypes, os, time
from types import SimpleNamespace

class NVMLError(Exception): pass

class c_nvmlGpuFabricInfo_v3_t(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("clusterUuid", ctypes.c_uint8 * 16), ("status", ctypes.c_uint),
                ("cliqueId", ctypes.c_uint32), ("state", ctypes.c_uint), ("healthMask", ctypes.c_uint32),
                ("healthSummary", ctypes.c_uint8)]

NVML_FI_DEV_NVLINK_LINK_COUNT, NVML_FI_DEV_NVLINK_GET_SPEED, NVML_FI_DEV_NVLINK_GET_STATE = 91, 164, 165
PCI = ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"]

def nvmlInit():
    if os.environ.get("NVML_HANG"): time.sleep(3600)
    if os.environ.get("NVML_CRASH"): os.kill(os.getpid(), 11)
    if os.environ.get("NVML_REFUSE"): raise NVMLError(os.environ["NVML_REFUSE"])

def nvmlShutdown(): pass
def nvmlSystemGetDriverVersion(): return "580.95.05"
def nvmlDeviceGetCount(): return 4
def nvmlDeviceGetHandleByIndex(index):
    if str(index) in os.environ.get("NVML_DEAD", "").split(","): raise NVMLError("GPU is lost")
    return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetName(handle): return "NVIDIA GB300"
def nvmlDeviceGetPciInfo(handle): return SimpleNamespace(busId=f"0000{PCI[handle]}")
def nvmlErrorString(code): return str(code)
def nvmlDeviceGetGpuFabricInfoV(handle, reference):
    info = reference._obj
    info.state, info.cliqueId, info.healthMask, info.healthSummary = 3, 7, 0x1AA, 1
    info.clusterUuid[:] = bytes(range(16))
    return 0
def nvmlDeviceGetFieldValues(handle, wanted): return [field(handle, *one) for one in wanted]
def field(handle, field, link):
    down = handle == 1 and link < int(os.environ.get("NVML_DOWN", "0"))
    return SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(
        uiVal={91: 18, 164: 0 if down else 53125, 165: 0 if down else 1}[field]))
'''


def tree(root: Path, *, down: tuple[str, ...] = ()) -> Path:
    """A host's /sys and /proc under `root`: GPUs and HCAs of the tray; those HCAs in `down` have no link."""
    sysfs = root / "sys"
    for gpu in TRAY.gpus:
        function(sysfs, gpu.pci, "0x030200", "0x10de", gpu.numa)
    for nic in TRAY.nics:
        hca = function(sysfs, nic.pci, "0x020700", "0x15b3", nic.numa) / "infiniband" / nic.name
        port = hca / "ports" / "1"
        port.mkdir(parents=True)
        up = nic.name not in down
        write(port, state="4: ACTIVE" if up else "1: DOWN", phys_state="5: LinkUp" if up else "2: Polling")
        write(port, rate="800 Gb/sec (4X XDR)", link_layer="InfiniBand")
        write(hca, node_guid="946d:ae03:00f1:2a44", hca_type="MT4131", board_id="MT_0000001027")
        link(hca / "device", sysfs / "devices/pci0" / nic.pci)
        link(sysfs / "class/infiniband" / nic.name, hca)
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/sys/kernel").mkdir(parents=True)
    write(root / "proc/sys/kernel", osrelease="6.8.0-64k")
    write(root / "proc", cpuinfo="processor\t: 0")
    return root


def function(sysfs: Path, bdf: str, kind: str, vendor: str, numa: int) -> Path:
    """One PCI function."""
    folder = sysfs / "devices/pci0" / bdf
    folder.mkdir(parents=True)
    write(folder, **{"class": kind, "vendor": vendor, "device": "0x1234", "numa_node": str(numa)})
    link(sysfs / "bus/pci/devices" / bdf, folder)
    return folder


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def driver(folder: Path) -> str:
    """A folder for PYTHONPATH in which the stand-in for pynvml is."""
    folder.mkdir()
    (folder / "pynvml.py").write_text(FAKE_NVML)
    return str(folder)


HEALTHY = {"fabric_state": "completed", "fabric_status": "Success", "health_mask": 0x1AA, "health_summary": "healthy"}


def captured(node: Node = TRAY) -> Facts:
    """The facts in the recorded tarball of a tray, with the fabric's health, which that has not."""
    facts, _ = read_captures([Capture("tray.tar", bundle(node))], READERS)
    facts.gpus = [change(gpu, **HEALTHY) if gpu.fabric_state else gpu for gpu in facts.gpus]
    return facts


def change(gpu: GpuFact, **values: object) -> GpuFact:
    """A GPU with other values."""
    return struct_replace(gpu, **values)


def readings(facts: Facts) -> tuple[Reading, Reading]:
    """The facts as two readers give them: GPUs from NVML, the rest from sysfs."""
    nvml = Facts(hosts=[], gpus=facts.gpus, findings=facts.findings)
    return Reading("sysfs", replace(facts, gpus=[], findings=[])), Reading("nvml", nvml)


def failed(reader: str, trouble: Trouble = Trouble.TIMEOUT) -> Reading:
    return Reading(reader, None, 20.0, trouble, f"the {reader} reader did not answer within 20 s")


def ill(**nics: Health) -> Node:
    """The tray with other health of some NICs."""
    return replace(TRAY, nics=tuple(replace(nic, health=nics.get(nic.name, nic.health)) for nic in TRAY.nics))
