"""`rackyard topo export`."""

import json
from pathlib import Path

import pytest
from calling import call
from topologies import site_file, stdin

TEXTS = ("volcano", "kueue", "podgroup", "slurm-tree", "slurm-block", "slurm-yaml", "topograph", "dot", "json")
READ_BACK = ("slurm-tree", "slurm-block", "slurm-yaml", "topograph", "json")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return site_file(tmp_path, "simulate: {racks: 1, trays: 4}\n")


@pytest.mark.parametrize("name", TEXTS)
def test_a_made_up_site_says_so(site: Path, name: str) -> None:
    answer = call("topo", "export", site, "--to", name)
    assert answer.code == 0 and answer.err == "note: site simulated is simulated\n"
    assert "simulated" in answer.out[:200]


@pytest.mark.parametrize("name", TEXTS)
def test_a_real_site_does_not(tmp_path: Path, name: str) -> None:
    text = "name: lab\nracks:\n  r01: {switch_trays: 9}\nnodes:\n  n1: {shape: GB300, rack: r01, slot: 1}\n"
    answer = call("topo", "export", site_file(tmp_path, text), "--to", name)
    assert answer.code == 0 and answer.err == "" and "simulated by" not in answer.out
    assert '"simulated": true' not in answer.out


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_what_the_pipe_gets(site: Path, tmp_path: Path, name: str) -> None:
    answer = call("topo", "export", site, "--to", name, "--out", tmp_path / "out")
    assert answer.code == 0 and answer.out == "" and f"wrote {tmp_path / 'out'}" in answer.err
    assert (tmp_path / "out").read_text() == call("topo", "export", site, "--to", name).out


@pytest.mark.parametrize("name", READ_BACK)
def test_what_was_written_is_read_back_as_made_up(site: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = call("topo", "export", site, "--to", name).out
    stdin(monkeypatch, text.encode())
    found = json.loads(call("topo", "discover", "-", "-o", "json").out)["site"]
    assert found["simulated"] and len(found["nodes"]) == 4


def test_nccl_files_are_one_for_each_node(site: Path, tmp_path: Path) -> None:
    answer = call("topo", "export", site, "--to", "nccl", "--out", tmp_path / "xml")
    assert answer.code == 0 and "wrote 4 files" in answer.err
    files = sorted((tmp_path / "xml").iterdir())
    assert [file.name for file in files] == [f"r01-t0{number}.xml" for number in range(1, 5)]
    assert files[0].read_text().startswith("<!-- simulated by rackyard -->\n<system")
    assert call("nccl", "topo", "lint", *files).code == 0


def test_nccl_files_need_a_folder(site: Path) -> None:
    answer = call("topo", "export", site, "--to", "nccl")
    assert answer.code == 2 and "--out" in answer.err


def test_nodes_without_gpus_get_no_nccl_file(tmp_path: Path) -> None:
    conf = tmp_path / "topology.conf"
    conf.write_text("SwitchName=s1 Nodes=n[1-2]\n")
    answer = call("topo", "export", conf, "--to", "nccl", "--out", tmp_path / "xml")
    assert answer.code == 2 and "no node of the site has a GPU" in answer.err
    assert not (tmp_path / "xml").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--to json", "nothing to export"),
        ("{site}", "Missing option '--to'"),
        ("{site} --to yaml", "'yaml' is not one of"),
        ("{site} --to json --out {folder}", "it is a folder"),
    ],
)
def test_what_is_missing_is_told(site: Path, tmp_path: Path, words: str, told: str) -> None:
    answer = call("topo", "export", *words.format(site=site, folder=tmp_path).split())
    assert answer.code == 2 and answer.out == "" and told in answer.err
