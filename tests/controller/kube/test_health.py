"""From signals to cordons and back: attribution, debounce, circuit breaker, healing. No clock runs here."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.controller.kube.healthyard import RACK, SITE, WALL, Yard

from rackyard.controller.kube.attribution import Layout
from rackyard.controller.kube.health import HELD, MOST_DOUBLED, Do, Memory, Options
from rackyard.controller.kube.objects import Mark
from rackyard.controller.kube.signals import Doubt, Kind
from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.faults import Cause


def test_a_tray_with_a_bad_gpu_is_cordoned_at_once_with_evidence() -> None:
    yard = Yard()
    yard.say("r01-t02", Kind.GPU, "GPU 3 fell off the bus")
    (step,) = yard.look().steps
    assert step.do is Do.CORDON and step.on.node == "r01-t02" and step.mark is not None
    assert (step.mark.cause, step.mark.subject) == (Cause.TRAY, "r01-t02")
    assert step.evidence[0].startswith("r01-t02: rackyard.io/GPUFault since 20")
    assert "GPU 3 fell off the bus" in step.mark.summary
    assert not yard.look(1).steps, "once"


@pytest.mark.parametrize("kind", [Kind.NIC, Kind.SYSTEM, Kind.OUT])
def test_other_faults_of_a_tray(kind: Kind) -> None:
    yard = Yard()
    yard.say("r02-t01", kind)
    yard.look()
    assert yard.ours() == ["r02-t01"]


def test_links_down_on_one_tray_are_that_tray_s_after_a_moment_and_its_peers_are_echoes() -> None:
    yard = Yard()
    yard.say("r01-t02", Kind.NVLINK, "Xid 149 on GPU 1")
    for peer in ("r01-t01", "r01-t03", "r01-t04"):
        yard.say(peer, Kind.FABRIC, "Xid 145")
    first = yard.look()
    assert not first.steps and first.again == 1002.0
    (fault,) = yard.look(2).faults
    assert (fault.cause, fault.nodes, len(fault.echoes)) == (Cause.TRAY, ("r01-t02",), 3)
    assert yard.ours() == ["r01-t02"]
    yard.look(1000)
    assert yard.ours() == ["r01-t02"]


def test_links_down_on_two_trays_are_the_domain_s() -> None:
    yard = Yard()
    yard.say("r01-t02", Kind.NVLINK)
    assert not yard.look().steps
    yard.say("r01-t03", Kind.NVLINK)
    assert not yard.look(1.5).steps
    assert not yard.look(0.5).steps, "the second was seen for half a second only"
    found = yard.look(1.5)
    assert yard.ours() == list(RACK) and len(found.faults) == 1
    fault = found.faults[0]
    assert (fault.cause, fault.subject, fault.racks) == (Cause.RACK_NVLINK, "r01", ("r01",))
    assert fault.nodes == RACK and len(fault.evidence) == 2
    assert "2 of its 4 trays" in fault.summary


def test_a_tray_s_mark_becomes_the_domain_s_when_another_tray_follows() -> None:
    yard = Yard()
    yard.say("r01-t02", Kind.NVLINK)
    yard.look()
    yard.look(2)
    assert yard.ours() == ["r01-t02"]
    yard.say("r01-t03", Kind.NVLINK)
    yard.look(5)
    found = yard.look(2)
    assert {(step.do, step.on.node) for step in found.steps} == {
        (Do.MARK, "r01-t02"), *((Do.CORDON, name) for name in RACK if name != "r01-t02")
    }  # fmt: skip
    mark = yard.nodes["r01-t02"].mark
    assert mark is not None and mark.cause == Cause.RACK_NVLINK


def test_links_of_two_trays_that_went_down_on_two_days_are_two_faults() -> None:
    yard = Yard()
    yard.say("r01-t02", Kind.NVLINK)
    yard.look()
    yard.look(86400)
    yard.say("r01-t03", Kind.NVLINK)
    yard.look()
    found = yard.look(2)
    assert yard.ours() == ["r01-t02", "r01-t03"] and {fault.cause for fault in found.faults} == {Cause.TRAY}


@pytest.mark.parametrize(
    ("kind", "text", "cause", "subject"),
    [
        (Kind.FABRIC, "switch tray r01-s03 is down", Cause.SWITCH_TRAY, "r01-s03"),
        (Kind.NVLINK, "NVLink domain is not operational", Cause.RACK_NVLINK, "r01"),
        (Kind.SWITCH, "", Cause.SWITCH_TRAY, "r01"),
    ],
)
def test_one_tray_may_speak_for_the_domain(kind: Kind, text: str, cause: Cause, subject: str) -> None:
    yard = Yard()
    yard.say("r01-t01", kind, text)
    assert not yard.look().steps
    (fault,) = yard.look(2).faults
    assert (fault.cause, fault.subject) == (cause, subject) and yard.ours() == list(RACK)


def test_trays_that_name_the_same_switch_tray_mean_that_switch_tray() -> None:
    yard = Yard()
    switch = SITE.racks[0].switch_trays[2].name
    yard.say("r01-t01", Kind.NVLINK, f"GPU 0: links to {switch}, reason peer")
    yard.say("r01-t04", Kind.NVLINK, f"GPU 3: links to {switch}, reason peer")
    yard.look()
    (fault,) = yard.look(2).faults
    assert (fault.cause, fault.subject) == (Cause.SWITCH_TRAY, switch)


def test_a_server_that_is_its_own_domain_is_a_tray() -> None:
    yard = Yard(simulate(0, hgx=4))
    yard.say("hgx-01", Kind.SWITCH, "SXid 12028")
    yard.look()
    (fault,) = yard.look(2).faults
    assert fault.cause is Cause.TRAY and yard.ours() == ["hgx-01"]


def test_a_degraded_fabric_waits_for_its_root_and_without_one_is_believed() -> None:
    yard = Yard(root_wait=60)
    yard.say("r01-t01", Kind.FABRIC)
    yard.say("r01-t02", Kind.FABRIC)
    assert yard.look().again == 1060.0
    assert not yard.look(59).faults
    (fault,) = yard.look(1).faults
    assert fault.cause is Cause.RACK_NVLINK and "degraded" in fault.summary


def test_a_degraded_fabric_is_an_echo_of_a_tray_that_is_lost() -> None:
    yard = Yard(root_wait=60)
    for peer in RACK[1:]:
        yard.say(peer, Kind.FABRIC)
    yard.look()
    yard.say("r01-t01", Kind.LOST)  # Kubernetes takes its time
    assert not yard.look(45).faults
    (fault,) = yard.look(10).faults
    assert fault.nodes == ("r01-t01",)
    yard.look(1000)
    assert yard.ours() == ["r01-t01"]


def test_a_short_absence_is_no_fault_and_takes_its_links_with_it() -> None:
    yard = Yard(lost_after=10)
    yard.say("r01-t01", Kind.LOST)
    for kind in (Kind.NVLINK, Kind.GPU):
        yard.say("r01-t01", kind)
    for peer in RACK[1:]:
        yard.say(peer, Kind.FABRIC)
    yard.say("r01-t02", Kind.NVLINK, "links to r01-t01")
    yard.clear("r01-t02")
    assert yard.look().again == 1010.0
    assert not yard.look(9).faults
    for node in RACK:
        yard.clear(node, Kind.LOST)
    yard.clear("r01-t01", Kind.GPU)
    assert not yard.look(0.5).faults, "back, and its links take a moment"
    for node in RACK:
        yard.clear(node)
    assert not yard.look(1.5).faults and not yard.look(1000).faults and not yard.ours()


def test_a_neighbour_that_names_the_tray_that_is_away_is_an_echo() -> None:
    yard = Yard()
    yard.set("r01-t01", maintenance=math.inf)
    for peer in RACK[1:]:
        yard.say(peer, Kind.NVLINK, "no answer from r01-t01")
    yard.look()
    assert not yard.look(1000).faults


def test_a_lost_heartbeat_is_the_tray_s() -> None:
    yard = Yard(lost_after=10)
    yard.say("r01-t01", Kind.LOST, "NodeStatusUnknown: Kubelet stopped posting node status.")
    yard.look()
    (fault,) = yard.look(10).faults
    assert "Kubelet stopped posting" in fault.evidence[0] and yard.ours() == ["r01-t01"]


def test_a_whole_rack_without_heartbeat_is_one_subject() -> None:
    yard = Yard(lost_after=10)
    for node in RACK:
        yard.say(node, Kind.LOST)
    yard.look()
    (fault,) = yard.look(10).faults
    assert (fault.cause, fault.subject, fault.nodes) == (Cause.TRAY, "r01", RACK) and "power" in fault.summary
    assert yard.ours() == list(RACK)


@pytest.mark.parametrize("until", [math.inf, WALL + 2000.0])
def test_maintenance_is_no_fault_until_it_is_over(until: float) -> None:
    yard = Yard()
    yard.set("r01-t01", maintenance=until)
    yard.say("r01-t01", Kind.GPU)
    yard.say("r01-t01", Kind.NVLINK)
    found = yard.look()
    assert not found.faults
    yard.look(1000)
    assert bool(yard.ours()) is (until < math.inf)


def test_what_somebody_else_cordoned_before_is_told_and_not_touched() -> None:
    yard = Yard()
    yard.set("r01-t01", cordoned=True)
    yard.say("r01-t01", Kind.GPU)
    yard.say("r01-t01", Kind.NVLINK)
    yard.say("r01-t02", Kind.NVLINK)
    yard.look()
    found = yard.look(2)
    assert found.kept == {"r01-t01": "somebody else cordoned it"}
    assert [f.nodes for f in found.faults] == [("r01-t01",), ("r01-t02",)] and yard.ours() == ["r01-t02"]
    yard.clear("r01-t01")
    assert all(step.on.node != "r01-t01" for _ in range(5) for step in yard.look(100).steps)


def test_a_cordon_that_answers_a_fault_does_not_hide_it() -> None:
    """NVSentinel cordons a tray whose links are down; the second tray still makes it the domain's."""
    yard = Yard()
    yard.say("r01-t01", Kind.NVLINK)
    yard.set("r01-t01", cordoned=True, cordoned_at=WALL + yard.now + 1)
    yard.say("r01-t02", Kind.NVLINK)
    yard.look()
    (fault,) = yard.look(2).faults
    assert fault.cause is Cause.RACK_NVLINK and yard.ours() == list(RACK[1:])


