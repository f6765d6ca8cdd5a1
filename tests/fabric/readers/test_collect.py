"""collect.sh run for real under /bin/sh, with a made-up sysfs tree and a fake nvidia-smi; and the same tree walked."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rackyard import collect
from rackyard.errors import RackyardError, UsageError
from rackyard.fabric.facts import Facts
from rackyard.fabric.readers import bundle, smi_nvlink, smi_q, smi_query, smi_topo, sysfs_lspci, sysfs_table, sysfs_tree
from rackyard.fabric.readers.reader import Capture, head_of
from rackyard.findings import Verdict

READERS = [
    smi_query.READER,
    smi_q.READER,
    smi_nvlink.READER,
    smi_topo.READER,
    sysfs_table.READER,
    sysfs_lspci.READER,
]

FAKE_SMI = r"""#!/bin/sh
# A stand-in that prints made-up text. OLD_DRIVER knows no fabric fields.
card='0, GPU-0, NVIDIA GB300, 00000008:01:00.0, 284208 MiB, 580.95.05, 97.1, 165, 6, 6, 16, 16'
rack='Completed, Success, 7, 0f0e0d0c-0000-4000-8000-000000000001, 1820025180411, 12, 4, 1, 2, 0x593ac6c850427ec6'
case "$*" in
*platform.*--format=csv*)
    if [ "${OLD_DRIVER:-}" ]; then echo 'Field "fabric.state" is not a valid field to query.'; exit 2; fi
    echo "${1#--query-gpu=}"; echo "$card, $rack" ;;
*--format=csv*) echo "${1#--query-gpu=}"; echo "$card" ;;
'nvlink -s') printf 'GPU 0: NVIDIA GB300 (UUID: GPU-0)\n\t Link 0: 53.125 GB/s\n' ;;
'topo -m') printf '\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-71\t0\n' ;;
-q) printf '==============NVSMI LOG==============\nAttached GPUs : 1\nGPU 00000008:01:00.0\n    GPU UUID : GPU-0\n' ;;
*) echo "Driver is too old for $*" >&2; exit 3 ;;
esac
"""


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A made-up Grace tray: a GPU and a two-port HCA behind bridges, an NVMe drive, a USB controller nobody wants."""
    root = tmp_path / "sys"
    devices = root / "devices"

    def function(path: str, kind: str, vendor: str = "0x10de") -> Path:
        folder = devices / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("class", kind), ("vendor", vendor), ("device", "0x1234"), ("numa_node", "0")):
            (folder / name).write_text(f"{text}\n")
        (folder / "max_link_speed").write_text("64.0 GT/s PCIe\n")
        link(root / "bus/pci/devices" / folder.name, folder)
        return folder

    function("pci0008:00/0008:00:00.0", "0x060400")
    function("pci0008:00/0008:00:00.0/0008:01:00.0", "0x030200")
    function("pci0000:00/0000:00:00.0", "0x060400")
    hca = function("pci0000:00/0000:00:00.0/0000:03:00.0", "0x020700", "0x15b3")
    function("pci0001:00/0001:01:00.0", "0x010802", "0x144d")
    function("pci0000:00/0000:00:14.0", "0x0c0330", "0x8086")
    for port, name in enumerate(("ibp3s0", "ibp3s0d1")):
        (hca / "net" / name).mkdir(parents=True)
        (hca / "net" / name / "dev_port").write_text(f"{port}\n")
        link(hca / "net" / name / "device", hca)
        link(root / "class/net" / name, hca / "net" / name)
    (devices / "virtual/net/lo").mkdir(parents=True)
    link(root / "class/net/lo", devices / "virtual/net/lo")
    device = hca / "infiniband/mlx5_0"
    for port, state in ((1, "4: ACTIVE"), (2, "1: DOWN")):
        folder = device / "ports" / str(port)
        folder.mkdir(parents=True)
        for name, text in (("rate", "400 Gb/sec (4X NDR)"), ("state", state), ("link_layer", "InfiniBand")):
            (folder / name).write_text(f"{text}\n")
    (device / "node_guid").write_text("946d:ae03:00f1:2a44\n")
    (device / "fw_ver").write_text("40.45.1020\n")
    link(device / "device", hca)
    link(root / "class/infiniband/mlx5_0", device)
    for node, cpus in ((0, "0-71"), (2, "")):
        (devices / f"system/node/node{node}").mkdir(parents=True)
        (devices / f"system/node/node{node}/cpulist").write_text(f"{cpus}\n")
    return root


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "sys/kernel").mkdir(parents=True)
    (folder / "sys/kernel/hostname").write_text("rack1-t02\n")
    (folder / "sys/kernel/osrelease").write_text("6.8.0-64k\n")
    (folder / "cpuinfo").write_text(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: X\n\n"
    )
    return folder


