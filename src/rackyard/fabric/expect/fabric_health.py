"""What the driver says of each GPU's place on the NVLink fabric: state, status, health mask, cluster UUID, clique.

`state` and `status` are of nvmlGpuFabricInfo; a GPU outside a fabric says not-supported, which is no fault where its
peers say so too. Two masks without a fault read 0x1aa and, on older drivers, 0xaa (`fabric.healthmask`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import TypeVar

from rackyard.fabric import healthmask as masks
from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.fabric_health_groups import Fault, told
from rackyard.fabric.expect.majority import split
from rackyard.fabric.expect.parts import GpuView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.model import is_zero
from rackyard.findings import Finding, Severity

_COLLECT = "capture `nvidia-smi -q` there, or run `rackyard topo collect --full`"
_NO_MNNVL = "NCCL leaves MNNVL and goes over the network. "

V = TypeVar("V", bound=Hashable)


@lru_cache(maxsize=1024)
def faults_of(mask: int) -> tuple[str, ...]:
    """The conditions that a health mask reports, in words. A site has a handful of masks, so each is decoded once."""
    return tuple(fault.replace("_", " ") for fault in masks.faults(mask))


def _state(rule: Rule, ctx: Context) -> list[Finding]:
    gpus = [(node, gpu) for node, gpu in ctx.gpus() if gpu.fact.fabric_state is not None]
    if not gpus:
        return [_nothing(rule, ctx, "fabric state")]
    faults = []
    for _, gpu in gpus:
        if gpu.fact.fabric_state in ("not-started", "in-progress"):
            summary = f"fabric state is {gpu.fact.fabric_state}: the GPU has not joined its NVLink domain"
            faults.append(Fault(gpu, "fabric_state", summary, _REGISTER))
        elif masks.status_good(gpu.fact.fabric_status) is False:
            summary = f"fabric state is {gpu.fact.fabric_state} with status {gpu.fact.fabric_status}"
            faults.append(Fault(gpu, "fabric_status", summary, _REGISTER))
    attached = split((node.family, gpu.fact.fabric_state != "not-supported", gpu) for node, gpu in gpus)
    for odd in attached.odd:
        if odd.expected:
            summary = (
                f"says it is on no NVLink fabric; {odd.others(f'{ctx.nodes[odd.part.node].family} GPUs')} joined one"
            )
            faults.append(Fault(odd.part, "fabric_state", summary, _REGISTER))
    findings = list(told(rule, ctx, faults))
    findings += _unsure(rule, ctx, attached.tied, "some joined an NVLink fabric and as many did not")
    findings += _silent(rule, ctx, "fabric_state", "fabric state")
    joined = sum(gpu.fact.fabric_state == "completed" for _, gpu in gpus)
    if not joined and not findings:
        return [rule.not_applicable(f"none of {len(gpus)} GPUs is on an NVLink fabric")]
    return rule.close(findings, f"fabric state of {len(gpus)} GPUs looked at: {joined} completed, none failed")


_REGISTER = (
    _NO_MNNVL
    + "Look at the fabric manager (NMX-C on the switch trays of NVL72, nvidia-fabricmanager on HGX) and at the"
    " GPU's partition, then reset the GPU; do not give the node work before it says Completed"
)


def _health(rule: Rule, ctx: Context) -> list[Finding]:
    gpus = [(node, gpu) for node, gpu in ctx.gpus() if _tells_health(gpu)]
    if not gpus:
        return [_nothing(rule, ctx, "fabric health")]
    found = []
    for _, gpu in gpus:
        mask, said = gpu.fact.health_mask or 0, gpu.fact.health_summary
        faults = faults_of(mask)
        if faults:
            text = "; ".join(faults)
            found.append(Fault(gpu, "health_mask", f"health mask 0x{mask:x}: {text}", _advice(text)))
        elif masks.summary_good(said) is False:
            where = f" though its mask 0x{mask:x} shows no fault" if mask else ""
            found.append(Fault(gpu, "health_summary", f"health summary is {said}{where}", _NO_WORK))
    findings = list(told(rule, ctx, found))
    findings += _silent_health(rule, ctx, len(gpus))
    return rule.close(findings, f"health of {len(gpus)} GPUs on the fabric decoded: no condition is raised")


_NO_WORK = "give the node no work until the fabric manager says what is wrong"
_CONDITIONS = {
    "degraded bandwidth": "NVLinks are down or slow: see fabric/gpu-links and the switch ports",
    "route recovery": "routes are being repaired: look again in a minute; if it stays, restart the fabric manager",
    "route unhealthy": "the GPU cannot reach all of its domain: drain the node and look at the switch trays",
    "access timeout": "recovery of a memory access timeout is under way: drain the node; reset the GPU if it stays",
    "no partition": "the GPU is in no NVLink partition: put it into one with NMX",
    "partition assigned": "the GPU is in no NVLink partition: put it into one with NMX",
    "insufficient nvlinks": "too few NVLinks came up: see fabric/gpu-links; reseat the tray",
    "firmware": "bring the GPU's firmware to the level of the rack",
    "chassis": "the tray reports another chassis: correct its location in the BMC, or it stands in the wrong rack",
    "location": "the tray's slot is not what the fabric manager expects: correct its location or reseat it",
    "guid": "the system GUID is wrong: correct the tray's inventory data with NVIDIA's tools",
}


def _advice(text: str) -> str:
    found = [advice for word, advice in _CONDITIONS.items() if word in text]
    return ". ".join(dict.fromkeys(found)) or _NO_WORK


def _tells_health(gpu: GpuView) -> bool:
    """Whether a driver reports any condition. Mask 0 says not supported, which is no health at all."""
    return bool(gpu.fact.health_mask) or masks.summary_good(gpu.fact.health_summary) is not None


def _silent_health(rule: Rule, ctx: Context, known: int) -> Iterator[Finding]:
    """GPUs that completed on a fabric of which others report health, and themselves report none."""
    reports = {node.family for node, gpu in ctx.gpus() if _tells_health(gpu)}
    silent = [gpu for node, gpu in ctx.gpus() if node.family in reports and not _tells_health(gpu)]
    if silent:
        where = listed(gpu.node for gpu in silent)
        summary = f"fabric health of {len(silent)} of {len(silent) + known} GPUs is not known: {where}"
        yield rule.unknown("site", summary, _COLLECT)


def _cluster(rule: Rule, ctx: Context) -> list[Finding]:
    gpus = [(node, gpu) for node, gpu in ctx.gpus() if gpu.fact.cluster_uuid is not None]
    if not gpus:
        return [_nothing(rule, ctx, "cluster UUID")]
    faults = []
    zero = split((node.family, is_zero(gpu.fact.cluster_uuid), gpu) for node, gpu in gpus)
    for odd in zero.odd:
        if odd.value:
            who = odd.others(f"{ctx.nodes[odd.part.node].family} GPUs")
            peer = odd.peer.source("cluster_uuid") if odd.peer else None
            summary = f"cluster UUID is zero: the GPU is in no NVLink domain; {who} one"
            faults.append(Fault(odd.part, "cluster_uuid", summary, _REGISTER, peer))
    findings = list(told(rule, ctx, faults))
    findings += _unsure(rule, ctx, zero.tied, "as many have a zero cluster UUID as have one")
    findings += _mixed(rule, ctx)
    return rule.close(findings, f"cluster UUID and clique of {len(gpus)} GPUs looked at: one pair in each node")


def _mixed(rule: Rule, ctx: Context) -> Iterator[Finding]:
    """Nodes whose GPUs are in different domains. A zero UUID is told by itself."""
    for node in ctx.nodes.values():
        keys: dict[tuple[str, int | None], list[GpuView]] = defaultdict(list)
        for gpu in node.gpus:
            if not is_zero(gpu.fact.cluster_uuid):
                keys[(gpu.fact.cluster_uuid or "").lower(), gpu.fact.clique_id].append(gpu)
        whole = {uuid for uuid, clique in keys if clique is not None}
        sure = {key: own for key, own in keys.items() if key[1] is not None or key[0] not in whole}
        if len(sure) < 2:
            continue
        counts = Counter({key: len(own) for key, own in sure.items()})
        few = min(counts.values())
        odd = [gpu for key, own in sorted(sure.items(), key=str) if counts[key] == few for gpu in own]
        shown = ", ".join(f"{counts[key]} in {key[0]}.{key[1]}" for key in sorted(sure, key=str))
        split_by = "cliques" if len({uuid for uuid, _ in sure}) == 1 else "cluster UUIDs"
        yield rule.fail(
            ctx.at(node.name, ", ".join(gpu.label for gpu in odd) if len(odd) < len(node.gpus) / 2 else ""),
            f"GPUs of one node are in several {split_by}: {shown}",
            [own[0].source("clique_id" if split_by == "cliques" else "cluster_uuid") for own in sure.values()],
            "GPU feature discovery drops the clique label of such a node; put its GPUs into one partition with NMX,"
            " then reset them",
        )


def _unsure(rule: Rule, ctx: Context, tied: list[tuple[V, GpuView]], what: str) -> Iterator[Finding]:
    if tied:
        where = listed(gpu.node for _, gpu in tied)
        kind = listed(ctx.nodes[gpu.node].family for _, gpu in tied)
        yield rule.unknown(where, f"of {len(tied)} {kind} GPUs {what}", "give a design file, or captures of more nodes")


def _silent(rule: Rule, ctx: Context, name: str, what: str) -> Iterator[Finding]:
    """GPUs of whose peers something is known and of which it is not."""
    known: Callable[[tuple[NodeView, GpuView]], bool] = lambda pair: getattr(pair[1].fact, name) is not None  # noqa: E731
    families = {pair[0].family for pair in ctx.gpus() if known(pair)}
    silent = [pair[1] for pair in ctx.gpus() if pair[0].family in families and not known(pair)]
    if silent:
        where = listed(gpu.node for gpu in silent)
        yield rule.unknown("site", f"{what} of {len(silent)} GPUs is not known: {where}", _COLLECT)


def _nothing(rule: Rule, ctx: Context, what: str) -> Finding:
    count = sum(len(node.gpus) for node in ctx.nodes.values())
    return rule.unknown("site", f"{count} GPUs, and no capture tells their {what}", _COLLECT)


RULES = (
    Rule("fabric/state", Severity.ERROR, "every GPU has completed its registration with the NVLink fabric", _state),
    Rule("fabric/health-mask", Severity.ERROR, "no GPU reports a condition in its fabric health mask", _health),
    Rule("fabric/cluster-uuid", Severity.ERROR, "the GPUs of a node are in one cluster UUID and clique", _cluster),
)
