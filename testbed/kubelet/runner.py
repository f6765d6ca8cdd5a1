"""One pod on its node: looks at its processes, does what `lifecycle.decide` says, and says how it stands."""

import logging
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rackyard.backends.kubernetes.client import Client
from rackyard.backends.kubernetes.watch import Key
from testbed.kubelet import api
from testbed.kubelet.environ import resolve
from testbed.kubelet.gpus import Given, assign, variables
from testbed.kubelet.lifecycle import TERMINAL, Act, Backoff, Seen, decide
from testbed.kubelet.podspec import GPU, Container, Pod, left_out
from testbed.kubelet.processes import Processes, write

POWER_LOST = ("NodeLost", "[simulated] the tray lost power, and all its processes with it")

_LOOK = 1.0
"""Seconds after which processes are looked at though nothing was heard of them: someone else may have ended a shim."""
_ANEW = 2.0
"""Seconds between tries of what could not be done."""

log = logging.getLogger(__name__)


class Card(msgspec.Struct, frozen=True):
    """`pod.json` in the pod's folder. `gpus` is None until it was given its GPUs, which may be none."""

    namespace: str
    name: str
    node: str
    since: float
    gpus: Given | None = None


class Pool(Protocol):
    """What a runner asks of the node."""

    def usable(self, node: str) -> tuple[int, ...]:
        """The GPU indices that may be given."""

    def others(self, runner: "Runner") -> "Iterable[Runner]":
        """The node's other pods."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What all runners share; `base` is the environment that lies under every container's."""

    client: Client
    state: Path
    base: Mapping[str, str]
    backoff: Backoff
    pool: Pool


