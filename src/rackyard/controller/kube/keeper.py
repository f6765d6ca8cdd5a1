"""The health loop: nodes' signals in, cordons and Events out, and back when a node has healed.

It is fed by a loop that watches nodes (`hear`, with `follow` in a thread of its own, or `heed` and then `look`), or
runs alone (`run`). Every write carries the uid and
the version of what it was decided on, so that a node that somebody changed meanwhile is looked at again first.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rackyard.backends.kubernetes.bulk import Bulk, Write
from rackyard.backends.kubernetes.client import ApiError, Client, node_path
from rackyard.backends.kubernetes.watch import Gone, Put, Synced, Trouble, Watch, What
from rackyard.controller.kube.attribution import Layout
from rackyard.controller.kube.health import HELD, Do, Memory, Now, Options, Step, Verdict, decide
from rackyard.controller.kube.objects import FAULT, Mark, Node
from rackyard.controller.kube.signals import BEFORE, OVERRULED, Reading, read, stamp
from rackyard.errors import RackyardError
from rackyard.fabric import Site
from rackyard.faults import Fault

RETRY = 2.0
"""Seconds after which a write that failed is tried again."""
EVENTS = 32
"""Events that are written in one look. Where there are more they wait while nodes are cordoned: no cordon waits for
them.
"""
GATHER = 0.05
"""Seconds for which events are gathered when it runs alone."""
_MERGE = "application/merge-patch+json"
_EVENTS = "/api/v1/namespaces/default/events"
_NORMAL = frozenset({"Uncordoned"})
_WORDS = {
    Do.CORDON: "Cordoned",
    Do.MARK: "Marked",
    Do.UNCORDON: "Uncordoned",
    Do.OVERRULE: "Overruled",
    Do.FORGET: "Forgotten",
}
_AS_EVENT = (Do.CORDON, Do.UNCORDON)

Told = Callable[[str, str, str], None]
"""What happened: the node or the fault's subject, a word, and a line for people."""
Writer = Callable[[Sequence[Write]], Sequence[bytes | RackyardError]]
"""Sends many writes side by side and gives their answers in order, as `Bulk.send` does."""
Event = Put[Node] | Gone[Node] | Synced | Trouble