def run(tmp_path: Path, *words: str, smi: str | None = FAKE_SMI, **env: str) -> tuple[str, list[Capture]]:
    """Run the script with only the tools of the system and the fake nvidia-smi: what it printed and what it packed."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    if smi is not None:
        (tools / "nvidia-smi").write_text(smi)
        (tools / "nvidia-smi").chmod(0o755)
    script = tmp_path / "collect.sh"
    script.write_text(collect.script())
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        ["/bin/sh", str(script), *words, str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tools}:/usr/bin:/bin", "TMPDIR": str(tmp_path), **env},
    )
    assert (done.returncode, done.stderr) == (0, "")
    path = Path(done.stdout.splitlines()[-1])
    assert re.fullmatch(r"rackyard-[\w.-]+-\d{8}T\d{6}Z\.tar\.gz", path.name)
    assert [entry.name for entry in out.iterdir()] == [path.name]
    captures = bundle.unpack(Capture(path.name, path.read_bytes()))
    path.unlink()
    return done.stdout, captures


def read(captures: list[Capture]) -> Facts:
    facts = Facts()
    for capture in captures:
        (reader,) = [reader for reader in READERS if reader.knows(head_of(capture), capture.file)]
        facts.add(reader.read(capture))
    return facts


def names(captures: list[Capture]) -> list[str]:
    return sorted(capture.file.rpartition("/")[2] for capture in captures)


def test_a_whole_node(tmp_path: Path, sysfs: Path) -> None:
    said, captures = run(tmp_path, SYSFS_ROOT=str(sysfs), PROC_ROOT=str(proc(tmp_path)))
    assert names(captures) == ["nvlink.txt", "query.csv", "sysfs.tsv", "topo.txt"]
    assert {capture.node for capture in captures} == {"rack1-t02"}
    facts = read(captures)
    assert [(pci.bdf, pci.parent, pci.pci_class) for pci in facts.devices()] == [
        ("0000:00:00.0", "", "0x060400"),
        ("0000:03:00.0", "0000:00:00.0", "0x020700"),
        ("0001:01:00.0", "", "0x010802"),
        ("0008:00:00.0", "", "0x060400"),
        ("0008:01:00.0", "0008:00:00.0", "0x030200"),
    ]
    assert [(nic.name, nic.port, nic.netdev, nic.pci, nic.numa, nic.state, nic.guid) for nic in facts.nics] == [
        ("mlx5_0", 1, "ibp3s0", "0000:03:00.0", 0, "ACTIVE", "946dae0300f12a44"),
        ("mlx5_0", 2, "ibp3s0d1", "0000:03:00.0", 0, "DOWN", "946dae0300f12a44"),
    ]
    assert [(cpu.numa, cpu.cpus, cpu.vendor, cpu.model) for cpu in facts.cpus] == [(0, "0-71", "GenuineIntel", 143)]
    assert {host.kernel for host in facts.hosts} == {"6.8.0-64k", None}
    query, nvlink, topo = (next(g for g in facts.gpus if g.source.reader == n) for n in _SOURCES)
    assert (query.clique_id, query.slot, query.memory_mib, nvlink.links, topo.cpus) == (7, 12, 284208, 1, "0-71")
    assert "lldpctl" in said
    assert "got        RDMA ports: 2" in said


_SOURCES = (smi_query.NAME, smi_nvlink.NAME, smi_topo.NAME)


def test_the_script_asks_for_the_fields_that_the_reader_expects(tmp_path: Path, sysfs: Path) -> None:
    _, captures = run(tmp_path, SYSFS_ROOT=str(sysfs))
    query = next(capture for capture in captures if capture.file.endswith("query.csv"))
    assert query.data.decode().splitlines()[0] == ",".join(smi_query.FIELDS)


def test_an_old_driver_falls_back_to_the_long_log(tmp_path: Path, sysfs: Path) -> None:
    said, captures = run(tmp_path, SYSFS_ROOT=str(sysfs), OLD_DRIVER="1")
    assert names(captures) == ["nvlink.txt", "query.csv", "smi-q.txt", "sysfs.tsv", "topo.txt"]
    (query,) = (gpu for gpu in read(captures).gpus if gpu.source.reader == smi_query.NAME)
    assert (query.memory_mib, query.clique_id, query.slot) == (284208, None, None)
    assert "refused    nvidia-smi --query-gpu (fabric, platform): Field" in said


def test_full_adds_what_there_is(tmp_path: Path, sysfs: Path) -> None:
    said, captures = run(tmp_path, "--full", SYSFS_ROOT=str(sysfs))
    assert "smi-q.txt" in names(captures)
    assert "refused    nvidia-smi -q -x: Driver is too old for -q -x" in said


def test_a_lost_gpu_reaches_the_reader(tmp_path: Path, sysfs: Path) -> None:
    lost = "#!/bin/sh\necho 'Unable to determine the device handle for GPU0008:01:00.0: GPU is lost.'\nexit 15\n"
    _, captures = run(tmp_path, smi=lost, SYSFS_ROOT=str(sysfs))
    assert "query.csv" in names(captures)
    facts = smi_query.read(next(capture for capture in captures if capture.file.endswith("query.csv")))
    assert facts.findings[0].rule == "fabric/gpu-unreachable"


def test_this_machine_and_a_node_without_anything(tmp_path: Path) -> None:
    said, captures = run(tmp_path, smi=None)
    assert "sysfs.tsv" in names(captures)
    read([capture for capture in captures if capture.file.endswith("sysfs.tsv")])
    said, captures = run(tmp_path, smi=None, SYSFS_ROOT="/nonexistent", PROC_ROOT="/nonexistent")
    assert "not there  RDMA devices" in said
    assert list(sysfs_table.read(captures[-1]).devices()) == []


def test_wrong_words_are_refused(tmp_path: Path) -> None:
    for words in (["--everything"], [str(tmp_path / "missing")]):
        done = subprocess.run(["/bin/sh", "-s", "--", *words], input=collect.script(), capture_output=True, text=True)
        assert done.returncode == 2
        assert "collect.sh:" in done.stderr


def test_run_script_on_this_host(tmp_path: Path) -> None:
    path, said = collect.run_script(tmp_path)
    assert path.parent == tmp_path and bundle.is_bundle(path.read_bytes())
    assert len(said.splitlines()) > 3
    with pytest.raises(RackyardError, match="nothing was collected"):
        collect.run_script(tmp_path / "missing")


def test_the_walked_tree_says_the_same_as_the_table(tmp_path: Path, sysfs: Path) -> None:
    _, captures = run(tmp_path, SYSFS_ROOT=str(sysfs))
    table = sysfs_table.read(next(capture for capture in captures if capture.file.endswith("sysfs.tsv")))
    tree = collect.walk(sysfs, proc=proc(tmp_path))
    walked = sysfs_tree.facts_of("n1", tree.files, tree.links, origin=tree.root)

    def bare(facts: Facts) -> list[tuple[object, ...]]:
        nics = [
            (nic.name, nic.port, nic.netdev, nic.pci, nic.numa, nic.guid, nic.state, nic.gbps) for nic in facts.nics
        ]
        wanted = {pci.bdf for pci in table.devices()}
        return nics + sorted(
            (pci.bdf, pci.parent, pci.pci_class, pci.speed_max) for pci in facts.devices() if pci.bdf in wanted
        )

    assert bare(walked) == bare(table)
    assert "0000:00:14.0" in {pci.bdf for pci in walked.pci}


def test_a_copied_part_of_a_tree(tmp_path: Path, sysfs: Path) -> None:
    shutil.copytree(sysfs / "class/infiniband", tmp_path / "copy", ignore=shutil.ignore_patterns("device"))
    tree = collect.walk(tmp_path / "copy")
    facts = sysfs_tree.facts_of("n1", tree.files, tree.links)
    assert [(nic.name, nic.port, nic.pci) for nic in facts.nics] == [("mlx5_0", 1, None), ("mlx5_0", 2, None)]


def test_links_out_of_the_tree_are_not_followed(tmp_path: Path, sysfs: Path) -> None:
    outside = tmp_path / "0009:01:00.0"
    outside.mkdir()
    (outside / "class").write_text("0x030200\n")
    link(sysfs / "bus/pci/devices/0009:01:00.0", outside)
    assert not any("0009" in path for path in collect.walk(sysfs).files)
    with pytest.raises(UsageError, match="no folder"):
        collect.walk(tmp_path / "missing")


def test_a_host_with_gpus_but_without_the_package(tmp_path: Path, sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    facts = collect.look(sys_root=sysfs, proc_root=tmp_path / "proc")
    (finding,) = facts.findings
    assert (finding.rule, finding.verdict, len(facts.nics)) == ("fabric/nvml-unasked", Verdict.UNKNOWN, 2)


def test_this_host_in_place() -> None:
    facts = collect.look()
    assert facts.hosts[-1].kernel
    assert facts.gpus == [] or facts.gpus[0].uuid
