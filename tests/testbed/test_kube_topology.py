"""`rackyard kube topology` on a real API server with the definitions of Volcano and Kueue; no site is real here."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.calling import Answer, call
from tests.testbed.conftest import Needs
from tests.testbed.work import gone

from testbed import Cluster, cluster, crds
from testbed.api import Refused, until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
TWO_RACKS = "simulate: {racks: 2, trays: 3}\n"
OURS = "app.kubernetes.io/managed-by=rackyard"
_ALL = (HYPERNODES, f"{KUEUE}/resourceflavors", f"{KUEUE}/topologies")


@pytest.fixture(scope="module")
def both(needs_testbed: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(("volcano", "kueue"))
    with cluster(tmp_path_factory.mktemp("topology") / "cluster", parts=("volcano", "kueue")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def tidy(both: Cluster) -> Iterator[None]:
    yield
    for path in _ALL:
        for found in both.api.items(path):
            with suppress(Refused):
                both.api.delete(f"{path}/{found['metadata']['name']}")


def topology(bed: Cluster, folder: Path, text: str, *words: str, to: str = "volcano") -> Answer:
    site = folder / "site.yaml"
    site.write_text(text)
    return call("kube", "topology", "--site", site, "--to", to, "--kubeconfig", bed.kubeconfig, *words)


def names(bed: Cluster, path: str = HYPERNODES) -> list[str]:
    return sorted(found["metadata"]["name"] for found in bed.api.items(path))


def test_hypernodes_are_written_changed_and_removed_as_the_site_changes(both: Cluster, tmp_path: Path) -> None:
    first = topology(both, tmp_path, TWO_RACKS, "-y")
    assert first.code == 0 and "create 3" in first.out and "0 failed" in first.out
    assert names(both)[:2] == ["r01", "r02"] and len(names(both)) == 3
    again = topology(both, tmp_path, TWO_RACKS, "-y")
    assert again.code == 0 and again.out == "all objects are as they should be\n"
    smaller = topology(both, tmp_path, "simulate: {racks: 1, trays: 2}\n", "-y", "-o", "json")
    assert smaller.code == 0
    done = {step["name"]: step["what"] for step in json.loads(smaller.out)}
    assert done["r01"] == "change" and done["r02"] == "remove"
    (rack,) = (found for found in both.api.items(HYPERNODES) if found["metadata"]["name"] == "r01")
    assert len(rack["spec"]["members"]) == 2
    assert rack["metadata"]["managedFields"][0]["manager"] == "rackyard"
    assert "r02" not in names(both)


def test_what_changes_is_shown_first_and_nothing_is_written_unasked(both: Cluster, tmp_path: Path) -> None:
    unasked = topology(both, tmp_path, TWO_RACKS)
    assert unasked.code == 2 and "say yes with -y" in unasked.err and "HyperNode" in unasked.out
    checked = topology(both, tmp_path, TWO_RACKS, "--dry-run")
    assert checked.code == 0 and "would do: create 3" in checked.out
    assert names(both) == []


def foreign(bed: Cluster, name: str) -> None:
    member = {"type": "Node", "selector": {"exactMatch": {"name": "elsewhere"}}}
    kind = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}}
    bed.api.post(HYPERNODES, {**kind, "spec": {"tier": 1, "members": [member]}})


def test_hypernodes_of_others_stay_and_one_in_our_way_is_told(both: Cluster, tmp_path: Path) -> None:
    foreign(both, "theirs")
    foreign(both, "r01")
    answer = topology(both, tmp_path, TWO_RACKS, "-y")
    assert answer.code == 1 and "somebody else's" in answer.out and "create 2; 1 failed" in answer.out
    assert "theirs" in names(both) and len(names(both)) == 4
    assert len(both.api.get(f"{HYPERNODES}/r01")["spec"]["members"]) == 1
    assert "take it over with --force" in answer.out
    forced = topology(both, tmp_path, TWO_RACKS, "-y", "--force")
    assert forced.out.splitlines()[-1] == "done: take over 1; 0 failed"
    assert forced.code == 0 and len(both.api.get(f"{HYPERNODES}/r01")["spec"]["members"]) == 3
    assert "theirs" in names(both)


def test_a_field_that_somebody_changed_is_told_and_taken_over_only_by_force(both: Cluster, tmp_path: Path) -> None:
    assert topology(both, tmp_path, TWO_RACKS, "-y").code == 0
    both.api.patch(f"{HYPERNODES}/r01?fieldManager=ops", {"spec": {"tier": 2}})
    answer = topology(both, tmp_path, TWO_RACKS, "-y")
    assert answer.code == 1 and "ops" in answer.out and "spec.tier" in answer.out
    assert both.api.get(f"{HYPERNODES}/r01")["spec"]["tier"] == 2
    assert topology(both, tmp_path, TWO_RACKS, "-y", "--force").code == 0
    assert both.api.get(f"{HYPERNODES}/r01")["spec"]["tier"] == 1


def test_kueue_is_told_and_what_it_does_not_let_change_is_its_own_refusal(both: Cluster, tmp_path: Path) -> None:
    answer = topology(both, tmp_path, TWO_RACKS, "-y", to="kueue")
    assert answer.code == 0 and "create 2" in answer.out
    assert names(both, f"{KUEUE}/topologies") == names(both, f"{KUEUE}/resourceflavors") == ["simulated"]
    assert topology(both, tmp_path, TWO_RACKS, "-y", to="kueue").out == "all objects are as they should be\n"
    blocks = "simulate: {racks: 4, trays: 2, racks_per_block: 2}\n"
    changed = topology(both, tmp_path, blocks, "-y", to="kueue")
    assert changed.code == 1 and "immutable" in changed.out and "spec.levels" in changed.out


def test_what_can_not_be_done_is_told(both: Cluster, tmp_path: Path) -> None:
    missing = call("kube", "topology", "--site", tmp_path / "none.yaml", "--to", "volcano", "-y")
    assert missing.code == 2 and "none.yaml" in missing.err
    wrong = topology(both, tmp_path, "racks: nonsense\n", "-y")
    assert wrong.code == 2 and wrong.out == ""
    other = call("kube", "topology", "--site", tmp_path / "site.yaml", "--to", "slurm")
    assert other.code == 2 and "slurm" in other.err


@pytest.mark.parametrize("to", ["volcano", "kueue"])
def test_the_site_file_is_read_as_the_controller_reads_it(both: Cluster, tmp_path: Path, to: str) -> None:
    base = Path(__file__).parents[2] / "deploy/site.yaml"
    empty = topology(both, tmp_path, base.read_text(), "-y", to=to)
    assert empty.code == 2 and "the site has no nodes" in empty.err
    folder = call("kube", "topology", "--site", tmp_path, "--to", to, "-y")
    assert folder.code == 2 and "it is a folder" in folder.err and "rackyard topo discover" in folder.err
    assert names(both) == []


def test_nodes_that_the_cluster_does_not_have_are_told(both: Cluster, tmp_path: Path) -> None:
    nodes = "/api/v1/nodes"
    for name in ("r01-t01", "r01-t02", "r02-t01"):
        both.api.post(nodes, {"metadata": {"name": name}})
    try:
        answer = topology(both, tmp_path, TWO_RACKS, "--dry-run", "-o", "json")
        expected = "warning: 3 of the site's 6 nodes are not in the cluster: r01-t03, r02-t02, r02-t03\n"
        assert answer.code == 0 and expected in answer.err
        assert "warning" not in topology(both, tmp_path, "simulate: {racks: 1, trays: 2}\n", "--dry-run").err
    finally:
        for found in both.api.items(nodes):
            both.api.delete(f"{nodes}/{found['metadata']['name']}")


def test_a_cluster_without_volcano_is_told(both: Cluster, tmp_path: Path) -> None:
    name = "hypernodes.topology.volcano.sh"
    definition = both.api.get(f"{crds.PATH}/{name}")
    both.api.delete(f"{crds.PATH}/{name}")
    try:
        until("HyperNodes are unknown", lambda: gone(both.api, HYPERNODES))
        answer = topology(both, tmp_path, TWO_RACKS, "-y")
        assert answer.code == 1 and "knows no HyperNode" in answer.err and "install Volcano" in answer.err
    finally:
        kept = {"name": name, "annotations": definition["metadata"]["annotations"]}
        both.api.post(crds.PATH, {"metadata": kept, "spec": definition["spec"]})
        crds.established(both.api, [name])
        until("HyperNodes are known again", lambda: not gone(both.api, HYPERNODES))
