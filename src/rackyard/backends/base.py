"""What every backend can do: start, stop, observe, and nothing else. No database, no policy, no retries."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from rackyard.faults.observations import Observation
from rackyard.launch.plan import LaunchPlan

Cursor = Mapping[str, int]
"""How far each node's journal has been read. The caller stores it together with what it made of the
observations, so that a caller killed in between reads them again and none is lost."""


class Backend(Protocol):
    """Starts, stops and observes attempts. Every call may be repeated without harm."""

    def prepare(self, nodes: Iterable[str], plan: LaunchPlan) -> None:
        """Bring up the agents of `nodes` and warm them for the job."""

    def launch(self, plan: LaunchPlan) -> None:
        """Start the attempt's ranks. Ranks of this attempt that were started before are left alone."""

    def stop(self, job: str, attempt: int, *, grace: float, stacks: bool = False) -> None:
        """End the attempt's ranks: SIGTERM, after `grace` seconds SIGKILL. Returns at once; exits are observed.

        With `stacks` the ranks are first made to write their Python stacks."""

    def observe(self, cursor: Cursor, timeout: float) -> tuple[list[Observation], Cursor]:
        """What happened since `cursor`, oldest first; waits up to `timeout` seconds for something."""

    def nodes(self) -> Mapping[str, bool]:
        """The nodes that have an agent, and whether it answers."""

    def release(self, nodes: Iterable[str]) -> None:
        """Let go of nodes: their agents, with nothing left to run, end themselves."""

    def revive(self, node: str) -> None:
        """Take a node that was lost back into use."""
