"""What NCCL writes, a log or a dump of its topology, as facts for `topo discover`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rackyard.fabric.discover import discover
from rackyard.fabric.expect import audit
from rackyard.fabric.model import Health
from rackyard.fabric.readers.reader import Capture, head_of
from rackyard.findings import Finding, Verdict
from rackyard.nccl import dumpread, logread
from rackyard.nccl.readers import READERS

UUID = "d1bf1f0a9d51f4b4.6252a7a002914462"
LOG = f"""warming up
tray-7:4242:4242 [2] NCCL INFO NCCL version 2.29.7+cuda13.0
tray-7:4242:4242 [2] NCCL INFO MNNVL rack serial 1822725100300 slot 26 tray 16 hostId 1 peerType 1 moduleId 3
tray-7:4242:4242 [2] NCCL INFO MNNVL busId 0x1806000 fabric UUID {UUID} cliqueId 0x7fe state 3 healthMask 0x1aa
tray-7:4243:4243 [3] NCCL INFO MNNVL busId 0x1906000 fabric UUID {UUID} cliqueId 0x7fe state 2 healthMask 0x1a9
""".encode()

LINKS = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'


def dump(links: str = LINKS) -> Capture:
    """A tray of four GPUs; the links of GPU 1 are as given."""
    lines = [
        '<system version="1">',
        '  <cpu host_hash="0xc0ffee" numaid="0" affinity="ff,ffffffff,ffffffff" arch="arm64">',
    ]
    for dev in range(4):
        own = links if dev == 1 else LINKS
        lines.append(f'    <pci busid="000{dev}:06:00.0" class="0x030200" link_speed="64.0 GT/s PCIe" link_width="16">')
        lines += [
            f'      <gpu dev="{dev}" sm="103" rank="{dev}" gdr="1">',
            f"        {own}",
            "      </gpu>",
            "    </pci>",
        ]
    lines += [
        "    <nic>",
        '      <net name="mlx5_0" dev="0" speed="800000" port="1" guid="0x2c5eab0300b87b40" gdr="1"/>',
        "    </nic>",
        "  </cpu>",
        "</system>",
        "",
    ]
    return Capture("topo.xml", "\n".join(lines).encode(), "")


def failed(capture: Capture) -> list[Finding]:
    return [one for one in audit(discover([capture], READERS)) if one.verdict is Verdict.FAIL]


def test_a_log_tells_clique_state_mask_and_place() -> None:
    first, second = logread.read(Capture("log", LOG)).gpus
    assert (first.node, first.pci, first.clique_id, first.fabric_state) == (
        "tray-7",
        "0018:06:00.0",
        0x7FE,
        "completed",
    )
    assert (first.chassis, first.slot, first.tray, first.module_id) == ("1822725100300", 26, 16, 3)
    assert first.source.line == 4
    # The longs are little-endian, so the bytes of each come out in reverse.
    assert first.cluster_uuid == "b4f4519d-0a1f-bfd1-6244-9102a0a75262"
    assert (second.fabric_state, second.health_mask, second.chassis) == ("in-progress", 0x1A9, None)
    site = discover([Capture("log", LOG)], READERS).site
    assert [gpu.health for gpu in site.node("tray-7").gpus] == [Health.HEALTHY, Health.DEGRADED]


def test_a_dump_tells_the_links_that_nccl_counted() -> None:
    facts = dumpread.read(dump())
    assert [(gpu.node, gpu.index, gpu.pci, gpu.links) for gpu in facts.gpus] == [
        ("host-0xc0ffee", dev, f"000{dev}:06:00.0", 18) for dev in range(4)
    ]
    (nic,) = facts.nics
    assert (nic.name, nic.guid, nic.gbps) == ("mlx5_0", "2c5eab0300b87b40", 800.0)
    (cpu,) = facts.cpus
    assert (cpu.cpus, cpu.arch) == ("0-71", "arm64")
    assert failed(dump()) == []


@pytest.mark.parametrize("links", ["", '<nvlink target="fffffff:ff:ff.0" count="0" tclass="0x068000"/>'])
def test_a_gpu_without_links_is_named(links: str) -> None:
    (one,) = failed(dump(links))
    assert one.rule == "fabric/gpu-links"
    assert "host-0xc0ffee" in one.subject and "GPU 1" in one.subject
    assert one.severity.value == "error"
    assert any(line.line is not None for line in one.evidence)


@pytest.mark.corpus
def test_the_dead_gpu_of_a_real_dump_is_named(corpus: Path) -> None:
    file = corpus / "topology" / "nccl_topo" / "gb300" / "mnnvl_topo_2tray_0405.xml"
    healthy = file.read_bytes()
    assert failed(Capture(str(file), healthy)) == []
    at = healthy.index(b'count="18"', healthy.index(b'count="18"') + 1)
    (one,) = failed(Capture(str(file), healthy[:at] + b'count="0"' + healthy[at + 10 :]))
    assert one.rule == "fabric/gpu-links" and "GPU 1" in one.subject


def test_masks_of_cpus() -> None:
    assert dumpread.cpu_list("0000ffff,ffffffff,ffffff00,00000000,00000000") == "72-143"
    assert dumpread.cpu_list("5") == "0,2"
    assert dumpread.cpu_list("0-15") == ""


def test_a_damaged_log_is_read(fuzz: Callable[..., None]) -> None:
    fuzz(lambda data: logread.read(Capture("log", data)), [LOG, LOG * 3])


def test_a_damaged_dump_is_read_or_refused(fuzz: Callable[..., None]) -> None:
    fuzz(lambda data: dumpread.read(Capture("topo.xml", data)), [dump().data, dump("").data])


def test_each_knows_its_own() -> None:
    log, topo = Capture("log", LOG), dump()
    assert [reader.name for reader in READERS if reader.knows(head_of(log), "log")] == ["nccl-log"]
    assert [reader.name for reader in READERS if reader.knows(head_of(topo), "topo.xml")] == ["nccl-topology"]