def test_a_node_heals_when_all_is_gone_for_a_while() -> None:
    yard = Yard(heal_after=60)
    yard.say("r01-t02", Kind.GPU)
    yard.look()
    yard.clear("r01-t02")
    assert yard.look(5).again == 1065.0
    yard.set("r01-t02", doubts=(Doubt("GPUFault is Unknown", WALL + yard.now),))
    yard.look(30)
    yard.clear("r01-t02")
    assert not yard.look(50).steps, "it began anew"
    (step,) = yard.look(60).steps
    assert step.do is Do.UNCORDON and "GPUFault" in step.why and not yard.ours()


def test_what_nobody_could_tell_before_the_fault_does_not_keep_a_node_out_of_use() -> None:
    yard = Yard(heal_after=60)
    yard.say("r01-t02", Kind.LOST)
    yard.look()
    yard.look(10)
    yard.clear("r01-t02")
    yard.set("r01-t02", doubts=(Doubt("FabricDegraded is Unknown", WALL),))
    yard.look()
    assert [step.do for step in yard.look(60).steps] == [Do.UNCORDON]


def test_a_domain_heals_as_a_whole_and_not_while_one_of_its_trays_still_speaks_for_it() -> None:
    yard = Yard(heal_after=60)
    for node in RACK[:2]:
        yard.say(node, Kind.NVLINK, "NVLink domain is down")
    yard.look()
    yard.look(2)
    yard.clear("r01-t01")
    yard.look()
    yard.look(100)
    assert yard.ours() == list(RACK)
    yard.clear("r01-t02")
    yard.look()
    yard.look(60)
    assert not yard.ours()


