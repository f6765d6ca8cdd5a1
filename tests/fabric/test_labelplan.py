"""Plans of label changes: differences only, and nothing of anybody else's."""

from hypothesis import given
from hypothesis import strategies as st

from rackyard.fabric import simulate
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labelplan import Change, Ours, plan
from rackyard.fabric.labels import labels_of

RACK, SLOT, TIER, THEIRS = "rackyard.io/rack", "rackyard.io/slot", "fabric.topograph.run/tier-0", "example.com/pool"
OURS = Ours(shipped())


def test_differences_only() -> None:
    want = {RACK: "r02", SLOT: "1", TIER: "leaf"}
    made = plan({"a": want}, {"a": {RACK: "r01", SLOT: "1", THEIRS: "x", "rackyard.io/tray": "3"}}, OURS)
    assert made.changes == (
        Change("a", ((RACK, "r01", "r02"), (TIER, None, "leaf")), (("rackyard.io/tray", "3"),), ((SLOT, "1"),)),
    )
    assert made.changes[0].wanted == want and len(made.changes[0]) == 3


def test_no_change_is_an_empty_plan() -> None:
    site = simulate(racks=3, hgx=2)
    wanted = labels_of(site, shipped().written(["topograph"]))
    current = {name: {**labels, THEIRS: "x"} for name, labels in wanted.items()}
    made = plan(wanted, current, Ours(shipped(), {name: labels.keys() for name, labels in wanted.items()}))
    assert (made.changes, made.unchanged, made.not_in_cluster, made.not_in_site) == ((), len(site.nodes), (), ())


def test_an_alias_is_removed_where_we_set_it_and_left_where_somebody_else_did() -> None:
    current = {"a": {TIER: "leaf"}, "b": {TIER: "leaf"}}
    made = plan({"a": {}, "b": {}}, current, Ours(shipped(), {"a": frozenset({TIER})}))
    assert [(change.node, change.remove) for change in made.changes] == [("a", ((TIER, "leaf"),))]


def test_a_key_under_our_prefix_that_the_table_does_not_have_is_somebodys() -> None:
    assert plan({"a": {}}, {"a": {"rackyard.io/pool": "x"}}, OURS).changes == ()


def test_a_managed_label_that_is_gone_already_is_no_change() -> None:
    assert plan({"a": {}}, {"a": {}}, Ours(shipped(), {"a": frozenset({RACK})})).changes == ()


def test_nodes_of_one_side_only_are_reported_and_left_alone() -> None:
    made = plan({"a": {RACK: "r"}, "b": {RACK: "r"}}, {"b": {RACK: "r"}, "c": {RACK: "old"}}, OURS)
    assert (made.changes, made.unchanged, made.not_in_cluster, made.not_in_site) == ((), 1, ("a",), ("c",))


_keys = st.sampled_from([RACK, SLOT, TIER, THEIRS, "rackyard.io/pool", "rackyard.io/tier-1", "nvidia.com/gpu.clique"])
_labels = st.dictionaries(_keys, st.sampled_from(["a", "b"]))
_nodes = st.dictionaries(st.sampled_from("abcd"), _labels)


@given(_nodes, _nodes, st.dictionaries(st.sampled_from("abcd"), st.frozensets(_keys)))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    wanted: dict[str, dict[str, str]], current: dict[str, dict[str, str]], managed: dict[str, frozenset[str]]
) -> None:
    ours = Ours(shipped(), managed)
    made = plan(wanted, current, ours)
    after = {name: dict(labels) for name, labels in current.items()}
    for change in made.changes:
        assert len(change) > 0
        for key, old, new in change.set:
            assert after[change.node].get(key) == old != new
            after[change.node][key] = new
        for key, old in change.remove:
            assert after[change.node].pop(key) == old
            assert ours.known(key) or key in managed.get(change.node, ())
    assert plan(wanted, after, ours).changes == ()
    for name, labels in after.items():
        lost = current[name].keys() - labels.keys()
        assert name in wanted or not lost
        assert wanted.get(name, {}).items() <= labels.items()
