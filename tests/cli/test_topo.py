"""`rackyard topo discover`, `audit`, `diff`, `show`, `simulate` and `collect`, as somebody new would try them."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from calling import Answer, call, end, start
from ruamel.yaml import YAML
from topologies import ONE_RACK, broken, captured, dump, site_file, stdin

READS = ["topo discover", "topo audit", "topo diff {design}", "topo export --to json"]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return captured(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def design(captures: Path) -> Path:
    """The site file that `discover --out` wrote of the captures."""
    file = captures.parent / "site.yaml"
    assert call("topo", "discover", captures, "--out", file).code == 0
    return file


def rules(answer: Answer) -> list[tuple[str, str, str]]:
    return [(one["verdict"], one["severity"], one["rule"]) for one in json.loads(answer.out)]


def test_discover_says_what_there_is(captures: Path) -> None:
    answer = call("topo", "discover", captures, "--name", "lab")
    assert answer.code == 0 and answer.err == ""
    head, columns, rack = answer.out.splitlines()
    assert head == "site lab (simulated): 1 rack, 18 nodes, 72 GPUs, 4 leaves, 9 spines, rails 0, 1, 2, 3"
    assert columns.split()[0] == "RACK" and rack.split()[0] == "r01" and "leaf-3-r01" in rack


@pytest.mark.parametrize("words", ["topo audit", "topo show", "topo diff {design}", "topo export --to json"])
def test_the_file_that_discover_wrote_is_read_back(captures: Path, design: Path, words: str) -> None:
    answer = call(*words.format(design=design).split(), design)
    assert answer.code == 0 and "simulated" in answer.out + answer.err
    answer = call("nccl", "topo", "generate", "r01-t01", "--site", design)
    assert answer.out.startswith("<!-- simulated by rackyard -->\n<system")


def test_discovered_yaml_on_a_pipe_is_a_site_file(captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = call("topo", "discover", captures, "-o", "yaml").out
    stdin(monkeypatch, text.encode())
    assert call("topo", "diff", captures, "-").code == 0


def test_findings_are_not_lost_beside_yaml(captures: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    answer = call("topo", "discover", captures, tmp_path / "empty.txt", "-o", "yaml")
    assert answer.code == 0
    assert YAML(typ="safe").load(answer.out)["simulated"] is True
    assert "fabric/unreadable" in answer.err and "it is empty" in answer.err


@pytest.mark.parametrize("words", ["topo audit", "topo diff {design}", "topo audit --list"])
def test_json_and_yaml_say_the_same(captures: Path, design: Path, words: str) -> None:
    words = words.format(design=design)
    as_json, as_yaml = (call(*words.split(), captures, "-o", form) for form in ("json", "yaml"))
    assert json.loads(as_json.out) == YAML(typ="safe").load(io.StringIO(as_yaml.out)) != []


@pytest.mark.parametrize("words", READS)
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: folder / "nothing", "there is no such file"),
        (lambda folder: folder, "there is no capture in this folder"),
        (lambda folder: written(folder, b""), "it is empty"),
        (lambda folder: written(folder, bytes(range(256))), "no reader knows this kind"),
        (lambda folder: written(folder, b"name: caf\xe9\nracks: {}\n"), "not UTF-8"),
        (lambda folder: written(folder, b"simulate: {racks: 1, bogus: 2}\n"), "unknown key 'bogus'"),
        (lambda folder: written(folder, b"simulate: [1\n"), "not valid YAML"),
    ],
)
def test_what_can_not_be_read_is_one_message(words: str, make: object, told: str, tmp_path: Path) -> None:
    assert callable(make)
    design = site_file(tmp_path.parent, name=f"{tmp_path.name}.yaml")
    given = make(tmp_path)
    answer = call(*words.format(design=design).split(), given)
    assert answer.code == 2 and answer.out == ""
    message = answer.err.removeprefix("note: site simulated is simulated\n")
    assert message.startswith("error: ") and told in message and str(given) in message


def written(folder: Path, data: bytes) -> Path:
    file = folder / "given.txt"
    file.write_bytes(data)
    return file


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    answer = call("topo", "discover", "-")
    assert answer.code == 2 and "there is no standard input" in answer.err


def test_a_site_file_is_no_capture(captures: Path, design: Path) -> None:
    answer = call("topo", "discover", captures, design)
    assert answer.code == 2
    assert "a site file among captures" in answer.err and "topo diff" in answer.err


def test_a_misspelt_key_of_a_site_file_option_is_told_with_its_line(tmp_path: Path) -> None:
    file = site_file(tmp_path, "simulat: {racks: 1}\n")
    answer = call("topo", "audit", site_file(tmp_path, name="other.yaml"), "--design", file)
    assert answer.code == 2 and f"{file}:1:1" in answer.err and "did you mean" in answer.err


def test_made_up_stays_made_up_through_an_export(captures: Path, tmp_path: Path) -> None:
    file = tmp_path / "site.json"
    assert call("topo", "export", captures, "--to", "json", "--out", file).code == 0
    (tmp_path / "topology.conf").write_text("SwitchName=s1 Nodes=n[1-2]\n")
    for given in ([file], [file, tmp_path / "topology.conf"]):
        assert "(simulated)" in call("topo", "discover", *given).out


def test_a_rack_that_nobody_looked_into_is_not_called_healthy(captures: Path) -> None:
    assert "healthy" not in call("topo", "discover", captures / "ibnetdiscover.txt").out


def test_audit_lists_what_it_could_not_look_at(captures: Path) -> None:
    answer = call("topo", "audit", captures)
    assert answer.code == 0 and "note: site site is simulated" in answer.err
    lines = answer.out.splitlines()
    assert "UNKNOWN  fabric/nvlink-ports  site: nothing was read from a fabric manager" in lines
    assert lines[-1].startswith("0 errors, 0 warnings, 0 info, ")


@pytest.mark.parametrize("rule", ["gpu-links", "fabric/gpu-linsk"])
def test_audit_of_an_unknown_rule(captures: Path, rule: str) -> None:
    answer = call("topo", "audit", captures, "--rule", rule)
    assert answer.code == 2 and "did you mean fabric/gpu-links?" in answer.err


def test_audit_of_one_rule_says_what_it_leaves_out(captures: Path, tmp_path: Path) -> None:
    answer = call("topo", "audit", captures, written(tmp_path, b""), "--rule", "fabric/gpu-links", "-o", "json")
    assert rules(answer) == [("PASS", "info", "fabric/gpu-links")]
    assert "1 finding in what was read left out by --rule" in answer.err


@pytest.mark.parametrize("count", [None, "0"])
def test_audit_names_the_one_dead_gpu_of_a_dump(tmp_path: Path, count: str | None) -> None:
    file = tmp_path / "dump.xml"
    file.write_text(dump(2, count=count))
    answer = call("topo", "audit", file, "-o", "json")
    failed = [one for one in json.loads(answer.out) if one["verdict"] == "FAIL"]
    assert answer.code == 4 and [one["rule"] for one in failed] == ["fabric/gpu-links"]
    assert failed[0]["subject"].endswith("GPU 2") and "host" in failed[0]["subject"]
    assert failed[0]["evidence"][0]["origin"] == str(file)


@pytest.mark.corpus
@pytest.mark.parametrize("count", [None, "0"])
def test_audit_names_the_one_dead_gpu_of_a_real_dump(corpus: Path, tmp_path: Path, count: str | None) -> None:
    real = corpus / "topology/nccl_topo/gb300/mnnvl_topo_2tray_0405.xml"
    assert call("topo", "audit", real).code == 0
    file = tmp_path / "dump.xml"
    file.write_text(broken(real.read_text(), 5, count=count))
    answer = call("topo", "audit", file, "-o", "json")
    failed = [one for one in json.loads(answer.out) if one["verdict"] == "FAIL"]
    assert answer.code == 4 and len(failed) == 1
    assert "HOSTHASH_A" in failed[0]["subject"] and failed[0]["subject"].endswith("GPU 1")


@pytest.mark.corpus
def test_audit_of_eight_real_racks(corpus: Path) -> None:
    answer = call("topo", "audit", corpus / "topology/ibnetdiscover/topograph-example.out", "-o", "json")
    errors = [one["rule"] for one in json.loads(answer.out) if (one["verdict"], one["severity"]) == ("FAIL", "error")]
    assert answer.code == 4
    assert sorted(errors) == ["fabric/leaf-missing", "fabric/rail-crossed", "fabric/uplink-missing"]


def test_diff_of_two_sites_that_differ_in_one_nic(tmp_path: Path) -> None:
    text = (
        "name: lab\nracks:\n  r01: {switch_trays: 9}\nnodes:\n"
        "  n1: {shape: GB300, rack: r01, slot: 1}\n  n2: {shape: GB300, rack: r01, slot: 2LEAVES}\n"
    )
    designed = site_file(tmp_path, text.replace("LEAVES", ""), "designed.yaml")
    found = site_file(tmp_path, text.replace("LEAVES", ", nic_health: {1: down}"), "found.yaml")
    assert call("topo", "diff", designed, designed).code == 0
    answer = call("topo", "diff", designed, found, "-o", "json")
    failed = [one for one in json.loads(answer.out) if one["verdict"] == "FAIL"]
    assert answer.code == 4 and len(failed) == 1
    assert "n2" in failed[0]["subject"] and "NIC" in failed[0]["subject"]


@pytest.mark.parametrize("words", ["--rails", "--rack r01", ""])
def test_show_draws(captures: Path, words: str) -> None:
    answer = call("topo", "show", captures, "--ascii", *words.split())
    assert answer.code == 0 and answer.out.isascii()
    assert max(map(len, answer.out.splitlines())) <= 80


def test_show_of_an_unknown_rack(captures: Path) -> None:
    answer = call("topo", "show", captures, "--rack", "lab")
    assert answer.code == 2 and "one of r01" in answer.err


def test_show_writes_a_picture_and_a_page(captures: Path, tmp_path: Path) -> None:
    answer = call("topo", "show", captures, "--svg", tmp_path / "a.svg", "--html", tmp_path / "a.html")
    assert answer.code == 0 and sorted(os.listdir(tmp_path)) == ["a.html", "a.svg"]


def test_a_file_that_can_not_be_written_leaves_nothing(captures: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for out in (tmp_path / "folder", tmp_path / "no" / "such" / "file", Path("-")):
        answer = call("topo", "discover", captures, "--out", out)
        assert answer.code in (1, 2) and answer.err.startswith("error: ") and str(out) in answer.err
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert call("topo", "discover", site_file(tmp_path), "--out", link).code == 0
    assert link.is_symlink() and real.read_text().startswith("simulate: ")
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("words", ["topo simulate", "topo collect", "topo export --to nccl {site} --out"])
def test_a_file_where_a_folder_is_wanted(tmp_path: Path, words: str) -> None:
    words = words.format(site=site_file(tmp_path))
    answer = call(*words.split(), written(tmp_path, b"x"))
    assert answer.code == 2 and "a folder is wanted here" in answer.err


@pytest.mark.parametrize("words", ["--racks 0", "--racks 99999999999999999999", "--racks x", "--racks -1"])
def test_simulate_of_a_size_that_is_none(tmp_path: Path, words: str) -> None:
    answer = call("topo", "simulate", tmp_path / "new", *words.split())
    assert answer.code == 2 and not (tmp_path / "new").exists()


def test_collect_without_nvidia_smi(tmp_path: Path) -> None:
    # An environment of our own: the script asks whatever is there, and here nothing is.
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "tar", "gzip", "cat", "mkdir", "rm", "date", "uname", "sed", "tr", "mktemp", "hostname"):
        found = next((Path(at, tool) for at in ("/usr/bin", "/bin") if Path(at, tool).exists()), None)
        if found is not None:
            (tools / tool).symlink_to(found)
    (tmp_path / "sys").mkdir()
    out = tmp_path / "out"
    answer = end(start("topo", "collect", out, PATH=str(tools), SYSFS_ROOT=str(tmp_path / "sys")))
    assert answer.code == 0 and "not there  nvidia-smi" in answer.out
    assert len(list(out.iterdir())) == 1


def test_collect_prints_its_script() -> None:
    assert call("topo", "collect", "--print-script").out.startswith("#!/bin/sh")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_utf_8(tmp_path: Path, encoding: str) -> None:
    site = site_file(tmp_path)
    assert end(start("topo", "show", site, PYTHONIOENCODING=encoding)).out.isascii()
    data = end(start("topo", "audit", site, "-o", "yaml", PYTHONIOENCODING=encoding))
    assert data.out.isascii() and YAML(typ="safe").load(data.out)


def test_a_file_name_that_is_no_text(tmp_path: Path) -> None:
    answer = call("topo", "discover", os.fsdecode(bytes(tmp_path) + b"/caf\xe9.txt"))
    assert answer.code == 2 and "there is no such file" in answer.err


def test_help_brings_no_heavy_module() -> None:
    heavy = ("msgspec", "numpy", "ruamel", "rackyard.fabric", "rackyard.nccl", "rackyard.controller", "jinja2")
    for words in ("topo --help", "topo label --help", "nccl --help", "nccl topo --help"):
        code = f"""if True:
            import sys, contextlib, io
            from rackyard.cli import main
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                main({words.split()!r})
            print([name for name in {heavy!r} if name in sys.modules])"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n", words


def test_one_rack_of_the_short_form_is_what_it_says(tmp_path: Path) -> None:
    assert "1 rack, 18 nodes" in call("topo", "discover", site_file(tmp_path, ONE_RACK, "site.txt")).out