@dataclass
class Keeper:
    """The health of one site's nodes. `options` may be replaced while it runs; `write` is a `Bulk` of its own where
    none is given; `wall` gives seconds since the epoch.
    """

    client: Client
    site: Site
    options: Options
    tell: Told
    write: Writer | None = None
    wall: Callable[[], float] = time.time
    _layout: Layout = field(init=False)
    _readings: dict[str, Reading] = field(default_factory=dict)
    _memory: Memory = field(default_factory=Memory)
    _synced: bool = False
    _said: dict[str, str] = field(default_factory=dict)
    """What was told last of each fault, by signature."""
    _unsent: list[Write] = field(default_factory=list)
    """Events."""
    _trouble: str = ""
    _bulk: Bulk | None = None
    _events: "queue.Queue[Event | None]" = field(default_factory=queue.Queue)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """The site never changes."""
        self._layout = Layout.of(self.site)

    def heed(self, event: Event) -> None:
        """Take in what happened to a node. Nothing is decided before the first `Synced`."""
        match event:
            case Put(object=node) if self.site.has_node(node.metadata.name):
                found = read(node, self.options.tables)
                known = self._readings.get(found.node)
                # What the answer to a write told us is newer than what a watch tells of the time before.
                if known is None or known.uid != found.uid or _number(found.version) >= _number(known.version):
                    self._readings[found.node] = found
            case Gone(key=key):
                self._readings.pop(key.name, None)
            case Synced():
                self._synced = True
            case _:
                pass

    def look(self, now: float) -> float | None:
        """Decide and act, at monotonic time `now`; when to be asked again though nothing happens, None for never."""
        if not self._synced:
            return None
        was_open = self._memory.open
        verdict = decide(self._readings, self._layout, self._memory, self.options, Now(now, self.wall()))
        self._memory = verdict.memory
        events = self._faults(verdict)
        if verdict.breaker and not was_open:
            held = next(name for name, why in verdict.kept.items() if why == HELD)
            events += self._about(held, "BreakerOpen", verdict.breaker)
        elif was_open and not verdict.breaker:
            self.tell("", "BreakerClosed", "nodes are cordoned again")
        again, acted = verdict.again, False
        if self.options.mode == "act" and verdict.steps:
            done, failed = self._act(verdict.steps)
            events += done
            acted = bool(done)
            again = min(again, now + RETRY) if failed else again
        self._unsent += events if self.options.mode == "act" else []
        if not acted or len(self._unsent) <= EVENTS:
            events, self._unsent = self._unsent[:EVENTS], self._unsent[EVENTS:]
            if events:
                self._send(events)
        again = now if self._unsent else again
        return None if again == float("inf") else again

    def run(self) -> None:
        """With a watch of its own, until `stop`."""
        watch = Watch(self.client, What("/api/v1/nodes", Node))
        thread = threading.Thread(target=self._feed, args=(watch,), daemon=True)
        thread.start()
        try:
            self.follow()
        finally:
            watch.stop()
            thread.join(timeout=5)

    def hear(self, event: Event) -> None:
        """What another's watch of the nodes says, for `follow`; from any thread. Its trouble is the other's to tell."""
        if not isinstance(event, Trouble):
            self._events.put(event)

    def follow(self) -> None:
        """Look whenever something was heard or is due, until `stop`; what is heard before is not lost."""
        again: float | None = None
        try:
            while not self._stopped.is_set():
                self._take(again)
                again = self.look(time.monotonic())
        finally:
            self.close()

    def stop(self) -> None:
        """End `run` or `follow` after the round under way; from any thread."""
        self._stopped.set()
        self._events.put(None)

    def close(self) -> None:
        """End the connections of its own."""
        if self._bulk is not None:
            self._bulk.close()
            self._bulk = None

    # --- running alone ----------------------------------------------------------------------------------------

    def _feed(self, watch: Watch[Node]) -> None:
        for event in watch:
            self._events.put(event)

    def _take(self, again: float | None) -> None:
        """Wait for an event, or until `again`; take in what comes shortly after it."""
        wait = None if again is None else max(0.0, again - time.monotonic())
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=wait)
            until = time.monotonic() + GATHER
            while True:
                if isinstance(event, Trouble):
                    self.tell("", "Trouble", str(event.error))
                elif event is not None:
                    self.heed(event)
                event = self._events.get(timeout=max(0.0, until - time.monotonic()))

    # --- telling ----------------------------------------------------------------------------------------------

    def _faults(self, verdict: Verdict) -> list[Write]:
        """Tell each fault once, and again when it changes what is not done about it."""
        events: list[Write] = []
        over = self._said.keys() - {fault.signature for fault in verdict.faults}
        for signature in over:
            del self._said[signature]
        for fault in verdict.faults:
            kept = {name: verdict.kept[name] for name in fault.nodes if name in verdict.kept}
            why = _kept(kept, self.options.mode)
            if self._said.get(fault.signature) == why:
                continue
            self._said[fault.signature] = why
            line = told(fault.summary, why, fault.evidence, fault.echoes)
            if self.options.mode == "observe" or (kept and not verdict.breaker):
                events += self._about(next(iter(kept), fault.nodes[0]), "FaultSeen", line, fault)
            else:
                self.tell(fault.subject, "FaultSeen", line)
        return events

    def _about(self, node: str, word: str, line: str, fault: Fault | None = None) -> list[Write]:
        """Tell it, and the Event on the node that says the same."""
        self.tell(fault.subject if fault else node, word, line)
        reading = self._readings.get(node)
        return [event_of(reading, word, line, self.wall())] if reading else []

    # --- acting -----------------------------------------------------------------------------------------------

    def _act(self, steps: Sequence[Step]) -> tuple[list[Write], bool]:
        """Do all steps at once; the Events about them, and whether any has to be done again."""
        answers = self._send([patch_of(step) for step in steps])
        events: list[Write] = []
        failed: list[RackyardError] = []
        missed = 0
        for step, answer in zip(steps, answers, strict=True):
            if isinstance(answer, RackyardError):
                if isinstance(answer, ApiError) and answer.status.code in (404, 409):
                    missed += 1  # changed or gone: the watch tells how
                else:
                    failed.append(answer)
                continue
            with contextlib.suppress(msgspec.MsgspecError):
                self.heed(Put(msgspec.json.decode(answer, type=Node)))
            line = told(step.why, "", step.evidence, ())
            self.tell(step.on.node, _WORDS[step.do], line)
            if step.do in _AS_EVENT:
                events.append(event_of(step.on, _WORDS[step.do], line, self.wall()))
        self._say_trouble(f"{len(failed)} of {len(steps)} nodes could not be written: {failed[0]}" if failed else "")
        return events, bool(failed or missed)

    def _say_trouble(self, line: str) -> None:
        if line and line != self._trouble:
            self.tell("", "Trouble", line)
        self._trouble = line

    def _send(self, writes: Sequence[Write]) -> Sequence[bytes | RackyardError]:
        if self.write is not None:
            return self.write(writes)
        if self._bulk is None:
            self._bulk = Bulk(self.client)
        return self._bulk.send(writes)