def test_a_new_controller_knows_what_is_ours_and_waits_anew() -> None:
    yard = Yard(heal_after=60, lost_after=10)
    yard.say("r01-t02", Kind.GPU)
    yard.say("r02-t01", Kind.LOST)
    yard.look()
    yard.clear("r01-t02")
    yard.look(9)
    yard.memory, yard.now = Memory(), 5.0
    assert not yard.look().steps and yard.ours() == ["r01-t02"]
    assert [s.on.node for s in yard.look(10).steps] == ["r02-t01"]
    assert [s.do for s in yard.look(50).steps] == [Do.UNCORDON]


def test_whoever_lifts_a_cordon_has_the_last_word_on_that_fault() -> None:
    yard = Yard(heal_after=60)
    yard.say("r01-t02", Kind.GPU)
    yard.look()
    yard.set("r01-t02", cordoned=False)
    assert [s.do for s in yard.look(1).steps] == [Do.OVERRULE]
    for _ in range(3):
        found = yard.look(100)
        assert not found.steps and found.kept == {"r01-t02": "somebody overruled this"}
    yard.clear("r01-t02")
    yard.look()
    assert [s.do for s in yard.look(60).steps] == [Do.FORGET]
    yard.say("r01-t02", Kind.GPU)
    assert [s.do for s in yard.look().steps] == [Do.CORDON]


