"""The process kubelet: simulated trays as nodes of a real cluster, and their pods as processes of this machine.

    with Kubelet(connect("kubeconfig"), simulate(racks=2), Path("state")) as kubelet:
        kubelet.lose("r01-t03")                         # the tray loses power (simulated)
        kubelet.condition("r01-t01", "NVLinkDown")      # what a node agent would say
        kubelet.restore("r01-t03")

One thread watches pods, one beats for the nodes, one acts. All it must remember is in the state folder.
"""

import contextlib
import fcntl
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rackyard.backends.kubernetes.client import Client
from rackyard.backends.kubernetes.watch import Gone, Pace, Put, Synced, Trouble, Watch, What
from rackyard.errors import ConflictError, RackyardError, UsageError
from rackyard.fabric import Site
from testbed.kubelet import api, faults, nodeobjects, processes
from testbed.kubelet.faults import Faults
from testbed.kubelet.lifecycle import Backoff
from testbed.kubelet.logserver import LogServer
from testbed.kubelet.podspec import Pod
from testbed.kubelet.runner import Card, Desk, Runner, folder_of

log = logging.getLogger(__name__)

_Event = Put[Pod] | Gone[Pod] | Synced | Trouble | threading.Event


@dataclass(frozen=True, slots=True)
class Options:
    """Times in seconds. The lease's are the real kubelet's; a node is NotReady some while after its last renewal, as
    kube-controller-manager has it (--node-monitor-grace-period).
    """

    lease: int = 40
    renew: float = 10.0
    status: float = 60.0
    tick: float = 0.1
    backoff: Backoff = field(default_factory=Backoff)
    pace: Pace = field(default_factory=Pace)


