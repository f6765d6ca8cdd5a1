"""Applying a plan: on the stand-in always, on a real API server where one is given."""

from typing import Any

import pytest

from rackyard.backends.kubernetes.apply import Applied, How, Outcome, apply
from rackyard.backends.kubernetes.client import Client
from rackyard.errors import ConflictError, UsageError
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labelplan import LabelPlan, Ours, plan

RACK, SLOT, TIER = "rackyard.io/rack", "rackyard.io/slot", "fabric.topograph.run/tier-0"


def planned(cluster: Any, wanted: dict[str, dict[str, str]]) -> LabelPlan:
    nodes = cluster.nodes()
    named = {cluster.name(short): labels for short, labels in wanted.items()}
    managed = {name: node.managed for name, node in nodes.items()}
    return plan(named, {name: node.labels for name, node in nodes.items()}, Ours(shipped(), managed))


def act(cluster: Any, wanted: dict[str, dict[str, str]], how: How | None = None) -> dict[str, Applied]:
    results = apply(cluster.client, planned(cluster, wanted).changes, cluster.nodes(), how)
    return {result.node.removeprefix(f"{cluster.prefix}-"): result for result in results}


def test_labels_are_set_changed_and_removed_and_nobody_elses_is_touched(cluster: Any) -> None:
    cluster.add("a", {"team": "blue"})
    assert act(cluster, {"a": {RACK: "r01", SLOT: "1", TIER: "leaf-0"}})["a"].outcome is Outcome.APPLIED
    assert cluster.labels("a") == {"team": "blue", RACK: "r01", SLOT: "1", TIER: "leaf-0"}
    assert cluster.nodes()[cluster.name("a")].managed == {RACK, SLOT, TIER}
    assert planned(cluster, {"a": {RACK: "r01", SLOT: "1", TIER: "leaf-0"}}).changes == ()

    assert act(cluster, {"a": {RACK: "r02", SLOT: "1"}})["a"].outcome is Outcome.APPLIED
    assert cluster.labels("a") == {"team": "blue", RACK: "r02", SLOT: "1"}

    assert act(cluster, {"a": {}})["a"].outcome is Outcome.APPLIED
    assert cluster.labels("a") == {"team": "blue"}


def test_a_label_that_somebody_else_set_is_a_conflict_until_it_is_forced(cluster: Any) -> None:
    cluster.add("a", {TIER: "their-leaf"})
    result = act(cluster, {"a": {RACK: "r01", TIER: "leaf-0"}})["a"]
    assert result.outcome is Outcome.CONFLICT and isinstance(result.error, ConflictError)
    assert f"{TIER} was set by admin" in str(result.error) and "fix:" in str(result.error)
    assert cluster.labels("a") == {TIER: "their-leaf"}

    assert act(cluster, {"a": {RACK: "r01", TIER: "leaf-0"}}, How(force=True))["a"].outcome is Outcome.APPLIED
    assert cluster.labels("a") == {RACK: "r01", TIER: "leaf-0"}


def test_a_label_of_ours_that_was_changed_by_hand_is_a_conflict(cluster: Any) -> None:
    cluster.add("a")
    act(cluster, {"a": {RACK: "r01", SLOT: "1"}})
    cluster.label_by_hand("a", {RACK: "r99"})
    assert cluster.nodes()[cluster.name("a")].managed == {SLOT}
    result = act(cluster, {"a": {RACK: "r01", SLOT: "1"}})["a"]
    assert result.outcome is Outcome.CONFLICT and f"{RACK} was set by kubectl-label" in str(result.error)
    act(cluster, {"a": {RACK: "r01", SLOT: "1"}}, How(force=True))
    assert cluster.labels("a") == {RACK: "r01", SLOT: "1"}


def test_the_same_value_set_by_two_is_no_conflict(cluster: Any) -> None:
    cluster.add("a", {TIER: "leaf-0"})
    assert act(cluster, {"a": {RACK: "r01", TIER: "leaf-0"}})["a"].outcome is Outcome.APPLIED
    assert act(cluster, {"a": {RACK: "r01"}})["a"].outcome is Outcome.CONFLICT  # theirs too: it stays, and that is told
    assert cluster.labels("a") == {RACK: "r01", TIER: "leaf-0"}


def test_a_stale_label_of_ours_that_somebody_else_set_goes_only_by_force(cluster: Any) -> None:
    cluster.add("a", {SLOT: "7"})
    result = act(cluster, {"a": {RACK: "r01"}})["a"]
    assert result.outcome is Outcome.CONFLICT and f"{SLOT} is set by admin" in str(result.error)
    assert cluster.labels("a") == {SLOT: "7", RACK: "r01"}

    assert act(cluster, {"a": {RACK: "r01"}}, How(force=True))["a"].outcome is Outcome.APPLIED
    assert cluster.labels("a") == {RACK: "r01"}


