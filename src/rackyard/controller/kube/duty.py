"""The two loops of a controller side by side, on one watch of nodes, while a lease says that it is our turn."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rackyard.backends.kubernetes.client import JSON, ApiError, Client, Unreachable
from rackyard.backends.kubernetes.lease import Candidate, Heard, Place, identity
from rackyard.controller.kube.acts import PLANS
from rackyard.controller.kube.health import Options
from rackyard.controller.kube.keeper import Keeper
from rackyard.controller.kube.loop import KubeController, Told
from rackyard.controller.kube.once import Once
from rackyard.controller.kube.records import RETRY
from rackyard.controller.kube.waker import Waker
from rackyard.fabric import Site


@dataclass
class Duty:
    """Places gangs and keeps nodes until `stop`. With `act` off it tells what it would do, and writes nothing, no Event
    either. `health` is None where nodes are not to be judged.
    """

    client: Client
    site: Site
    tell: Told
    act: bool = True
    health: Options | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)
    _turn: "KubeController | None" = None

    def __post_init__(self) -> None:
        """All that is told goes through one place, so that trouble which lasts is told once."""
        self.tell = Once(self.tell)

    def run(self, ours: Callable[[], bool] = lambda: True) -> None:
        """Both loops, until `stop`; not at all where the turn is not `ours` any more."""
        keeper = None if self.health is None else self._keeper(self.health)
        waker = Waker(self.client, self.tell, self.act)
        hear = None if keeper is None else keeper.hear
        loop = KubeController(self.client, self.site, self.tell, self.act, nodes=hear)
        self._turn = loop
        beside = [waker.run] if keeper is None else [waker.run, keeper.follow]
        over = threading.Event()
        threads = [threading.Thread(target=self._again_and_again, args=(each, over), daemon=True) for each in beside]
        for thread in threads:
            thread.start()
        try:
            if not self._stopped.is_set() and ours():  # asked after whoever loses it knows whom to stop
                loop.run()
        finally:
            self._turn = None
            over.set()
            waker.stop()
            if keeper is not None:
                keeper.stop()
            for thread in threads:
                thread.join()

    def _keeper(self, health: Options) -> Keeper:
        options = health if self.act else replace(health, mode="observe")
        return Keeper(self.client, self.site, options, self.tell)

    def _again_and_again(self, work: Callable[[], None], over: threading.Event) -> None:
        """What nobody thought of is said, and the work goes on until the turn is over: without it, no node would be
        cordoned any more.
        """
        while True:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - it is said
                self.tell("", "Trouble", f"{type(error).__name__}: {error}")
            if over.wait(RETRY):
                return

    def run_in_turns(self, client: Client, place: Place) -> None:
        """As `run`, whenever the lease at `place` is ours. `client` is a connection for the lease alone. ApiError or
        UsageError where our credentials are not accepted at the start, as `run` has it; later they are waited for.
        """
        _greet(client)
        heard = Heard(lost=self._lost, trouble=lambda line: self.tell("", "Trouble", line))
        with Candidate(client, place, identity(), heard=heard) as lease:
            told = ""
            while not self._stopped.is_set():
                if not lease.wait(1.0):
                    if lease.holder and lease.holder != told:
                        told = lease.holder
                        self.tell("", "Waiting", f"{told} holds the lease {place.namespace}/{place.name}")
                    continue
                self.tell("", "Leading", f"lease {place.namespace}/{place.name}")
                self.run(lambda: lease.held)

    def stop(self) -> None:
        """End after the round under way; from any thread."""
        self._stopped.set()
        self._lost()

    def _lost(self) -> None:
        turn = self._turn
        if turn is not None:
            turn.stop()


def _greet(client: Client) -> None:
    """An API server that can't be reached yet is the lease's to tell, which tries on."""
    with contextlib.suppress(Unreachable):
        try:
            client.get(PLANS, {}, JSON)
        except ApiError as error:
            if error.status.code == 401:
                raise