class Kubelet:
    """`with` it, or call `start` and `stop`. ConflictError when another kubelet has the state folder."""

    def __init__(self, client: Client, site: Site, state: Path, options: Options | None = None) -> None:
        self._client, self._site, self._state = client, site, state.absolute()
        self._options = options or Options()
        self._queue: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._watch = Watch(client, What("/api/v1/pods", Pod, fields="spec.nodeName!="), self._options.pace)
        self._desk = Desk(client, self._state, base_env(), self._options.backoff, self)
        self._runners: dict[str, Runner] = {}
        self._labels = nodeobjects.labels(site)
        self._faults: dict[str, Faults] = {node.name: faults.read(self._state, node.name) for node in site.nodes}
        self._began = time.time()
        self._synced = False
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._held = contextlib.ExitStack()
        self._logs: LogServer | None = None

    def __enter__(self) -> "Kubelet":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Register the nodes and begin. Unreachable, ApiError, ConflictError."""
        self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._held.enter_context(held(self._state))
        try:
            self._logs = LogServer(self._state, self._runs)
            for node in self._site.nodes:
                self._register(node.name)
        except BaseException:
            self.stop(end=False)
            raise
        for name, work in (("watch", self._listen), ("beat", self._beat), ("act", self._act)):
            thread = threading.Thread(target=work, name=f"kubelet-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, *, end: bool = True) -> None:
        """Stop; with `end` also all processes. Nothing is said of it: to the cluster it is as if the trays were off."""
        self._stopping.set()
        self._watch.stop()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        if self._logs is not None:
            self._logs.close()
        if end:
            for runner in self._runners.values():
                runner.wipe()
        processes.reap()
        self._held.close()

    def alive(self) -> bool:
        """Whether all its threads run."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    def lose(self, node: str) -> None:
        """Simulated: the tray loses power. On return its processes are dead; its heartbeat stops."""
        faults.lose(self._state, self._known(node))
        self._settle()

    def condition(self, node: str, kind: str, status: str = "True", reason: str = "Injected") -> None:
        """Simulated: the node says this condition from now on."""
        faults.condition(self._state, self._known(node), kind, status, reason)
        self._settle()

    def restore(self, node: str) -> None:
        """The tray is powered and well again."""
        faults.restore(self._state, self._known(node))
        self._settle()

    def folder(self, uid: str) -> Path:
        """What there is of a pod that runs here: its records, logs and working folder."""
        return folder_of(self._state, uid)

    # What runners ask (runner.Pool).

    def usable(self, node: str) -> tuple[int, ...]:
        return nodeobjects.usable_gpus(self._site.node(node))

    def others(self, runner: Runner) -> Iterator[Runner]:
        return (one for one in self._runners.values() if one is not runner and one.node == runner.node)

    def _known(self, node: str) -> str:
        if not self._site.has_node(node):
            raise UsageError(f"no node {node!r} in this site")
        return node

    def _settle(self) -> None:
        """Wait until the loop has gone round once."""
        done = threading.Event()
        self._queue.put(done)
        while self.alive() and not done.wait(0.1):
            pass

    def _register(self, name: str) -> None:
        if self._faults[name].lost:
            return
        node, now = self._site.node(name), time.time()
        port = self._logs.port if self._logs else None
        api.register(self._client, nodeobjects.node_object(node, self._labels[name], self._faults[name], now, port))
        api.renew(self._client, nodeobjects.lease_object(name, self._options.lease, now))

    def _runs(self, namespace: str, pod: str) -> bool:
        return any(one.key == (namespace, pod) and not one.over for one in list(self._runners.values()))

    def _listen(self) -> None:
        for event in self._watch:
            self._queue.put(event)

    def _beat(self) -> None:
        said = time.monotonic()
        while not self._stopping.wait(self._options.renew):
            full = time.monotonic() - said >= self._options.status
            said = time.monotonic() if full else said
            for node in self._site.nodes:
                if not self._faults[node.name].lost and not self._stopping.is_set():
                    self._guarded(node.name, full=full)

    def _guarded(self, name: str, *, full: bool) -> None:
        """One heartbeat; what fails now comes again soon."""
        try:
            api.renew(self._client, nodeobjects.lease_object(name, self._options.lease, time.time()))
            if full and not api.beat(
                self._client, name, nodeobjects.conditions(self._faults[name], self._began, time.time())
            ):
                self._register(name)
        except RackyardError as error:
            log.warning("heartbeat of %s: %s", name, error)

    def _act(self) -> None:
        while not self._stopping.is_set():
            waiting = self._drain()
            self._heed_faults()
            now = time.time()
            if self._synced:
                for uid, runner in list(self._runners.items()):
                    self._turn(uid, runner, now)
            processes.reap()
            for done in waiting:
                done.set()

    def _drain(self) -> list[threading.Event]:
        """Take in what was heard; returns who waits for the end of this round."""
        waiting: list[threading.Event] = []
        try:
            event = self._queue.get(timeout=self._options.tick)
            while True:
                if isinstance(event, threading.Event):
                    waiting.append(event)
                else:
                    self._hear(event)
                event = self._queue.get_nowait()
        except queue.Empty:
            return waiting

    def _hear(self, event: "Put[Pod] | Gone[Pod] | Synced | Trouble") -> None:
        match event:
            case Put(pod) if self._site.has_node(pod.spec.node_name):
                if (runner := self._runners.get(pod.metadata.uid)) is not None:
                    runner.heard(pod)
                else:
                    self._runners[pod.metadata.uid] = runner = Runner(pod, self._desk, time.time())
                    if self._faults[runner.node].lost:
                        runner.wipe()  # it may run still, from before this kubelet was started
            case Gone(_, uid) if (runner := self._runners.get(uid)) is not None:
                runner.gone, runner.again = True, 0.0
            case Synced():
                if not self._synced:
                    self._adopt()
                self._synced = True
            case Trouble(error, wait):
                log.warning("watch of pods (again in %.1f s): %s", wait, error)

    def _adopt(self) -> None:
        """Pods of the state folder that the cluster has no more: they are ended like any other that is gone."""
        for path in self._state.glob("pods/*/pod.json"):
            uid = path.parent.name
            if uid not in self._runners:
                self._runners[uid] = runner = Runner(_shadow(path), self._desk, time.time())
                runner.gone = True

    def _turn(self, uid: str, runner: Runner, now: float) -> None:
        try:
            if runner.gone:
                if runner.end():
                    del self._runners[uid]
            elif not self._faults[runner.node].lost and runner.due(now):
                runner.step(now)
        except (RackyardError, OSError) as error:
            log.warning("%s (again soon): %s", runner.pod, error)
            runner.again = now + 1.0

    def _heed_faults(self) -> None:
        for path in self._state.glob("nodes/*.json"):
            name = path.stem
            if name not in self._faults or (found := faults.read(self._state, name)) == self._faults[name]:
                continue
            was, self._faults[name] = self._faults[name], found
            if found.lost and not was.lost:
                log.warning("[simulated] %s loses power", name)
                for runner in self._runners.values():
                    if runner.node == name:
                        runner.wipe()
            elif not found.lost:
                self._guarded(name, full=True)


@contextlib.contextmanager
def held(state: Path) -> Iterator[None]:
    """Have the state folder to oneself. ConflictError when another kubelet has it."""
    lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError("another kubelet has this state folder", where=str(state)) from None
        yield
    finally:
        os.close(lock)


def base_env() -> Mapping[str, str]:
    """What lies under every container's environment in place of an image's: this Python first in the path."""
    path = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    kept = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR") if key in os.environ}
    return kept | {"PATH": os.pathsep.join(path)}


def _shadow(path: Path) -> Pod:
    """A pod of which only its folder is left."""
    card = msgspec.json.decode(path.read_bytes(), type=Card)
    containers = [{"name": found.name} for found in path.parent.iterdir() if (found / "0").is_dir()]
    meta = {"name": card.name, "namespace": card.namespace, "uid": path.parent.name}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": card.node, "containers": containers}}, Pod)
