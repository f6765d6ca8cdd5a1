"""The keeper against a stand-in for the API server: what is written, when it is refused, and what is told."""

import json
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from rackyard.backends.kubernetes.bulk import Write
from rackyard.backends.kubernetes.client import ApiError, Status
from rackyard.backends.kubernetes.watch import Gone, Key, Put, Synced, Trouble
from rackyard.controller.kube.health import Do, Options, Step
from rackyard.controller.kube.keeper import EVENTS, RETRY, Keeper, patch_of
from rackyard.controller.kube.objects import FAULT, Mark, Node
from rackyard.controller.kube.signals import BEFORE, OVERRULED, Reading
from rackyard.errors import RackyardError
from rackyard.fabric import Site, simulate

SITE = simulate(2, 3)
WALL = 1_800_000_000.0


class Server:
    """Keeps nodes and Events; takes merge patches as the real one does, of the right uid and version only."""

    def __init__(self, site: Site) -> None:
        self.nodes = {node.name: raw(node.name) for node in site.nodes}
        self.events: list[dict[str, Any]] = []
        self.writes: list[Write] = []
        self.refuse: list[int] = []
        """Codes with which the next writes are refused."""

    def send(self, writes: Sequence[Write]) -> list[bytes | RackyardError]:
        self.writes += writes
        return [self._one(json.loads(msgspec.json.encode(write.body)), write) for write in writes]

    def _one(self, body: dict[str, Any], write: Write) -> bytes | RackyardError:
        if self.refuse:
            return refusal(self.refuse.pop(0))
        if write.method == "POST":
            self.events.append(body)
            return msgspec.json.encode(body)
        node = self.nodes[write.path.rpartition("/")[2]]
        meta = body["metadata"]
        if any(meta.pop(key) != node["metadata"][key] for key in ("uid", "resourceVersion")):
            return refusal(409)
        merge(node, body)
        node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)
        return msgspec.json.encode(node)

    def say(self, name: str, kind: str, status: str = "True", message: str = "") -> None:
        conditions = self.nodes[name]["status"]["conditions"]
        conditions[:] = [c for c in conditions if c["type"] != kind]
        conditions.append({"type": kind, "status": status, "message": message})
        self.change(name)

    def change(self, name: str) -> None:
        meta = self.nodes[name]["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """JSON Merge Patch (RFC 7396)."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def refusal(code: int) -> ApiError:
    return ApiError(f"PATCH: {code}", Status(code=code, reason="No", message="no"), where="here")


def raw(name: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "5"}
    return {"metadata": meta, "spec": {}, "status": {"conditions": [ready]}}


class Bench:
    """A keeper, its server, and what it told."""

    def __init__(self, site: Site = SITE, **options: Any) -> None:
        self.server, self.told = Server(site), list[tuple[str, str, str]]()
        chosen = Options(**{"mode": "act", "heal_after": 10.0, **options})
        self.cordoned = threading.Event()
        self.keeper = Keeper(None, site, chosen, self._tell, self.server.send, lambda: WALL)  # type: ignore[arg-type]

    def _tell(self, subject: str, word: str, line: str) -> None:
        self.told.append((subject, word, line))
        if word == "Cordoned":
            self.cordoned.set()

    def feed(self, *names: str) -> None:
        """What a watch would tell."""
        for name in names or tuple(self.server.nodes):
            self.keeper.heed(Put(msgspec.convert(self.server.nodes[name], Node)))
        self.keeper.heed(Synced())

    def words(self) -> list[tuple[str, str]]:
        return [(subject, word) for subject, word, _ in self.told]

    def fault(self, name: str, message: str = "GPU 1 is gone") -> None:
        self.server.say(name, "rackyard.io/GPUFault", message=message)
        self.feed()


def test_nothing_is_decided_before_all_nodes_are_known() -> None:
    bench = Bench()
    bench.server.say("r01-t01", "rackyard.io/GPUFault")
    bench.keeper.heed(Put(msgspec.convert(bench.server.nodes["r01-t01"], Node)))
    assert bench.keeper.look(0.0) is None and not bench.server.writes
    bench.feed()
    bench.keeper.look(0.0)
    assert bench.words() == [("r01-t01", "FaultSeen"), ("r01-t01", "Cordoned")]


def test_a_cordon_is_one_patch_with_the_mark_and_an_event_with_the_evidence() -> None:
    bench = Bench()
    bench.fault("r01-t02")
    assert bench.keeper.look(0.0) is None
    node = bench.server.nodes["r01-t02"]
    assert node["spec"]["unschedulable"] is True
    mark = json.loads(node["metadata"]["annotations"][FAULT])
    assert mark == {
        "cause": "tray",
        "subject": "r01-t02",
        "summary": "compute tray r01-t02: rackyard.io/GPUFault: GPU 1 is gone",
        "at": "2027-01-15T08:00:00Z",
    }
    (event,) = bench.server.events
    assert (event["reason"], event["type"], event["involvedObject"]["uid"]) == ("Cordoned", "Warning", "uid-r01-t02")
    assert "r01-t02: rackyard.io/GPUFault: GPU 1 is gone" in event["message"]
    before = len(bench.server.writes)
    bench.keeper.look(1.0)
    bench.feed()
    bench.keeper.look(2.0)
    assert len(bench.server.writes) == before, "what the answer said is known before the watch tells it"


def test_old_news_does_not_undo_what_an_answer_said() -> None:
    bench = Bench()
    bench.fault("r01-t02")
    old = msgspec.convert(bench.server.nodes["r01-t02"], Node)
    bench.keeper.look(0.0)
    bench.keeper.heed(Put(old))
    bench.keeper.look(1.0)
    assert bench.words().count(("r01-t02", "Cordoned")) == 1


def test_a_node_that_changed_meanwhile_is_looked_at_again_first() -> None:
    """Somebody cordons it between our look and our PATCH: it is theirs."""
    bench = Bench()
    bench.fault("r01-t02")
    bench.server.nodes["r01-t02"]["spec"]["unschedulable"] = True
    bench.server.change("r01-t02")
    assert bench.keeper.look(0.0) == RETRY
    assert FAULT not in bench.server.nodes["r01-t02"]["metadata"].get("annotations", {})
    bench.feed()
    bench.keeper.look(1.0)
    assert bench.words() == [("r01-t02", "FaultSeen"), ("r01-t02", "FaultSeen")]
    assert "somebody else cordoned it" in bench.told[-1][2]
    assert [event["reason"] for event in bench.server.events] == ["FaultSeen"]


def test_a_node_made_anew_under_its_name_is_not_the_one_that_was_meant() -> None:
    bench = Bench()
    bench.fault("r01-t02")
    bench.server.nodes["r01-t02"]["metadata"]["uid"] = "another"
    assert bench.keeper.look(0.0) == RETRY and "spec" not in bench.server.events


def test_a_write_that_fails_is_said_once_and_tried_again() -> None:
    bench = Bench()
    bench.fault("r01-t02")
    bench.server.refuse = [403]
    assert bench.keeper.look(0.0) == RETRY
    bench.server.refuse = [403]
    assert bench.keeper.look(2.0) == 2.0 + RETRY
    assert [word for _, word in bench.words()] == ["FaultSeen", "Trouble"]
    assert "1 of 1 nodes could not be written" in bench.told[-1][2]
    bench.keeper.look(4.0)
    assert bench.words()[-1] == ("r01-t02", "Cordoned")


def test_an_event_that_is_refused_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    one = bench.server._one
    monkeypatch.setattr(
        bench.server, "_one", lambda body, write: refusal(403) if write.method == "POST" else one(body, write)
    )
    bench.fault("r01-t02")
    bench.keeper.look(0.0)
    assert bench.words() == [("r01-t02", "FaultSeen"), ("r01-t02", "Cordoned")] and not bench.server.events
    assert "POST" in [write.method for write in bench.server.writes]


def test_observe_tells_and_writes_nothing() -> None:
    bench = Bench(mode="observe")
    bench.fault("r01-t02")
    for now in range(3):
        bench.keeper.look(float(now))
    assert bench.words() == [("r01-t02", "FaultSeen")] and "mode observe" in bench.told[0][2]
    assert not bench.server.writes


def test_what_was_overruled_before_stays_overruled() -> None:
    tray, rack = Mark("tray", "r01-t02", "a GPU", ""), Mark("rack-nvlink", "r01", "links", "")
    step = Step(Do.OVERRULE, Reading("r01-t02", overruled=(tray,)), rack, "")
    notes = patch_of(step).body["metadata"]["annotations"]
    assert [each["cause"] for each in json.loads(notes[OVERRULED])] == ["tray", "rack-nvlink"]


def test_a_node_that_healed_is_given_back_and_only_if_it_is_still_ours() -> None:
    bench = Bench()
    bench.fault("r01-t02")
    bench.fault("r02-t02")
    bench.keeper.look(0.0)
    for name in ("r01-t02", "r02-t02"):
        bench.server.say(name, "rackyard.io/GPUFault", "False")
    del bench.server.nodes["r02-t02"]["metadata"]["annotations"][FAULT]  # a human keeps it out of use
    bench.server.change("r02-t02")
    bench.feed()
    assert bench.keeper.look(1.0) == 11.0
    bench.keeper.look(11.0)
    assert "unschedulable" not in bench.server.nodes["r01-t02"]["spec"]
    (left,) = bench.server.nodes["r01-t02"]["metadata"]["annotations"].items()
    assert left[0] == BEFORE and json.loads(left[1])["subject"] == "r01-t02", "what it was marked with last"
    assert bench.server.nodes["r02-t02"]["spec"]["unschedulable"] is True
    assert bench.words()[-1] == ("r01-t02", "Uncordoned")
    assert bench.server.events[-1]["type"] == "Normal"


def test_a_cordon_that_a_human_lifts_stays_lifted() -> None:
    bench = Bench()
    bench.fault("r01-t02")
    bench.keeper.look(0.0)
    bench.server.nodes["r01-t02"]["spec"]["unschedulable"] = False
    bench.server.change("r01-t02")
    bench.feed()
    bench.keeper.look(1.0)
    notes = bench.server.nodes["r01-t02"]["metadata"]["annotations"]
    assert FAULT not in notes and [each["cause"] for each in json.loads(notes[OVERRULED])] == ["tray"]
    bench.keeper.look(100.0)
    assert bench.server.nodes["r01-t02"]["spec"]["unschedulable"] is False
    assert "somebody overruled this" in bench.told[-1][2]


def test_the_breaker_says_once_that_it_is_open_and_that_it_closed() -> None:
    bench = Bench()
    for name in ("r01-t01", "r01-t02", "r01-t03", "r02-t01"):
        bench.fault(name)
    for now in (0.0, 1.0):
        bench.keeper.look(now)
    assert [word for _, word in bench.words()].count("BreakerOpen") == 1
    assert [event["reason"] for event in bench.server.events] == ["BreakerOpen"]
    bench.keeper.options = Options(mode="act", share=1.0)
    bench.keeper.look(2.0)
    assert ("", "BreakerClosed") in bench.words()
    assert [word for _, word in bench.words()].count("Cordoned") == 4


def test_a_fault_of_a_domain_is_told_once_for_all() -> None:
    bench = Bench(settle=2.0)
    for name in ("r01-t01", "r01-t02"):
        bench.server.say(name, "rackyard.io/NVLinkDown")
    bench.feed()
    assert bench.keeper.look(0.0) == 2.0
    bench.keeper.look(2.0)
    assert bench.words() == [("r01", "FaultSeen"), *((f"r01-t0{tray}", "Cordoned") for tray in (1, 2, 3))]


def test_events_wait_for_cordons_and_all_are_written_in_the_end() -> None:
    bench = Bench(simulate(20, 18))
    for name in list(bench.server.nodes)[:70]:
        bench.server.say(name, "rackyard.io/GPUFault")
    bench.feed()
    assert bench.keeper.look(0.0) == 0.0, "again, at once"
    assert [word for _, word in bench.words()].count("Cordoned") == 70 and not bench.server.events
    assert bench.keeper.look(0.0) == 0.0 and len(bench.server.events) == EVENTS
    assert bench.keeper.look(0.0) == 0.0 and bench.keeper.look(0.0) is None
    assert len(bench.server.events) == 70


def test_it_may_follow_the_watch_of_another() -> None:
    bench = Bench()
    thread = threading.Thread(target=bench.keeper.follow)
    thread.start()
    try:
        bench.server.say("r01-t01", "rackyard.io/GPUFault")
        for node in bench.server.nodes.values():
            bench.keeper.hear(Put(msgspec.convert(node, Node)))
        bench.keeper.hear(Trouble(RackyardError("the other tells this"), 1.0))
        bench.keeper.hear(Synced())
        assert bench.cordoned.wait(60)
    finally:
        bench.keeper.stop()
        thread.join(60)
    assert not thread.is_alive() and bench.words() == [("r01-t01", "FaultSeen"), ("r01-t01", "Cordoned")]


def test_nodes_of_no_site_and_nodes_that_are_gone_are_nobody_s() -> None:
    bench = Bench()
    bench.fault("r01-t01")
    bench.keeper.heed(Gone(Key("", "r01-t01"), "uid-r01-t01"))
    other = raw("login-1")
    other["status"]["conditions"].append({"type": "rackyard.io/GPUFault", "status": "True"})
    bench.keeper.heed(Put(msgspec.convert(other, Node)))
    bench.keeper.look(0.0)
    assert not bench.told and not bench.server.writes


@pytest.mark.parametrize("length", [10, 5000])
def test_an_event_is_as_long_as_the_api_server_takes_it(length: int) -> None:
    bench = Bench()
    bench.fault("r01-t01", "é" * length)
    bench.keeper.look(0.0)
    assert all(len(event["message"].encode()) <= 1024 for event in bench.server.events) and bench.server.events
