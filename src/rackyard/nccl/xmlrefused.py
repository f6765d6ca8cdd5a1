"""How the readers of topology files say that NCCL would not go on."""

from rackyard.errors import RackyardError, Where


class TopologyRefused(RackyardError):
    """NCCL ends here: communicator init fails, or the process crashes.

    `nccl_result` is the return code by name ("" for a crash), `nccl_message` what NCCL logs as WARN, `stage` the step
    of NCCL's load that ends, and `crashes` says that the process dies instead of getting an error back.
    """

    def __init__(
        self,
        nccl_message: str,
        *,
        nccl_result: str = "ncclInternalError",
        stage: str = "parse",
        where: Where | None = None,
        fix: str | None = None,
        crashes: bool = False,
    ) -> None:
        ends = "NCCL crashes on this topology" if crashes else f"NCCL refuses this topology: {nccl_result}"
        super().__init__(ends, where=where, why=printable(nccl_message) or None, fix=fix)
        self.nccl_message = nccl_message
        self.nccl_result = "" if crashes else nccl_result
        self.stage = stage
        self.crashes = crashes


def printable(text: str, limit: int = 160) -> str:
    """Text out of a file made fit to be shown: control characters escaped, long text cut."""
    shown = "".join(char if " " <= char <= "~" else repr(char)[1:-1] for char in text[: limit + 1])
    return shown if len(text) <= limit else shown[:limit] + "..."
