"""`rackyard nccl topo`: every command with good files, and with those that NCCL refuses."""

import json
from pathlib import Path

import pytest
from calling import call
from ruamel.yaml import YAML
from topologies import broken, dump, site_file, stdin


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("nccl") / "good.xml"
    file.write_text(dump())
    return file


READS = ["parse", "lint", "paths", "graphs", "diff {good}"]


@pytest.mark.parametrize("words", READS)
def test_json_and_yaml_say_the_same(good: Path, words: str) -> None:
    command = ["nccl", "topo", *words.format(good=good).split(), good]
    as_json, as_yaml, table = (call(*command, "-o", form) for form in ("json", "yaml", "table"))
    # A dump pins its links, and lint warns of that.
    assert {as_json.code, as_yaml.code, table.code} == {4 if words == "lint" else 0}
    assert json.loads(as_json.out) == YAML(typ="safe").load(as_yaml.out)


@pytest.mark.parametrize("words", [*READS, "show"])
def test_standard_input(good: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin(monkeypatch, good.read_bytes())
    assert call("nccl", "topo", *words.format(good=good).split(), "-").code == (4 if words == "lint" else 0)


@pytest.mark.parametrize("words", [*READS, "show"])
def test_files_that_can_not_be_read(good: Path, tmp_path: Path, words: str) -> None:
    for given, told in ((tmp_path / "none.xml", "No such file"), (tmp_path, "it is a folder")):
        answer = call("nccl", "topo", *words.format(good=good).split(), given)
        assert answer.code == 2 and answer.out == "" and told in answer.err and str(given) in answer.err


@pytest.mark.parametrize("words", ["parse", "paths", "graphs", "show", "diff {good}"])
def test_a_file_that_nccl_refuses_is_told_with_its_line(good: Path, tmp_path: Path, words: str) -> None:
    file = tmp_path / "bad.xml"
    file.write_text('<system version="1">\n<cpu numaid="0"\n')
    answer = call("nccl", "topo", *words.format(good=good).split(), file)
    assert answer.code == 1 and answer.err.startswith("error: NCCL refuses this topology")
    assert f"{file}:3" in answer.err or f"{file}:2" in answer.err


def test_lint_says_what_was_not_checked(tmp_path: Path) -> None:
    file = tmp_path / "bad.xml"
    file.write_text("nonsense\n")
    answer = call("nccl", "topo", "lint", file)
    assert answer.code == 4
    assert f"{file}:1" in answer.out and "UNKNOWN" in answer.out


@pytest.mark.parametrize("words", ["paths", "graphs", "show"])
def test_an_empty_file_is_no_topology(tmp_path: Path, words: str) -> None:
    (tmp_path / "empty.xml").write_text("")
    answer = call("nccl", "topo", words, tmp_path / "empty.xml")
    assert answer.code == 2 and "no <system> element" in answer.err


@pytest.mark.parametrize("words", ["paths", "graphs", "show"])
def test_a_file_without_gpus_wants_a_node(tmp_path: Path, words: str) -> None:
    site, file = site_file(tmp_path), tmp_path / "node.xml"
    file.write_text(call("nccl", "topo", "generate", "r01-t01", "--site", site).out)
    answer = call("nccl", "topo", words, file)
    assert answer.code == 2 and "the file names no GPU" in answer.err and "--node" in answer.err
    assert call("nccl", "topo", words, file, "--node", "r01-t01", "--site", site).code == 0
    assert call("nccl", "topo", words, "--node", "r01-t01", "--site", site).code == 0


@pytest.mark.parametrize("words", ["paths", "graphs", "show"])
def test_nothing_to_look_at(words: str) -> None:
    answer = call("nccl", "topo", words)
    assert answer.code == 2 and "nothing to look at" in answer.err


def test_an_unknown_node(tmp_path: Path) -> None:
    site = site_file(tmp_path)
    near = call("nccl", "topo", "paths", "--node", "r01-t0l", "--site", site)
    assert near.code == 2 and "did you mean r01-t" in near.err
    far = call("nccl", "topo", "generate", "lab", "--site", site)
    assert far.code == 2 and "one of r01-t01" in far.err and "and 13 more" in far.err


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        ("2.18", 0, ""),
        ("v2.32.1-1", 0, ""),
        ("2.17.1", 2, "are not known"),
        ("2.99", 0, "newer than the rules known here"),
        ("99", 2, "is no NCCL version"),
        ("two", 2, "is no NCCL version"),
    ],
)
def test_versions(good: Path, version: str, code: int, told: str) -> None:
    answer = call("nccl", "topo", "parse", good, "--nccl", version)
    assert answer.code == code and told in answer.err and bool(told) == bool(answer.err)


def test_generate_into_a_folder(tmp_path: Path) -> None:
    site = site_file(tmp_path)
    answer = call("nccl", "topo", "generate", "--site", site, "--out", tmp_path / "xml")
    assert answer.code == 0 and "wrote 18 files" in answer.out
    assert len(list((tmp_path / "xml").iterdir())) == 18
    answer = call("nccl", "topo", "generate", "--site", site)
    assert answer.code == 2 and "--out" in answer.err


