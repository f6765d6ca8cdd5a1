"""Holds a Lease while it can, so that of several controllers one acts: the acting side of `election`.

with Candidate(connect_for(Timing()), Place("rackyard-system", "rackyard-controller"), identity()) as lease:
    if lease.wait(5.0):        # held within 5 s
        while lease.held:      # asked before every act
            ...
"""

import platform
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from rackyard.backends.kubernetes.client import JSON, ApiError, Client, Retry, connect
from rackyard.backends.kubernetes.election import (
    Acquire,
    Lease,
    Renew,
    Seen,
    Timing,
    Wait,
    decide,
    observe,
    released,
    spec_of,
)
from rackyard.errors import RackyardError

_GROUP = "coordination.k8s.io/v1"
_NEVER = float("-inf")


def clock() -> float:
    """Seconds that pass also while the machine sleeps, where the system counts them: a holder that slept has lost."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def identity() -> str:
    """A name that no other candidate has, nor we after a restart: host name and a random UUID, as client-go's users
    make it. In a pod the host name is the pod's name.
    """
    return f"{platform.node()}_{uuid.uuid4()}"


def connect_for(timing: Timing, kubeconfig: str | None = None, context: str | None = None) -> Client:
    """A connection for a lease alone: never waits for a place in a pool, tries once, and half the deadline at most, so
    that a second try may reach another API server. Errors as `connect`.
    """
    client = connect(kubeconfig, context, Retry(tries=1))
    client.http.timeout = timing.deadline / 2
    return client


@dataclass(frozen=True, slots=True)
class Place:
    """Where the Lease is."""

    namespace: str
    name: str

    @property
    def folder(self) -> str:
        return f"/apis/{_GROUP}/namespaces/{quote(self.namespace, safe='')}/leases"

    @property
    def path(self) -> str:
        return f"{self.folder}/{quote(self.name, safe='')}"


@dataclass(frozen=True, slots=True)
class Heard:
    """What is called when it changes hands, from the threads of the candidate: be quick. `trouble` is told an error
    once, until another or none comes.
    """

    held: Callable[[], None] = lambda: None
    lost: Callable[[], None] = lambda: None
    trouble: Callable[[str], None] = lambda _line: None


class Candidate:
    """Tries for a Lease from `start` to `release`, in threads of its own; lost, it tries again.

    `held` turns false by itself when a renewal is overdue, also while a request hangs; `lost` is then called.
    """

    def __init__(
        self,
        client: Client,
        place: Place,
        me: str,
        timing: Timing | None = None,
        heard: Heard | None = None,
        now: Callable[[], float] = clock,
    ) -> None:
        self._client = client
        self._place = place
        self._me = me
        self._timing = timing or Timing()
        self._heard = heard or Heard()
        self._now = now
        self._seen: Seen | None = None
        self._raw: dict[str, Any] = {}
        self._until = _NEVER
        self._tenure = 0
        """How often it came to be held: also a change that is over before anybody could be told of it counts."""
        self._error = ""
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._threads: tuple[threading.Thread, ...] = ()

    def __enter__(self) -> "Candidate":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether it is ours now, with time left before others could take it."""
        return self._now() < self._until

    @property
    def holder(self) -> str:
        """Who holds it by what was last read; empty for nobody."""
        seen = self._seen
        return (seen.lease.spec.holder_identity or "") if seen else ""

    def start(self) -> None:
        """Begin to try. Once for each candidate."""
        assert not self._threads, "started twice"
        self._threads = tuple(
            threading.Thread(target=work, name=f"lease-{what}", daemon=True)
            for what, work in (("try", self._try), ("watch", self._watch))
        )
        for thread in self._threads:
            thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is held; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.held or self._stop.is_set(), timeout) and self.held

    def release(self) -> None:
        """Stop trying and, where it is ours, give it back, so that another need not wait. Stop acting before. `lost`
        is not called. What the API server says to that is not raised: the lease then runs out by itself.
        """
        self._stop.set()
        self._end()
        for thread in self._threads:
            thread.join(self._timing.deadline)
        self._end()
        if self._seen and self._seen.lease.spec.holder_identity == self._me:
            try:
                self._put(released(self._seen.lease.spec, datetime.now(UTC)))
            except RackyardError as error:
                self._trouble(error)

    # --- trying ------------------------------------------------------------------------------------------------

    def _try(self) -> None:
        while not self._stop.is_set():
            try:
                self._once()
                self._error = ""
            except RackyardError as error:
                self._trouble(error)
            self._stop.wait(self._timing.retry)

    def _once(self) -> None:
        if not self.held:  # else we know what is there, and a write finds out if that is wrong
            self._read()
        act = decide(self._seen, self._me, self._now(), self._timing.duration)
        if isinstance(act, Wait):
            return
        before = self._seen.lease.spec if self._seen else Lease().spec
        spec = spec_of(act, before, self._me, self._timing.duration, datetime.now(UTC))
        sent = self._now()  # the server may have counted from as early as this
        try:
            self._write(act, spec)
        except ApiError as error:
            if error.status.code not in (404, 409):
                raise
            if error.status.code == 404 and self._seen is None:
                namespace = self._place.namespace
                fix = f"kubectl create namespace {namespace}, or give --lease-namespace or --no-lease"
                raise RackyardError(f"there is no namespace {namespace} for the lease", fix=fix) from None
            self._read()  # somebody else was quicker, or it was deleted: the next try starts from what is there
            return
        if not self._stop.is_set():
            self._hold(sent + self._timing.deadline)

    def _write(self, act: Acquire | Renew, spec: dict[str, Any]) -> None:
        if self._seen is not None:
            self._put(spec)
            return
        body = {
            "apiVersion": _GROUP,
            "kind": "Lease",
            "metadata": {"name": self._place.name, "namespace": self._place.namespace},
            "spec": spec,
        }
        self._take_in(self._client.post(self._place.folder, {}, body))

    def _put(self, spec: dict[str, Any]) -> None:
        """The object as it was read with our fields in it: its resourceVersion makes a lost race a 409."""
        whole = {**self._raw, "spec": {**self._raw.get("spec", {}), **spec}}
        self._take_in(self._client.put(self._place.path, {}, whole))

    def _read(self) -> None:
        try:
            answer = self._client.get(self._place.path, {}, JSON)
        except ApiError as error:
            if error.status.code != 404:
                raise
            self._seen, self._raw = None, {}
        else:
            self._take_in(answer)
        if self.holder != self._me:  # taken from us by hand: deleted, or written over
            self._end()

    def _take_in(self, answer: bytes) -> None:
        try:
            raw, lease = msgspec.json.decode(answer), msgspec.json.decode(answer, type=Lease)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RackyardError(
                "the API server's lease can't be read", where=self._place.path, why=str(error)
            ) from None
        self._raw, self._seen = raw, observe(self._seen, lease, self._now())

    # --- telling -----------------------------------------------------------------------------------------------

    def _hold(self, until: float) -> None:
        with self._changed:
            self._tenure += not self.held
            self._until = until
            self._changed.notify_all()

    def _end(self) -> None:
        with self._changed:
            self._until = _NEVER
            self._changed.notify_all()

    def _watch(self) -> None:
        """Tells what changed, and that the time is over, also while the other thread waits for an answer."""
        told = 0  # the tenure that was told of and is not told to be over
        while not self._stop.is_set():
            with self._changed:
                while not self._stop.is_set() and (tenure := self._tenure if self.held else 0) == told:
                    self._changed.wait(max(0.01, min(1.0, self._until - self._now())) if told else None)
            if self._stop.is_set():
                return
            if told:
                self._heard.lost()
            told = tenure
            if told:
                self._heard.held()

    def _trouble(self, error: RackyardError) -> None:
        if (line := str(error)) != self._error:
            self._error = line
            self._heard.trouble(line)
