"""Our systems and paths in the form of the results of NCCL's own code (schema 1 of the corpus)."""

from typing import Any

from rackyard.nccl.cpus import ranges
from rackyard.nccl.linktypes import GIN, GPU, LINK_TYPES, NET, NODE_TYPES, PATH_TYPES, RMA
from rackyard.nccl.paths_compute import Sized
from rackyard.nccl.paths_summary import all_direct_nvlink, all_nvlink, gdr_modes, local_nets, split_nvlink
from rackyard.nccl.topology import CpuNode, DevNode, GpuNode, NetNode, PciNode, System

Document = dict[str, Any]


def system_form(system: System) -> Document:
    """A system in the form of the results."""
    nodes = system.nodes
    alive = {kind: [nodes[n] for n in system.of_type[place]] for place, kind in enumerate(NODE_TYPES)}
    form: Document = {
        "counts": {kind: len(found) for kind, found in alive.items()},
        "hosts": [f"0x{number:x}" for number in system.host_hashes],
        "systemId": system.system_id,
        "gpus": [_gpu(system, n) for n in alive["GPU"] if isinstance(n, GpuNode)],
        "devs": [
            {"id": n.name, "dev": n.dev, "sm": n.sm, "nGpus": n.n_gpus, "device": f"{n.device:x}"}
            for n in alive["DEV"]
            if isinstance(n, DevNode)
        ],
        "cpus": [
            {"id": n.name, "arch": n.arch, "vendor": n.vendor, "model": n.model, "affinity": ranges(n.affinity)}
            for n in alive["CPU"]
            if isinstance(n, CpuNode)
        ],
        "pcis": [{"id": n.name, "device": f"{n.device:x}"} for n in alive["PCI"] if isinstance(n, PciNode)],
        "nets": [_net(n) for n in alive["NET"] if isinstance(n, NetNode)],
    }
    for key, kind in (("nics", "NIC"), ("nvs", "NVS"), ("gins", "GIN"), ("rmas", "RMA")):
        form[key] = [node.name for node in alive[kind]]
    form["links"] = [
        [node.name, nodes[system.link_to[n]].name, LINK_TYPES[system.link_type[n]], system.link_bw[n]]
        for found in alive.values()
        for node in found
        for n in system.links[node.index]
    ]
    return form


def _gpu(system: System, gpu: GpuNode) -> Document:
    form: Document = {"id": gpu.name, "dev": gpu.dev, "rank": gpu.rank, "sm": gpu.sm, "gdr": gpu.gdr}
    if system.has_dev:
        form |= {"mlopart": gpu.mlopart, "parent": system.nodes[gpu.parent].name}
    return form


def _net(net: NetNode) -> Document:
    return {
        "id": net.name,
        "dev": net.dev,
        "bw": net.bw,
        "latency": net.latency,
        "port": net.port,
        "asic": f"0x{net.asic:x}",
        "gdr": net.gdr,
        "coll": net.coll,
        "maxChannels": net.max_channels,
        "rail": net.rail,
        "plane": net.plane,
    }


def paths_form(system: System) -> dict[str, dict[str, list[Any]]]:
    """All paths from GPUs and network devices in the form of the results."""
    form: dict[str, dict[str, list[Any]]] = {}
    for kind in (GPU, NET, GIN, RMA):
        for number in system.of_type[kind]:
            cells = form[system.nodes[number].name] = {}
            for rows, targets in zip(system.rows, system.of_type, strict=True):
                row = rows[number] if rows else None
                if row is not None:
                    for place, target in enumerate(targets):
                        cell = [PATH_TYPES[row.type[place]], row.bw[place], len(row.links[place])]
                        cells[system.nodes[target].name] = cell
    return form


def limits_form(view: Sized) -> Document:
    """Limits and flags of one size of communicator."""
    system = view.system
    return {
        "nRanks": view.comm.n_ranks,
        "inter": system.inter,
        "gpusAfterTrim": system.count(GPU),
        "maxBw": system.max_bw,
        "totalBw": system.total_bw,
        "allNvLink": int(all_nvlink(system)),
        "allDirectNvLink": int(all_direct_nvlink(system)),
        "splitNvLink": int(split_nvlink(system)),
    }


def local_gpu_form(system: System) -> list[list[Any]]:
    """Per NET the GPU that serves it, or None."""
    gpus = system.gpus()
    return [[net.name, gpus[net.local_gpu].name if net.local_gpu >= 0 else None] for net in system.nets()]


def gdr_form(system: System) -> list[list[Any]]:
    """Rank, NET, modes for receive and send where GPUDirect RDMA is on."""
    gpus, nets = system.gpus(), system.nets()
    return [[gpus[gpu].rank, nets[net].name, *modes] for gpu, net, *modes in gdr_modes(system)]


def local_nets_form(system: System) -> list[list[Any]]:
    """Per rank the NETs that it uses, by channel."""
    nets = system.nets()
    if not nets:
        return []
    chosen = local_nets(system)
    return [[gpu.rank, *(nets[net].name for net in own)] for gpu, own in zip(system.gpus(), chosen, strict=True)]
