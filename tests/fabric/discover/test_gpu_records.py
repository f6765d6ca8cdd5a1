"""Which records are of one GPU, and what its health follows from: what nobody said is never healthy."""

from itertools import permutations
from typing import Any

import pytest

from rackyard.fabric.discover import merge
from rackyard.fabric.discover.merge import Discovered
from rackyard.fabric.facts import Facts, GpuFact, HostFact, NvEnd, NvPortFact, Source
from rackyard.fabric.model import Health


def told(reader: str, **values: Any) -> GpuFact:
    return GpuFact(node="n1", source=Source(reader), **values)


def found(*gpus: GpuFact) -> Discovered:
    return merge(Facts(gpus=list(gpus)))


def test_the_order_of_records_makes_no_difference() -> None:
    records = (
        told("nvml", uuid="GPU-a"),
        told("nvidia-smi-topo", index=0, links=17),
        told("sysfs", index=0, uuid="GPU-a"),
    )
    for order in permutations(records):
        (gpu,) = found(*order).site.nodes[0].gpus
        assert (gpu.uuid, gpu.index, gpu.nvlinks) == ("GPU-a", 0, 17)


def test_two_gpus_of_one_index_stay_two() -> None:
    seen = found(
        told("nvidia-smi-q", index=0, pci="0009:01:00.0", uuid="GPU-b"),
        told("nvml", index=0, pci="0008:01:00.0", uuid="GPU-a"),
    )
    assert [(gpu.index, gpu.uuid) for gpu in seen.site.nodes[0].gpus] == [(0, "GPU-a"), (1, "GPU-b")]
    (finding,) = seen.findings
    assert finding.rule == "fabric/contradiction" and "two GPUs of one index" in finding.summary


@pytest.mark.parametrize(
    ("values", "health"),
    [
        ({}, Health.UNKNOWN),
        ({"links": 18, "links_seen": 18}, Health.HEALTHY),
        ({"links": 17, "links_seen": 18}, Health.DEGRADED),
        ({"fabric_state": "completed", "fabric_status": "Insufficient Resources"}, Health.DEGRADED),
        ({"fabric_state": "completed", "fabric_status": "Success"}, Health.HEALTHY),
        ({"health_mask": 0, "health_summary": "unhealthy"}, Health.DEGRADED),
        ({"health_mask": 0x1AA, "health_summary": "limited-capacity"}, Health.DEGRADED),
        ({"health_mask": 0}, Health.UNKNOWN),
        ({"links": 0, "product": "NVIDIA GB300"}, Health.DOWN),
        ({"links": 0, "links_seen": 18}, Health.DOWN),
        ({"links": 0, "product": "NVIDIA H100 PCIe"}, Health.UNKNOWN),
        ({"links": 0, "product": "NVIDIA A10G"}, Health.UNKNOWN),
    ],
)
def test_health(values: dict[str, Any], health: Health) -> None:
    (gpu,) = found(told("nvml", index=0, **values)).site.nodes[0].gpus
    assert gpu.health is health


def test_a_gpu_without_the_links_of_its_peers_is_down() -> None:
    gpus = found(told("nccl-topology", index=0, links=18), told("nccl-topology", index=1, links=0)).site.nodes[0].gpus
    assert [gpu.health for gpu in gpus] == [Health.UNKNOWN, Health.DOWN]


def test_a_host_with_its_dns_domain_brings_its_switches_along() -> None:
    hosts = [HostFact(node="c1.example.com", source=Source("slurm-conf"), tiers=("leaf1", "core"))]
    seen = merge(Facts(hosts=hosts, gpus=[GpuFact(node="c1", source=Source("nvml"), index=0, chassis="X1")]))
    assert [leaf.rack for leaf in seen.site.leaves] == [node.rack for node in seen.site.nodes]


@pytest.mark.parametrize("states", [{"physical": "sleep"}, {"logical": "armed"}, {"logical": "newer-word"}])
def test_a_cable_is_up_by_words_that_say_so_only(states: dict[str, str]) -> None:
    gpu, switch = NvEnd("gpu", "g0", "C", 1, 1, 0), NvEnd("switch", "s0", "C", 9)
    ports = [
        NvPortFact(end=gpu, port=0, source=Source("nmx-c"), peer_uid="s0", peer_port=5, **states),
        NvPortFact(end=switch, port=5, source=Source("nmx-c"), peer_uid="g0", peer_port=0),
    ]
    (cable,) = merge(Facts(nvports=ports)).site.racks[0].nvlinks
    assert not cable.up
