"""The environment of a job and of each of its ranks: torchrun's variables, NCCL's, and Rackyard's own.

A script written for torchrun runs unchanged. Values are text, as an environment wants them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rackyard.placement import Placement, Seat
from rackyard.worker import ATTEMPT_ENV, JOB_ENV, RESUME_ENV


@dataclass(frozen=True, slots=True)
class Gang:
    """What all ranks of an attempt have in common."""

    job: str
    attempt: int
    attempts_allowed: int
    master: str
    """Address of rank 0's node."""
    port: int
    """Rendezvous port on it."""
    resume_step: int | None
    topology_dir: str
    """Folder of the NCCL topology files, `<node>.xml` for each node."""


def job_environment(gang: Gang, spec: Mapping[str, Any]) -> dict[str, str]:
    """What is the same for every rank and every attempt, so that a warm parent can be started with it.

    `spec` is the job file as data. The user's own variables win, except for those that say what job this is.
    """
    user = {str(name): str(value) for name, value in (spec.get("env") or {}).items()}
    checkpoint = spec.get("checkpoint") or {}
    return {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        **user,
        JOB_ENV: gang.job,
        **{f"RACKYARD_CHECKPOINT_{key.upper()}": str(checkpoint[key]) for key in sorted(checkpoint)},
        "TORCHELASTIC_RUN_ID": gang.job,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_MAX_RESTARTS": str(gang.attempts_allowed - 1),
    }


@dataclass(frozen=True, slots=True)
class Tray:
    """What ranks of one node know of their node and of the gang around it."""

    seats: tuple[Seat, ...]
    """The node's own, in rank order."""
    index: int
    """Its place among the gang's nodes, from 0."""
    nodes: int
    world: int
    rack: str = ""
    """Empty where it is not known."""


def rank_environment(seat: Seat, placement: Placement, gang: Gang, racks: Mapping[str, str]) -> dict[str, str]:
    """What one rank needs beyond the job's environment. `racks` gives the rack of each node."""
    nodes = list(dict.fromkeys(other.node for other in placement.seats))
    beside = tuple(other for other in placement.seats if other.node == seat.node)
    tray = Tray(beside, nodes.index(seat.node), len(nodes), len(placement.seats), racks[seat.node])
    return seat_environment(seat, tray, gang)


def seat_environment(seat: Seat, tray: Tray, gang: Gang) -> dict[str, str]:
    """The same, from what can be known on the rank's own node."""
    world = str(tray.world)
    return {
        "RANK": str(seat.rank),
        "WORLD_SIZE": world,
        "LOCAL_RANK": str(seat.local_rank),
        "LOCAL_WORLD_SIZE": str(len(tray.seats)),
        "GROUP_RANK": str(tray.index),
        "GROUP_WORLD_SIZE": str(tray.nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(seat.rank),
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": gang.master,
        "MASTER_PORT": str(gang.port),
        "TORCHELASTIC_RESTART_COUNT": str(gang.attempt - 1),
        "CUDA_VISIBLE_DEVICES": ",".join(str(other.gpu) for other in tray.seats),
        "NCCL_TOPO_FILE": f"{gang.topology_dir}/{seat.node}.xml",
        "NCCL_IB_HCA": _hcas(tray.seats),
        ATTEMPT_ENV: str(gang.attempt),
        RESUME_ENV: "" if gang.resume_step is None else str(gang.resume_step),
        "RACKYARD_NODE": seat.node,
        "RACKYARD_RACK": tray.rack,
        "RACKYARD_RAIL": str(seat.rail),
        "RACKYARD_SEGMENT": str(seat.segment),
    }


def _hcas(seats: Iterable[Seat]) -> str:
    """The node's HCAs by exact name, in the order of the local ranks (`=` stops NCCL from matching prefixes)."""
    return "=" + ",".join(dict.fromkeys(seat.nic for seat in seats))
