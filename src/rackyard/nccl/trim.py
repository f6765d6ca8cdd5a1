"""Takes GPUs out that the communicator's own rank reaches only over the network, or not at all.

Source: NCCL 2.30.7, ``src/graph/paths.cc``.
"""

from rackyard.nccl.linktypes import GPU, PATH_NET
from rackyard.nccl.topology import GpuNode, System


def outsiders(system: System, rank: int) -> list[GpuNode]:
    """The GPUs outside the rank's domain.

    A GPU joins the lowest domain among the GPUs before it that it reaches; domains are not joined later.
    """
    gpus = system.gpus()
    domains: list[int] = []
    for place, gpu in enumerate(gpus):
        row = system.rows[GPU][gpu.index]
        kinds = row.type[:place] if row is not None else []
        domains.append(min((domains[other] for other, kind in enumerate(kinds) if kind < PATH_NET), default=place))
    own = next((domain for gpu, domain in reversed(list(zip(gpus, domains, strict=True))) if gpu.rank == rank), 0)
    return [gpu for gpu, domain in zip(gpus, domains, strict=True) if domain != own]


def remove_gpu(system: System, gpu: int) -> None:
    """Take the GPU with this node number and the links to it out of the graph; its DEV node and its NICs stay.

    Path rows are void afterwards.
    """
    system.of_type[GPU].remove(gpu)
    for number in [number for numbers in system.of_type for number in numbers]:
        links = system.links[number]
        if any(system.link_to[link] == gpu for link in links):
            system.links[number] = [link for link in links if system.link_to[link] != gpu]
