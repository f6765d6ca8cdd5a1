"""What is looked at on one host, without its peers: GPUs, their NVLinks, their place on the NVLink fabric, its NICs.

Each check returns signs: what is amiss, what there is no telling of, or that all is well. The audit (`fabric.expect`)
judges by the pattern of many hosts; here a part is measured by what the driver lists of it, by its product, by its
peers in the host and by what it was before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rackyard.agent.host import Host, Memory, is_up, registers
from rackyard.fabric import healthmask, kinds
from rackyard.fabric.discover.gpus import kind_of
from rackyard.fabric.facts import GpuFact, NicFact, Source
from rackyard.findings import Verdict

REGISTERING = 600.0
"""Seconds that GPUs may take to join the NVLink fabric: the whole rack's come up after a planned power cycle."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that a check saw. `reason` is a word in CamelCase, as conditions have it."""

    verdict: Verdict
    reason: str
    text: str
    sources: tuple[Source, ...] = ()


def fail(reason: str, text: str, *sources: Source) -> Sign:
    """Something is wrong."""
    return Sign(Verdict.FAIL, reason, text, sources)


def unknown(reason: str, text: str, *sources: Source) -> Sign:
    """There is no telling."""
    return Sign(Verdict.UNKNOWN, reason, text, sources)


def well(reason: str, text: str, sources: Iterable[Source] = ()) -> tuple[Sign, ...]:
    """All that was looked at is as it should be."""
    return (Sign(Verdict.PASS, reason, text, tuple(sources)),)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the checks look at: the host, what earlier rounds saw of it, and how long its GPUs have been registering."""

    host: Host
    memory: Memory
    now: float


def gpus(seen: Seen) -> tuple[Sign, ...]:
    """Whether every GPU is there and answers."""
    host, signs = seen.host, []
    if host.trouble("sysfs") is None:
        for bdf in sorted(seen.memory.gpus - host.functions.keys()):
            signs.append(fail("GPUGone", f"GPU {bdf} was on the PCI bus and is not any more"))
    if (blind := _blind(host)) is not None:
        return (*signs, blind)
    for finding in host.facts.findings:
        if finding.rule == "fabric/nvml-silent":
            proof = "; ".join(one.text for one in finding.evidence)
            # A container without access to the device says so by this, and the GPU may be well.
            make, reason = (unknown, "NoPermission") if "permission" in proof.lower() else (fail, "GPUSilent")
            signs.append(make(reason, f"{finding.summary}: {proof}", Source("nvml", text=proof)))
    answered = {gpu.pci for gpu in host.gpus}
    if not signs:
        for bdf, function in sorted(host.functions.items()):
            if bdf not in answered:
                signs.append(fail("GPUNotListed", f"GPU {bdf} is on the PCI bus, and NVML lists none", function.source))
    if host.trouble("sysfs") is not None:
        signs.append(_troubled(host, "sysfs"))
    signs += _fewer(host)
    return tuple(signs) or well("GPUsAnswer", f"{len(host.gpus)} GPUs answer, as many as are on the PCI bus")


def nvlinks(seen: Seen) -> tuple[Sign, ...]:
    """Whether every GPU has all of its NVLinks up."""
    host = seen.host
    if (blind := _blind(host)) is not None:
        return (blind,)
    signs, up = [], 0
    for place, gpu in enumerate(host.gpus):
        wanted = _links(gpu)
        if gpu.links is None:
            if not _is_card(gpu):
                signs.append(
                    unknown("NVLinksNotReported", f"{_label(gpu, place)}: nobody told its NVLinks", gpu.source)
                )
        elif gpu.links < wanted:
            signs.append(fail("NVLinksDown", f"{_label(gpu, place)}: {gpu.links} of {wanted} NVLinks up", gpu.source))
        else:
            up += gpu.links
    signs += _unseen(seen)
    return tuple(signs) or well("NVLinksUp", f"{up} NVLinks of {len(host.gpus)} GPUs up, all of them")


def fabric(seen: Seen) -> tuple[Sign, ...]:
    """Whether every GPU has joined its NVLink fabric, and the fabric reports no fault of it."""
    host = seen.host
    if (blind := _blind(host)) is not None:
        return (blind,)
    since = seen.memory.registering
    patient = since is None or seen.now - since < REGISTERING
    states = {gpu.fabric_state for gpu in host.gpus}
    signs = []
    for place, gpu in enumerate(host.gpus):
        for make, reason, text in _of_fabric(gpu, states, patient):
            signs.append(make(reason, f"{_label(gpu, place)}: {text}", gpu.source))
    signs += _unseen(seen)
    if not signs and states == {"not-supported"}:
        return well("NoFabric", f"none of {len(host.gpus)} GPUs is on an NVLink fabric")
    return tuple(signs) or well(
        "FabricHealthy", f"{len(host.gpus)} GPUs have joined the fabric, which reports no fault"
    )


_Told = tuple[Callable[..., Sign], str, str]


def _of_fabric(gpu: GpuFact, states: set[str | None], patient: bool) -> Iterable[_Told]:
    if gpu.fabric_state is None:
        yield unknown, "FabricNotReported", "nobody told its fabric state"
    elif registers(gpu):
        text = f"fabric state {gpu.fabric_state}"
        yield (unknown, "Registering", text) if patient else (fail, "NotRegistered", f"{text}, and stays so")
    elif gpu.fabric_state == "not-supported":
        if states != {"not-supported"}:
            yield fail, "NotOnFabric", "on no fabric, and others of the host are"
        elif _is_tray(gpu):
            yield unknown, "NotOnFabric", f"on no fabric, and a {kind_of(gpu.product)} should be"
    elif healthmask.status_good(gpu.fabric_status) is False:
        yield fail, "NotRegistered", f"fabric status {gpu.fabric_status}"
    else:
        yield from _of_health(gpu)


def _of_health(gpu: GpuFact) -> Iterable[_Told]:
    faults = healthmask.faults(gpu.health_mask) if gpu.health_mask is not None else ()
    good = healthmask.summary_good(gpu.health_summary)
    if faults:
        yield fail, "FabricFault", f"health mask {gpu.health_mask:#x}: {', '.join(faults).replace('_', ' ')}"
    elif good is False:
        yield fail, "FabricFault", f"health summary {gpu.health_summary}"
    elif good is None and not (gpu.health_mask and healthmask.healthy(gpu.health_mask)):
        yield unknown, "HealthNotReported", "the driver told no fabric health"


def nics(seen: Seen) -> tuple[Sign, ...]:
    """Whether every port of the compute network is up that should be: it was before, or its likes in the host are."""
    host = seen.host
    if host.trouble("sysfs") is not None:
        return (_troubled(host, "sysfs"),)
    if not host.nics and not seen.memory.ports:
        return (unknown("NoNICSeen", "no NIC of the compute network is in sysfs"),)
    there = {(nic.name, nic.port) for nic in host.nics}
    signs = [
        fail("NICGone", f"{name} port {port} was up and is not there any more")
        for name, port in sorted(seen.memory.ports - there)
    ]
    likes: dict[tuple[str, int], list[NicFact]] = defaultdict(list)
    for nic in host.nics:
        likes[nic.board_id or nic.hca_type or "", nic.port].append(nic)
    used = {nic.name for nic in host.nics if is_up(nic)}
    up = 0
    for nic in host.nics:
        sign = _of_port(nic, likes[nic.board_id or nic.hca_type or "", nic.port], seen.memory, used)
        up += is_up(nic) is True
        signs += [sign] if sign else []
    return tuple(signs) or well("NICsUp", f"{up} of {len(host.nics)} ports up, all that are used")


def _of_port(nic: NicFact, likes: Sequence[NicFact], memory: Memory, used: set[str]) -> Sign | None:
    """What a port is a sign of. A second port of which no like is up, on an HCA whose other port is, is not cabled."""
    up = is_up(nic)
    if up:
        return None
    says = "/".join(part for part in (nic.state, nic.phys_state) if part)
    text = f"{nic.name} port {nic.port} is {says}"
    if up is None:
        return unknown("NICNotReported", f"{nic.name} port {nic.port}: nobody told its state", nic.source)
    if (nic.state or "").upper() in ("INIT", "ARMED"):
        return fail("NICNotConfigured", f"{text}: no subnet manager has configured it", nic.source)
    if (nic.name, nic.port) in memory.ports:
        return fail("NICDown", f"{text}, and was up before", nic.source)
    good = sum(is_up(other) is True for other in likes)
    if 2 * good > len(likes):
        return fail("NICDown", f"{text}; {good} of {len(likes)} like it are up", nic.source)
    if not good and nic.name in used:
        return None
    return unknown("NICUnused", f"{text}, and nothing shows whether it should be up", nic.source)


# --- what the checks share ------------------------------------------------------------------------------------------


def _blind(host: Host) -> Sign | None:
    """Why nothing can be said of GPUs at all; None when something can."""
    if host.trouble("nvml") is not None:
        if host.trouble("sysfs") is None and not host.functions:
            return unknown("NoGPUSeen", "no NVIDIA GPU is on the PCI bus, and no driver answers")
        return _troubled(host, "nvml")
    if not host.gpus and not host.facts.findings:
        return unknown("NoGPUSeen", "NVML lists no GPU")
    return None


def _troubled(host: Host, reader: str) -> Sign:
    reading = host.readings[reader]
    assert reading.trouble is not None
    return unknown(str(reading.trouble), f"{reader}: {reading.line}", Source(reader, text=reading.line))


def _unseen(seen: Seen) -> Iterable[Sign]:
    """GPUs of which the other checks could say nothing: theirs is no clean bill."""
    amiss = [sign for sign in gpus(seen) if sign.verdict is not Verdict.PASS]
    if amiss:
        yield unknown("GPUsUnseen", f"not all GPUs could be looked at: {amiss[0].text}", *amiss[0].sources)


def _fewer(host: Host) -> Iterable[Sign]:
    """A tray with fewer GPUs than its kind has: off the bus since the boot, or another kind of tray."""
    for kind in sorted({kind_of(gpu.product) for gpu in host.gpus}):
        shape = kinds.SHAPES.get(kind)
        if shape is not None and shape.kind == "nvl72-tray" and len(host.gpus) < len(shape.gpu_pci):
            yield unknown("FewerGPUs", f"{len(host.gpus)} GPUs, and an NVL72 tray of {kind} has {len(shape.gpu_pci)}")


def _links(gpu: GpuFact) -> int:
    """NVLinks that the GPU should have up: all that the driver lists, and all that its product has."""
    shape = kinds.SHAPES.get(kind_of(gpu.product))
    return max(gpu.links_seen or 0, shape.nvlinks if shape is not None and not _is_card(gpu) else 0)


def _is_card(gpu: GpuFact) -> bool:
    """Whether it is a PCIe card, which has no NVLinks unless it is bridged to another."""
    return "PCIE" in (gpu.product or "").upper()


def _is_tray(gpu: GpuFact) -> bool:
    shape = kinds.SHAPES.get(kind_of(gpu.product))
    return shape is not None and shape.kind == "nvl72-tray"


def _label(gpu: GpuFact, place: int) -> str:
    return f"GPU {place if gpu.index is None else gpu.index}" + (f" ({gpu.pci})" if gpu.pci else "")