def test_pinned_links_are_warned_of(tmp_path: Path) -> None:
    answer = call("nccl", "topo", "generate", "r01-t01", "--pin-links", "--site", site_file(tmp_path))
    assert answer.code == 0 and "<nvlink" in answer.out and "warning: pinned links hide" in answer.err


def test_paths_name_devices_as_nccl_does(good: Path) -> None:
    out = call("nccl", "topo", "paths", good).out
    assert "predicted for NCCL 2.30.7" in out
    first = next(line for line in out.splitlines() if line.startswith("from"))
    cells = json.loads(call("nccl", "topo", "paths", good, "-o", "json").out)
    assert first.split()[1:] == list(dict.fromkeys(cell["to"] for cell in cells if cell["to"].startswith("GPU/")))


@pytest.mark.parametrize("count", [None, "0"])
def test_graphs_name_the_gpu_without_links_and_the_cost(good: Path, tmp_path: Path, count: str | None) -> None:
    assert call("nccl", "topo", "graphs", good).code == 0
    file = tmp_path / "dead.xml"
    file.write_text(dump(2, count=count))
    answer = call("nccl", "topo", "graphs", file, "-o", "json")
    findings = json.loads(answer.out)["findings"]
    told = next(one for one in findings if one["rule"] == "nccl-topo/fewer-nvlink")
    assert answer.code == 4 and told["severity"] == "error"
    assert "rank 2" in told["subject"] and "of 16 channels @ 45 GB/s" in told["summary"]
    assert told["evidence"][0]["origin"] == str(file)


@pytest.mark.corpus
@pytest.mark.parametrize("count", [None, "0"])
def test_graphs_of_a_real_dump(corpus: Path, tmp_path: Path, count: str | None) -> None:
    real = corpus / "topology/nccl_topo/gb300/mnnvl_topo_2tray_0405.xml"
    healthy = call("nccl", "topo", "graphs", real)
    assert healthy.code == 0 and "host_hash" in healthy.err
    file = tmp_path / "dead.xml"
    file.write_text(broken(real.read_text(), 5, count=count))
    answer = call("nccl", "topo", "graphs", file)
    assert answer.code == 4 and "GPU/1-906000 (rank 5) has no NVLink, its 7 peers have 18" in answer.out


def test_graphs_that_were_not_predicted_are_no_success(good: Path) -> None:
    answer = call("nccl", "topo", "graphs", good, "--max-steps", 5)
    assert answer.code == 1 and "nccl-topo/not-predicted" in answer.out and "CHANNELS" not in answer.out


def test_graphs_are_written_as_nccl_reads_them(good: Path, tmp_path: Path) -> None:
    file = tmp_path / "graphs.xml"
    answer = call("nccl", "topo", "graphs", good, "--write", file, "--channels")
    assert answer.code == 0 and f"wrote {file}" in answer.err and file.read_text().startswith("<graphs")
    assert "ring 0: 0 1 2 3" in answer.out
    answer = call("nccl", "topo", "paths", file)
    assert answer.code == 2 and "no <system> element" in answer.err


def test_diff_names_the_device(good: Path, tmp_path: Path) -> None:
    file = tmp_path / "after.xml"
    file.write_text(dump(0))
    answer = call("nccl", "topo", "diff", good, file)
    assert answer.code == 4 and f"before: {good}" in answer.out and "nvlink" in answer.out
    assert call("nccl", "topo", "diff", good, good).out == "the same\n"


def test_parse_tells_what_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "odd.xml"
    file.write_text('<system version="1">\n  <odd/>\n</system>\n')
    answer = call("nccl", "topo", "parse", file)
    assert answer.code == 0 and f"{file}:2:" in answer.out and "passed over" in answer.out


def test_a_file_without_end() -> None:
    answer = call("nccl", "topo", "parse", "/dev/null")
    assert answer.code == 0 and "no <system> element" in answer.out


@pytest.mark.corpus
def test_a_real_graph_dump_is_what_is_predicted(corpus: Path) -> None:
    folder = corpus / "topology" / "nccl_topo" / "gb300"
    topology, graphs = folder / "mnnvl_topo_1tray_healthy.xml", folder / "mnnvl_graph_1tray_04.xml"
    same = call("nccl", "topo", "compare", topology, graphs, "--nccl", "2.29.7")
    assert same.code == 0, same.out
    assert "16@45/45 NVL/PIX" in same.out and "channels or bandwidth" not in same.out


@pytest.mark.corpus
def test_a_graph_dump_of_another_topology_differs(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / "topology" / "nccl_topo" / "gb300"
    graphs = tmp_path / "graphs.xml"
    graphs.write_text((folder / "mnnvl_graph_1tray_04.xml").read_text().replace('speedintra="45"', 'speedintra="20"'))
    other = call("nccl", "topo", "compare", folder / "mnnvl_topo_1tray_healthy.xml", graphs, "--nccl", "2.29.7")
    assert other.code == 4 and "channels or bandwidth" in other.out
