"""The communicator that a topology is seen by: who its ranks are, on which hosts, and in which NVLink cliques.

Source: NCCL 2.30.7, ``src/init.cc`` and ``src/mnnvl.cc``: ranks of several hosts share NVLink if their fabric and
clique are the same.
"""

from dataclasses import dataclass, field

from rackyard.errors import UsageError, Where
from rackyard.nccl.linktypes import UNDEF
from rackyard.nccl.topology import Comm, Peer, System
from rackyard.nccl.xmlrefused import TopologyRefused

HIGHEST_RANK = 65535


@dataclass(frozen=True, slots=True)
class CommOptions:
    """What a topology file doesn't say. Keys of ``cliques`` and ``uuids`` are host indexes, by file order.

    ``rank`` is the one whose view is taken (default: the lowest of the file). ``mnnvl`` False keeps hosts apart
    although their GPUs share NVLink switches. Hosts without an entry are in one fabric and clique; uuid 0 means
    no fabric.
    """

    rank: int | None = None
    mnnvl: bool = True
    cliques: dict[int, int] = field(default_factory=dict)
    uuids: dict[int, int] = field(default_factory=dict)


def communicator(system: System, options: CommOptions) -> Comm:
    """The communicator whose ranks are the GPUs of the system.

    Raises TopologyRefused (stage ``communicator``) for a rank that no communicator has; NCCL itself writes the ranks
    into its tree and never meets one. Raises UsageError for a ``rank`` that no GPU has.
    """
    gpus = system.gpus()
    for gpu in gpus:
        if not 0 <= gpu.rank <= HIGHEST_RANK:
            where = Where(system.file, gpu.line or None) if system.file or gpu.line else None
            message = f"rank {gpu.rank} is outside 0 to {HIGHEST_RANK}"
            raise TopologyRefused(message, nccl_result="ncclInvalidUsage", stage="communicator", where=where)
    peers = {
        gpu.rank: Peer(gpu.rank, gpu.host, options.uuids.get(gpu.host, 1), options.cliques.get(gpu.host, 1))
        for gpu in reversed(gpus)
    }
    hosts = {peer.host for peer in peers.values()}
    rank = options.rank if options.rank is not None else min(peers, default=0)
    if peers and rank not in peers:
        raise UsageError(f"no GPU of the topology has rank {rank}", fix=f"ranks are {min(peers)} to {max(peers)}")
    return Comm(
        rank=rank,
        n_ranks=len(gpus),
        peers=peers,
        mnnvl=options.mnnvl and len(hosts) > 1,
        hosts_with_gpus=len(hosts),
        min_sm=min((gpu.sm for gpu in gpus), default=UNDEF),
        max_sm=max((gpu.sm for gpu in gpus), default=UNDEF),
    )
