"""The environment of a rank, the same whether it is forked or started fresh."""

from collections.abc import Mapping

from rackyard.worker import ATTEMPT_ENV, JOB_ENV, RESUME_ENV, SOCKET_ENV

_DEFAULTS = {
    # Ranks share a machine; a pool of threads in each would also make the warm parent unfit to fork.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # SIGABRT then makes Python write the stacks of all its threads, and logs are seen live.
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
}
_PER_LAUNCH = ("RACKYARD_", "MASTER_", "NCCL_", "TORCHELASTIC_", "TORCH_NCCL_")
_PER_RANK = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
)


def job_env(
    base: Mapping[str, str],
    own: Mapping[str, str],
    *,
    job: str,
    attempt: int,
    socket: str,
) -> dict[str, str]:
    """The job's environment `own` over the agent's `base`, and what Rackyard adds."""
    outer = {name: value for name, value in base.items() if name != RESUME_ENV}
    said = {SOCKET_ENV: socket, JOB_ENV: job, ATTEMPT_ENV: str(attempt)}
    return {**_DEFAULTS, **outer, **own, **said}


def import_env(env: Mapping[str, str]) -> dict[str, str]:
    """The part of a job's environment that interpreters, loaders and imports may have read.

    What is left out is read when a process group is made, or by Rackyard's own calls: it may differ from
    attempt to attempt, and the warm parent of the last one still serves.
    """
    return {k: v for k, v in env.items() if k not in _PER_RANK and not k.startswith(_PER_LAUNCH)}