def test_a_node_deleted_meanwhile_is_told_and_not_made_again(cluster: Any) -> None:
    cluster.add("a")
    cluster.add("b")
    changes, nodes = planned(cluster, {"a": {RACK: "r01"}, "b": {RACK: "r01"}}).changes, cluster.nodes()
    cluster.delete("a")
    first, second = apply(cluster.client, changes, nodes)
    assert (first.outcome, second.outcome) == (Outcome.GONE, Outcome.APPLIED)
    assert "nothing was written" in str(first.error)
    assert set(cluster.nodes()) == {cluster.name("b")}


def test_a_node_that_came_back_under_the_same_name_is_not_written_to(cluster: Any) -> None:
    cluster.add("a")
    changes, nodes = planned(cluster, {"a": {RACK: "r01"}}).changes, cluster.nodes()
    cluster.delete("a")
    cluster.add("a")
    assert [result.outcome for result in apply(cluster.client, changes, nodes)] == [Outcome.GONE]
    assert cluster.labels("a") == {}


def test_a_dry_run_is_checked_by_the_server_and_stored_nowhere(cluster: Any) -> None:
    cluster.add("a", {TIER: "their-leaf"})
    assert act(cluster, {"a": {RACK: "r01"}}, How(dry_run=True))["a"].outcome is Outcome.APPLIED
    assert act(cluster, {"a": {TIER: "leaf-0"}}, How(dry_run=True))["a"].outcome is Outcome.CONFLICT
    assert act(cluster, {"a": {TIER: "leaf-0"}}, How(dry_run=True, force=True))["a"].outcome is Outcome.APPLIED
    assert cluster.labels("a") == {TIER: "their-leaf"}
    assert cluster.nodes()[cluster.name("a")].managed == frozenset()


def test_a_value_that_kubernetes_refuses_fails_for_that_node_alone(cluster: Any) -> None:
    if cluster.client.server.startswith("http:"):
        pytest.skip("the stand-in does not check values")
    cluster.add("a")
    cluster.add("b")
    results = act(cluster, {"a": {RACK: "no such value"}, "b": {RACK: "r01"}})
    assert (results["a"].outcome, results["b"].outcome) == (Outcome.FAILED, Outcome.APPLIED)
    assert "valid label" in str(results["a"].error)


def test_many_nodes_at_once(cluster: Any) -> None:
    names = [f"n{number:02d}" for number in range(40)]
    for name in names:
        cluster.add(name)
    told: list[Applied] = []
    made = planned(cluster, {name: {RACK: name} for name in names})
    results = apply(cluster.client, made.changes, cluster.nodes(), How(at_once=8), told.append)
    assert [result.node for result in results] == [cluster.name(name) for name in names]
    assert {result.outcome for result in results} == {Outcome.APPLIED} and len(told) == 40
    assert planned(cluster, {name: {RACK: name} for name in names}).changes == ()


# --- what only the stand-in can be made to do --------------------------------------------------------------------


def one_node(standin: Any, client: Client) -> tuple[LabelPlan, dict[str, Any]]:
    from rackyard.backends.kubernetes.nodes import read_nodes

    for name in ("a", "b", "c"):
        standin.create({"metadata": {"name": name}})
    nodes = {node.name: node for node in read_nodes(client)}
    wanted = {name: {RACK: "r01"} for name in nodes}
    return plan(wanted, {name: node.labels for name, node in nodes.items()}, Ours(shipped())), nodes


def test_a_busy_server_is_tried_again_with_growing_waits(standin: Any, client: Client, waits: list[float]) -> None:
    made, nodes = one_node(standin, client)
    standin.refuse = [(429, {"Retry-After": "2"}), (503, {})]
    results = apply(client, made.changes, nodes, How(at_once=1))
    assert [result.outcome for result in results] == [Outcome.APPLIED] * 3
    assert waits == [2.5, 1.0]


def test_a_server_that_stays_broken_fails_the_node(standin: Any, client: Client, waits: list[float]) -> None:
    made, nodes = one_node(standin, client)
    standin.refuse = [(500, {})] * 3
    results = apply(client, made.changes, nodes, How(at_once=1))
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.APPLIED, Outcome.APPLIED]
    assert len(waits) == 2 and "500" in str(results[0].error)


@pytest.mark.parametrize(("code", "word"), [(401, "credentials"), (403, "grant")])
def test_without_rights_the_rest_is_not_tried(standin: Any, client: Client, code: int, word: str) -> None:
    made, nodes = one_node(standin, client)
    standin.refuse = [(code, {})]
    results = apply(client, made.changes, nodes, How(at_once=1))
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.NOT_TRIED, Outcome.NOT_TRIED]
    assert word in str(results[0].error) and len(standin.writes()) == 1


def test_no_change_is_no_write(standin: Any, client: Client) -> None:
    assert apply(client, (), {}) == () and standin.writes() == []


def test_nothing_at_once_is_an_error(client: Client) -> None:
    with pytest.raises(UsageError, match="at_once"):
        apply(client, (), {}, How(at_once=0))