class Runner:
    """From the first sight of a bound pod until it is gone and its processes with it."""

    def __init__(self, pod: Pod, desk: Desk, now: float) -> None:
        self.pod, self.desk = pod, desk
        self.folder = folder_of(desk.state, pod.metadata.uid)
        self.known = (self.folder / "pod.json").exists()
        if self.known:
            self.card = msgspec.json.decode((self.folder / "pod.json").read_bytes(), type=Card)
        else:
            self.card = Card(pod.metadata.namespace, pod.metadata.name, pod.spec.node_name, now)
        self.parts = {c.name: Processes(self.folder / c.name) for c in pod.spec.containers}
        self.gone = False
        self.again = 0.0
        self.over = pod.status.phase in TERMINAL and not self.running()
        self._said: dict[str, Any] = {}
        self._told: set[str] = set()
        self._refused: tuple[str, str] | None = None
        self._waits: tuple[str, str] | None = None

    @property
    def key(self) -> Key:
        return Key(self.pod.metadata.namespace, self.pod.metadata.name)

    @property
    def node(self) -> str:
        return self.card.node

    def heard(self, pod: Pod) -> None:
        """The pod has changed."""
        self.pod, self.again = pod, 0.0

    def running(self) -> bool:
        """Whether any process of it runs."""
        return any(part.ran().running for part in self.parts.values())

    def ending(self) -> bool:
        """Whether its GPUs will come free by themselves."""
        return self.gone or bool(self.pod.metadata.deletion_timestamp) or self.pod.status.phase in TERMINAL

    def held(self) -> Given:
        """The GPUs that nobody else may have now."""
        return {} if self.over or self.card.gpus is None else self.card.gpus

    def due(self, now: float) -> bool:
        """Whether there may be something to do."""
        return now >= self.again or any(part.has_ended() for part in self.parts.values())

    def wipe(self) -> None:
        """The tray lost power."""
        for part in self.parts.values():
            part.lost = POWER_LOST
            part.wipe()
        self.again = 0.0

    def end(self) -> bool:
        """End all of it, as the pod is there no more; whether that is done."""
        for part in self.parts.values():
            part.wipe()
        if self.running():
            return False
        self.over = True
        if self.folder.exists():
            kept = self.desk.state / "ended" / f"{self.card.namespace}_{self.card.name}_{self.pod.metadata.uid}"
            kept.parent.mkdir(exist_ok=True)
            shutil.rmtree(kept, ignore_errors=True)
            self.folder.rename(kept)
        return True

    def step(self, now: float) -> None:
        """Look, act and say. RackyardError when the API server can't be told: the next step says it."""
        self.again = now + _LOOK
        self._admit(now)
        step = decide(self.pod, self._seen(), now, self.desk.backoff)
        acts = [act for act in step.acts if act.what != "remove"]
        for act in acts:
            self._do(act)
        if acts:
            step = decide(self.pod, self._seen(), now, self.desk.backoff)
            # What was started or ended shows at the next look; what could not be is tried again later.
            self.again = now + _ANEW if self._waits else now
        if step.again is not None:
            self.again = min(self.again, step.again)
        self._say(step.status)
        if Act("remove") in step.acts:
            self.over = True
            api.remove(self.desk.client, self.pod)
            self.again = now + _ANEW
        self._waits = None

    def _seen(self) -> Seen:
        ran = {name: part.ran() for name, part in self.parts.items()}
        return Seen(self.card.since, ran, self._refused, self._waits)

    def _admit(self, now: float) -> None:
        """Give the pod its GPUs, before anything else and on record: a kubelet started anew must know them."""
        if self.card.gpus is not None or self.ending() or self._refused:
            return
        if self.pod.status.phase == "Running" and not self.known:
            # It ran here once, and what we knew of it is lost.
            for part in self.parts.values():
                part.fail("ContainerStatusUnknown", "the kubelet's state folder does not know this pod")
        wanted = {c.name: c.gpus() for c in self.pod.spec.containers}
        usable, others = self.desk.pool.usable(self.node), list(self.desk.pool.others(self))
        given = assign(wanted, usable, (other.held() for other in others))
        if given is None:
            message = f"node {self.node} has too few free {GPU} for {sum(wanted.values())}"
            if sum(wanted.values()) <= len(usable) and any(other.ending() and other.held() for other in others):
                self._waits = ("ContainerCreating", f"{message}: pods that have them are ending")
                self.again = now
            else:
                self._refused = (f"OutOf{GPU}", message)  # as the real kubelet puts it
            return
        self.card = msgspec.structs.replace(self.card, gpus=given)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(self.folder / "pod.json", msgspec.to_builtins(self.card))
        if parts := left_out(self.pod):
            self._tell("LeftOut", f"this kubelet runs processes, without: {', '.join(parts)}", warning=True)

    def _do(self, act: Act) -> None:
        container = next(c for c in self.pod.spec.containers if c.name == act.container)
        part = self.parts[act.container]
        if act.what == "start":
            self._start(container, part)
        elif act.what == "terminate":
            part.terminate()
            self._tell("Killing", f"Stopping container {act.container}: SIGTERM")
        else:
            part.kill()
            self._tell("Killing", f"Stopping container {act.container}: SIGKILL")

    def _start(self, container: Container, part: Processes) -> None:
        indices = (self.card.gpus or {}).get(container.name, ())
        namespace = self.pod.metadata.namespace
        found = resolve(
            self.pod,
            container,
            self.desk.base,
            variables(indices),
            lambda kind, reference: api.look(self.desk.client, namespace, kind, reference),
        )
        if found.missing:
            self._waits = ("CreateContainerConfigError", "; ".join(found.missing))
            self._tell("Failed", f"Error: {self._waits[1]}", warning=True)
            return
        if found.odd:
            self._tell("LeftOut", f"variables of container {container.name}: {', '.join(found.odd)}", warning=True)
        if not found.argv:
            part.fail("NoCommand", f"image {container.image!r} is not used, and the pod gives no command")
            return
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        part.start(found.argv, found.env, container.working_dir or str(work.absolute()))
        on = f", GPUs {', '.join(map(str, indices))}" if indices else ""
        self._tell("Started", f"Started container {container.name} as a process, its image is not used{on}", often=True)

    def _say(self, status: dict[str, Any]) -> None:
        if status and status != self._said:
            if not api.say(self.desk.client, self.pod, status):
                log.info("%s: there is no such pod any more to say its status of", self.pod)
            self._said = status
        if not self.running() and (status.get("phase") in TERMINAL or self.pod.status.phase in TERMINAL):
            self.over = True

    def _tell(self, reason: str, message: str, *, warning: bool = False, often: bool = False) -> None:
        if often or message not in self._told:
            self._told.add(message)
            log.info("%s: %s", self.pod, message)
            api.tell(self.desk.client, self.pod, reason, message, warning=warning)


def folder_of(state: Path, uid: str) -> Path:
    """A pod's folder; a uid is the API server's, and yet it becomes a path."""
    if not uid or not all(c.isalnum() or c in "-_" for c in uid):
        raise ValueError(f"{uid!r} is no uid")
    return state / "pods" / uid
