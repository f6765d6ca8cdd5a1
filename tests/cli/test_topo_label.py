"""`rackyard topo label` against a saved list of nodes."""

import json
from pathlib import Path

import pytest
from calling import Answer, call
from topologies import captured, site_file, stdin


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(tmp_path_factory.mktemp("site"))


def plan(captures: Path, nodes: Path) -> Answer:
    return call("topo", "label", captures, "--nodes", nodes, "-o", "json")


def applied(nodes: Path, changes: list[dict[str, object]], to: Path) -> Path:
    """The saved list as the cluster would be after the changes."""
    cluster = json.loads(nodes.read_text())
    labels = {item["metadata"]["name"]: item["metadata"]["labels"] for item in cluster["items"]}
    for change in changes:
        assert isinstance(change["set"], dict)
        labels[change["node"]].update({key: value["becomes"] for key, value in change["set"].items()})
    to.write_text(json.dumps(cluster))
    return to


def test_the_second_plan_is_empty(captures: Path, tmp_path: Path) -> None:
    first = json.loads(plan(captures, captures / "nodes.json").out)
    assert len(first["changes"]) == 18 and not first["not_in_cluster"] and not first["not_in_site"]
    assert all(value["now"] is None for change in first["changes"] for value in change["set"].values())
    nodes = applied(captures / "nodes.json", first["changes"], tmp_path / "nodes.json")
    second = json.loads(plan(captures, nodes).out)
    assert second["changes"] == [] and second["unchanged"] == 18
    assert (
        call("topo", "label", captures, "--nodes", nodes).out == "0 nodes to change, 0 labels; 18 as they should be\n"
    )


def test_the_table_is_cut_and_says_so(captures: Path) -> None:
    answer = call("topo", "label", captures, "--nodes", captures / "nodes.json")
    assert answer.code == 0 and "note: site site is simulated" in answer.err
    lines = answer.out.splitlines()
    assert lines[0].split() == ["NODE", "LABEL", "NOW", "BECOMES"]
    assert "more (-o json shows them all)" in lines[-2] and lines[-1].startswith("18 nodes to change")


def test_nodes_on_one_side_only(captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, b'{"apiVersion":"v1","kind":"List","items":[]}')
    answer = call("topo", "label", captures, "--nodes", "-")
    assert answer.code == 0
    assert "18 nodes of the site, not in the cluster: r01-t01," in answer.out and "and 13 more" in answer.out


def test_captures_that_could_not_be_read_are_told(captures: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    answer = call("topo", "label", captures, tmp_path / "empty.txt", "--nodes", captures / "nodes.json")
    assert answer.code == 0 and "warning: 1 finding in what was read (fabric/unreadable)" in answer.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--nodes {nodes}", "nothing to take labels from"),
        ("{site} --nodes {site}", "this is no list of Kubernetes nodes"),
        ("{site} --nodes {folder}", "it is a folder"),
        ("{site} --nodes {folder}/none", "No such file"),
        ("{site} --nodes {nodes} --apply", "a saved list can't be written to"),
        ("{site} --apply -y", "the site is simulated"),
        ("{site} --nodes {nodes} --also nope", "the groups that can be asked for"),
        ("{site} --nodes {nodes} --label-keys {nodes}", "nodes.json"),
        ("{site} --nodes {nodes} --label-keys {folder}", "it is a folder"),
        ("{real} --kubeconfig {folder}/none", "the kubeconfig can't be used"),
        ("{real} --kubeconfig {nodes}", "the kubeconfig can't be used"),
    ],
)
def test_what_is_wrong_is_told(captures: Path, tmp_path: Path, words: str, told: str) -> None:
    text = "name: lab\nracks:\n  r01: {switch_trays: 9}\nnodes:\n  n1: {shape: GB300, rack: r01, slot: 1}\n"
    places = {
        "site": site_file(tmp_path),
        "real": site_file(tmp_path, text, "real.yaml"),
        "nodes": captures / "nodes.json",
        "folder": tmp_path,
    }
    answer = call("topo", "label", *words.format(**places).split())
    assert answer.code == 2 and answer.out == "" and told in answer.err


def test_the_keys_are_listed() -> None:
    keys = json.loads(call("topo", "label", "--list-keys", "-o", "json").out)
    assert {"key", "group", "written", "fact", "meaning"} == set(keys[0])
    assert "rackyard.io/domain" in call("topo", "label", "--list-keys").out