def told(summary: str, why: str, evidence: Sequence[str], echoes: Sequence[str]) -> str:
    """One line for people: what, what is not done about it, and what it stands on."""
    parts = [summary, why, *evidence, *(f"echo: {echo}" for echo in echoes)]
    return "; ".join(part for part in parts if part)


def patch_of(step: Step) -> Write:
    """The PATCH of a step; refused (409) where the node is another one, or changed since."""
    notes: dict[str, str | None]
    match step.do:
        case Do.CORDON | Do.MARK:
            notes = {FAULT: _json(step.mark)}
        case Do.UNCORDON:
            notes = {FAULT: None, OVERRULED: None, BEFORE: _json(step.on.mark)}
        case Do.OVERRULE:
            marks = {(each.cause, each.subject): each for each in (*step.on.overruled, step.mark) if each}
            notes = {FAULT: None, OVERRULED: msgspec.json.encode([*marks.values()]).decode()}
        case Do.FORGET:
            notes = {OVERRULED: None}
    meta = {"uid": step.on.uid, "resourceVersion": step.on.version, "annotations": notes}
    body: dict[str, Any] = {"metadata": meta}
    if step.do in (Do.CORDON, Do.UNCORDON):
        body["spec"] = {"unschedulable": True if step.do is Do.CORDON else None}
    return Write("PATCH", node_path(step.on.node), body, _MERGE)


def event_of(on: Reading, reason: str, message: str, now: float) -> Write:
    """A core/v1 Event about a node, in namespace default as those of other controllers; of 1,024 bytes at most."""
    time_ = stamp(now)
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{on.node[:240]}.", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": on.node, "uid": on.uid},
        "reason": reason,
        "message": message.encode()[:1024].decode(errors="ignore"),
        "type": "Normal" if reason in _NORMAL else "Warning",
        "source": {"component": "rackyard"},
        "firstTimestamp": time_,
        "lastTimestamp": time_,
        "count": 1,
    }
    return Write("POST", _EVENTS, body, stubborn=False)


def _kept(kept: Mapping[str, str], mode: str) -> str:
    if mode == "observe":
        return "nothing is done (mode observe)"
    reasons: dict[str, list[str]] = {}
    for name, why in kept.items():
        reasons.setdefault(why, []).append(name)
    return "; ".join(f"left alone, as {why}: {', '.join(names)}" for why, names in reasons.items())


def _json(mark: Mark | None) -> str | None:
    return None if mark is None else msgspec.json.encode(mark).decode()


def _number(version: str) -> int:
    """Resource versions count up (Kubernetes API concepts, "Resource versions", since 1.35); 0 for no number."""
    return int(version) if version.isdecimal() else 0