@pytest.mark.parametrize(
    ("racks", "trays", "limit"), [(70, 18, 252), (2, 18, 18), (1, 18, 9), (3, 3, 4), (1, 2, 2), (4, 1, 2)]
)
def test_how_much_of_a_site_may_be_out_of_use(racks: int, trays: int, limit: int) -> None:
    assert Options().limit(Layout.of(simulate(racks, trays))) == limit


def test_the_breaker_opens_closes_and_lets_be_what_is_cordoned() -> None:
    yard = Yard(simulate(10, 4), share=0.2)
    for number in range(1, 9):
        yard.say(f"r{number:02d}-t01", Kind.GPU)
    assert not yard.look().breaker and len(yard.ours()) == 8
    yard.say("r09-t01", Kind.GPU)
    found = yard.look(1)
    assert "9 of 40 is over the limit of 8" in found.breaker and not found.steps and found.memory.open
    assert found.again <= yard.now + 60 and len(yard.ours()) == 8
    yard.options = replace(yard.options, share=0.5)
    found = yard.look(1)
    assert not found.breaker and not found.memory.open and len(yard.ours()) == 9


def test_the_breaker_closes_when_nodes_heal_and_when_their_time_is_past() -> None:
    for window in (1e9, 100.0):
        yard = Yard(simulate(10, 4), share=0.2, window=window, heal_after=10)
        for number in range(1, 9):
            yard.say(f"r{number:02d}-t01", Kind.GPU)
        yard.look()
        yard.say("r09-t01", Kind.GPU)
        assert yard.look(1).breaker
        if window > 100:
            yard.clear("r01-t01")
        yard.look(1)
        yard.look(200)
        yard.look(1)
        assert "r09-t01" in yard.ours()


def test_four_racks_of_seventy_may_fail_at_once_and_750_trays_only_when_it_is_allowed() -> None:
    site = simulate(70, 18)
    yard = Yard(site)
    for rack in range(1, 5):
        for tray in (1, 2):
            yard.say(f"r{rack:02d}-t{tray:02d}", Kind.NVLINK)
    yard.look()
    found = yard.look(2)
    assert len(yard.ours()) == 72 and len(found.faults) == 4
    for share, expected in ((0.2, 0), (0.7, 750)):
        yard = Yard(site, share=share)
        for node in list(yard.nodes)[:750]:
            yard.say(node, Kind.GPU)
        yard.look()
        assert len(yard.ours()) == expected


@pytest.mark.parametrize("wrong", [{"share": 1.5}, {"mode": "acts"}, {"settle": -1.0}, {"heal_after": math.nan}])
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Options(**wrong)


