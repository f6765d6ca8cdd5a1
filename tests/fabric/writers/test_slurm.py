"""Slurm's files: the groups come back, the text comes back, and slurmctld itself takes the tree."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.fabric.discover.run import discover
from rackyard.fabric.facts import Facts
from rackyard.fabric.model import Site
from rackyard.fabric.readers import ibnetdiscover, slurm_conf, slurm_yaml
from rackyard.fabric.readers.reader import Capture, Reader
from rackyard.fabric.writers import slurm_block, slurm_tree
from rackyard.fabric.writers import slurm_yaml as slurm_yaml_writer

ReadBack = Callable[[Facts], Site]
FORMATS: list[tuple[Callable[[Site], str], Reader]] = [
    (slurm_tree.write, slurm_conf.READER),
    (slurm_block.write, slurm_conf.READER),
    (slurm_yaml_writer.write, slurm_yaml.READER),
]


@pytest.mark.parametrize(("write", "reader"), FORMATS)
@settings(max_examples=60)
@given(data=st.data())
def test_the_same_text_comes_back(
    faulty: st.SearchStrategy[Site],
    odd: st.SearchStrategy[Site],
    read_back: ReadBack,
    write: Callable[[Site], str],
    reader: Reader,
    data: st.DataObject,
) -> None:
    site = data.draw(faulty | odd)
    text = write(site)
    assert reader.knows(text[:4096], "f")
    facts = reader.read(Capture("f", text.encode()))
    assert {fact.node for fact in facts.hosts} == {node.name for node in site.nodes}
    assert write(read_back(facts)) == text


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_node_is_in_the_tree_once(
    faulty: st.SearchStrategy[Site], odd: st.SearchStrategy[Site], data: st.DataObject
) -> None:
    site = data.draw(faulty | odd)
    switches = slurm_tree.switches(site)
    assert sorted(name for switch in switches for name in switch.nodes) == sorted(node.name for node in site.nodes)
    assert all(len(switch.name) <= 64 for switch in switches)
    assert len({switch.name for switch in switches}) == len(switches)
    children = [child for switch in switches for child in switch.children]
    assert sorted(children) == sorted(switch.name for switch in switches[1:])


def test_racks_are_leaf_groups() -> None:
    site = simulate(2, 18, 5)
    lines = [line for line in slurm_tree.write(site).splitlines() if not line.startswith("#")]
    assert lines == [
        "SwitchName=simulated Switches=r[01-02],h[01-02]",
        "SwitchName=r01 Nodes=r01-t[01-18]",
        "SwitchName=r02 Nodes=r02-t[01-18]",
        "SwitchName=h01 Nodes=hgx-[01-04]",
        "SwitchName=h02 Nodes=hgx-05",
    ]


def test_a_crossed_cable_does_not_join_two_racks() -> None:
    site = simulate(2, 4)
    tray = site.nodes[0]
    wrong = replace(tray.nics[3], leaf="leaf-3-r02")
    crossed = replace(site, nodes=(replace(tray, nics=(*tray.nics[:3], wrong)), *site.nodes[1:]))
    assert slurm_tree.write(crossed) == slurm_tree.write(site)


def test_a_short_rack_keeps_the_base_of_the_others() -> None:
    site = simulate(4, 18)
    short = replace(site, nodes=tuple(node for node in site.nodes if node.name != "r02-t07"))
    text = slurm_block.write(short)
    assert "BlockSizes=18,36,72\n" in text
    assert "BlockName=r02 Nodes=r02-t[01-06,08-18]" in text
    assert "Smaller than the base: r02 (17)." in text
    assert "Smaller" not in slurm_block.write(site)
    assert "BlockSizes=17,34,68\n" in slurm_block.write(short, base=17)


def test_servers_do_not_set_the_base_of_racks() -> None:
    assert "BlockSizes=18,36,72,144\n" in slurm_block.write(simulate(2, 18, 40))


def test_names_that_slurm_can_not_read_are_refused() -> None:
    site = simulate(1, 2)
    named = replace(site, nodes=(replace(site.nodes[0], name="a[1]"), site.nodes[1]))
    for write, _ in FORMATS:
        with pytest.raises(UsageError, match="hostlist"):
            write(named)
        with pytest.raises(UsageError, match="no nodes"):
            write(replace(site, nodes=()))
    with pytest.raises(UsageError, match="too small"):
        slurm_block.write(site, base=0)


def test_the_order_of_nodes_does_not_change_the_text() -> None:
    site = simulate(1, 12)
    assert slurm_tree.write(replace(site, nodes=site.nodes[::-1])) == slurm_tree.write(site)


@pytest.mark.corpus
def test_the_faults_of_the_eight_rack_fabric_divide_no_rack(corpus: Path) -> None:
    file = corpus / "topology" / "ibnetdiscover" / "topograph-example.out"
    site = discover([Capture(file.name, file.read_bytes())], [ibnetdiscover.READER]).site
    top, *racks = slurm_tree.switches(site)
    assert list(top.children) == [rack.name for rack in site.racks]
    assert len(racks) == 8
    for switch in racks:
        assert {site.node(name).rack for name in switch.nodes} == {switch.name}
    assert "BlockSizes=18,36,72,144\n" in slurm_block.write(site)
    for write, reader in FORMATS:
        facts = reader.read(Capture("f", write(site).encode()))
        assert sorted({fact.node for fact in facts.hosts}) == sorted(node.name for node in site.nodes)


SLURM_CONF = """\
ClusterName=rackyard
SlurmctldHost=localhost(127.0.0.1)
CommunicationParameters=NoCtldInAddrAny
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
TopologyPlugin=topology/tree
MpiDefault=none
NodeName={nodes} NodeAddr=127.0.0.1 Port=[20001-{last}] CPUs=1
PartitionName=all Nodes=ALL Default=YES
"""


@pytest.mark.skipif(
    not (shutil.which("slurmctld", path=f"{os.environ.get('PATH', '')}:/usr/sbin") and shutil.which("scontrol")),
    reason="slurmctld and scontrol are not installed",
)
def test_slurmctld_takes_the_tree(tmp_path: Path, free_port: int) -> None:
    site = simulate(3, 4, 5)
    switches = slurm_tree.switches(site)
    nodes = [node.name for node in site.nodes]
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path / "state").mkdir()
    (tmp_path / "topology.conf").write_text(slurm_tree.write(site))
    (tmp_path / "slurm.conf").write_text(
        SLURM_CONF.format(port=free_port, user=user, folder=tmp_path, nodes=",".join(nodes), last=20000 + len(nodes))
    )
    slurmctld = shutil.which("slurmctld", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert slurmctld is not None
    environment = os.environ | {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([slurmctld, "-D", "-c"], env=environment, stdout=log, stderr=log)
    try:
        shown = ""
        for _ in range(60):
            if process.poll() is not None:
                break
            asked = subprocess.run(
                ["scontrol", "-o", "show", "topology"], env=environment, capture_output=True, text=True
            )
            if asked.returncode == 0 and "SwitchName" in asked.stdout:
                shown = asked.stdout
                break
            time.sleep(0.25)
    finally:
        process.terminate()
        process.wait(20)
    told = (tmp_path / "log").read_text(errors="replace")
    if "auth/none" in told and not shown:
        pytest.skip("this slurmctld has no auth/none plugin, so it can't run without munge")
    assert shown, told[-3000:]
    assert "lack access" not in told
    assert "Multiple leaf" not in told
    rows = dict(row.split(None, 1) for row in shown.splitlines() if row.strip())
    assert set(rows) == {f"SwitchName={switch.name}" for switch in switches}
    for switch in switches:
        level = 1 if switch.children else 0
        assert f"Level={level} " in rows[f"SwitchName={switch.name}"]