SAYINGS = st.sampled_from([Kind.NVLINK, Kind.FABRIC, Kind.GPU, Kind.NIC, Kind.LOST, Kind.SWITCH, Kind.SYSTEM])
NODES = st.sampled_from([node.name for node in SITE.nodes])
MOVES = st.one_of(
    st.tuples(st.just("say"), NODES, SAYINGS),
    st.tuples(st.just("clear"), NODES, st.none()),
    st.tuples(st.just("foreign"), NODES, st.none()),
    st.tuples(st.just("uncordon"), NODES, st.none()),
    st.tuples(st.just("maintain"), NODES, st.none()),
    st.tuples(st.just("restart"), st.just(""), st.none()),
    st.tuples(st.just("wait"), st.just(""), st.floats(0, 200)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(MOVES, max_size=25))
def test_whatever_happens(moves: list[tuple[str, str, Kind | float | None]]) -> None:
    """No node of others is touched, no healthy one is cordoned outside a fault, the limit holds, and all heals."""
    yard = Yard()
    limit = yard.options.limit(yard.layout)
    foreign: set[str] = set()
    for what, node, much in moves:
        match what:
            case "say" if isinstance(much, Kind) and all(s.kind is not much for s in yard.nodes[node].signals):
                yard.say(node, much)
            case "clear":
                yard.clear(node)
            case "foreign" if not yard.nodes[node].cordoned:
                yard.set(node, cordoned=True)
                foreign.add(node)
            case "uncordon":
                yard.set(node, cordoned=False)
                foreign.discard(node)
            case "maintain":
                yard.set(node, maintenance=-math.inf if yard.nodes[node].maintenance > 0 else math.inf)
            case "restart":
                yard.memory = Memory()
        before = dict(yard.nodes)
        found = yard.look(much if isinstance(much, float) else 0.0)
        at_fault = {name for fault in found.faults for name in fault.nodes}
        for step in found.steps:
            was = before[step.on.node]
            assert step.on.node not in foreign and step.why
            if step.do is Do.CORDON:
                assert step.on.node in at_fault and was.maintenance < 0 and step.evidence and not was.cordoned
            if step.do is Do.UNCORDON:
                assert was.mark and was.ready and not was.signals and step.on.node not in at_fault
        assert len({step.on.node for step in found.steps}) == len(found.steps), "one step for a node"
        assert sum(1 for r in yard.nodes.values() if r.mark and r.cordoned) <= limit
        assert found.again > yard.now, "it is not asked again at once"
        held = [name for name, why in found.kept.items() if why == HELD]  # until what was out of use is back
        left = [step for step in yard.look().steps if step.do is not Do.MARK and step.on.node not in held]
        assert not left, "what is done is done"
    for name in yard.nodes:
        yard.clear(name)
        yard.set(name, maintenance=-math.inf)
    yard.look()
    yard.look(yard.options.heal_after * 2**MOST_DOUBLED)
    assert yard.ours() == [] and all(not reading.overruled for reading in yard.nodes.values())
    assert {name for name, reading in yard.nodes.items() if reading.cordoned} == foreign


def test_a_fault_that_comes_and_goes_keeps_its_node_out_longer_and_longer() -> None:
    yard = Yard(heal_after=60)
    outs = []
    for _ in range(10):
        yard.say("r01-t02", Kind.GPU)
        yard.look()
        yard.clear("r01-t02")
        began = yard.now
        yard.look()
        while yard.ours():
            yard.look(max(1.0, yard.memory.well["r01-t02"] - yard.now + 30.0))
        outs.append(yard.now - began)
    assert outs[:4] == [60.0, 120.0, 240.0, 480.0] and outs[-1] == outs[-2] == 3840.0
    yard.now += 86400.0
    yard.say("r01-t02", Kind.GPU)
    yard.look()
    mark = yard.nodes["r01-t02"].mark
    assert mark is not None and mark.times == 1


def test_two_faults_of_a_node_may_be_overruled_one_after_the_other() -> None:
    yard = Yard()
    yard.say("r01-t02", Kind.GPU)
    yard.look()
    yard.set("r01-t02", cordoned=False)
    yard.look()
    for node in (node for node in yard.nodes if node.startswith("r01")):
        yard.say(node, Kind.NVLINK)
    yard.look()
    yard.look(2)
    assert "r01-t02" in yard.ours()
    for node in yard.ours():
        yard.set(node, cordoned=False)
    yard.look()
    for node in (node for node in yard.nodes if node.startswith("r01")):
        yard.clear(node, Kind.NVLINK)
    for _ in range(5):
        assert not yard.look(100).steps or yard.ours() == []


def test_a_mark_that_can_t_be_read_heals_too() -> None:
    yard = Yard()
    yard.set("r01-t01", cordoned=True, mark=Mark("", "", "", ""))
    yard.look()
    assert [s.do for s in yard.look(60).steps] == [Do.UNCORDON]
