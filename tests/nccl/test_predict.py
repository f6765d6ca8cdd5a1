"""Predictions: what is found on good and bad topologies, and that unknown is never healthy."""

import pytest

from rackyard.findings import Finding, Severity, Verdict
from rackyard.nccl.comm import CommOptions
from rackyard.nccl.element import Element
from rackyard.nccl.predict import Prediction, predict
from rackyard.nccl.version import Version
from rackyard.nccl.xmlrefused import TopologyRefused

VERSION = Version(2, 30, 7)


def gpu(number: int, *, links: int | None = 18, c2c: bool = True, speed: str = "64.0 GT/s PCIe") -> Element:
    """One Blackwell GPU below its bridge; ``links`` None leaves the nvlink element out."""
    inside = (
        [Element("nvlink", {"target": "s", "count": str(links), "tclass": "0x068000"})] if links is not None else []
    )
    inside += [Element("c2c", {"bw": "44712", "count": "5"})] if c2c else []
    attrs = {"dev": str(number), "sm": "100", "rank": str(number), "gdr": "1"}
    return Element(
        "pci",
        {"busid": f"000{number}:06:00.0", "class": "0x030200", "link_speed": speed, "link_width": "16"},
        [Element("gpu", attrs, inside, line=10 + number)],
    )


def nic(number: int) -> Element:
    net = {
        "name": f"mlx5_{number}",
        "dev": str(number),
        "speed": "400000",
        "port": "1",
        "gdr": "1",
        "guid": hex(99 + number),
    }
    attrs = {"busid": f"001{number}:03:00.0", "class": "0x020700", "link_speed": "64.0 GT/s PCIe", "link_width": "16"}
    return Element("pci", attrs, [Element("nic", {}, [Element("net", net)])])


def tray(gpus: list[Element], *, nics: bool = True) -> Element:
    """Two CPUs, half of the GPUs and NICs at each."""
    system = Element("system", {"version": "1"})
    half = len(gpus) // 2
    for numa, part in enumerate((gpus[:half], gpus[half:])):
        devices = [nic(2 * numa + number) for number in range(len(part))] if nics else []
        cpu = {"host_hash": "0xab", "numaid": str(numa), "affinity": "f", "arch": "arm64"}
        system.children.append(Element("cpu", cpu, [*part, *devices]))
    return system


def healthy() -> Element:
    return tray([gpu(number) for number in range(4)])


def rules(prediction: Prediction) -> dict[str, Finding]:
    return {finding.rule.removeprefix("nccl-topo/"): finding for finding in prediction.findings}


def test_a_healthy_tray_passes_and_says_what_it_is_worth() -> None:
    prediction = predict(healthy(), VERSION, file="topo.xml")
    (finding,) = prediction.findings
    assert (finding.verdict, finding.severity) == (Verdict.PASS, Severity.INFO)
    assert "ring 16@45/45 NVL/PIX" in finding.summary
    assert "two nodes: ring 8@24/24 NVL/P2C" in finding.summary
    assert prediction.one.found["nvls"].n_channels == 4
    assert prediction.two_view.system.inter == 1


def test_a_gpu_without_nvlink_is_named_with_what_it_costs() -> None:
    prediction = predict(tray([gpu(0), gpu(1, links=None), gpu(2), gpu(3)]), VERSION, file="topo.xml")
    finding = rules(prediction)["fewer-nvlink"]
    assert (finding.verdict, finding.severity) == (Verdict.FAIL, Severity.ERROR)
    assert finding.subject == "GPU/0-106000 (rank 1)"
    assert "has no NVLink, its 3 peers have 18" in finding.summary
    assert "one node ring 1 channel @ 0.1 GB/s SYS, 0.0139 % of 16 channels @ 45 GB/s NVL" in finding.summary
    assert "nvls 0 channels" in finding.summary
    assert [(proof.origin, proof.line) for proof in finding.evidence] == [("topo.xml", 11)]
    assert {"fallback", "no-nvls"} <= rules(prediction).keys()
    assert not any(finding.verdict is Verdict.PASS for finding in prediction.findings)


def test_half_of_the_links_are_counted() -> None:
    finding = rules(predict(tray([gpu(0), gpu(1), gpu(2), gpu(3, links=9)]), VERSION))["fewer-nvlink"]
    assert "has 9 NVLinks, its 3 peers have 18" in finding.summary
    assert "one node ring 8 channels @ 45 GB/s NVL, 50 % of 16 channels @ 45 GB/s NVL" in finding.summary


def test_several_gpus_that_lack_the_same_are_one_finding() -> None:
    finding = rules(predict(tray([gpu(0), gpu(1, links=9), gpu(2, links=9), gpu(3)]), VERSION))["fewer-nvlink"]
    assert finding.subject == "GPU/0-106000 (rank 1), GPU/0-206000 (rank 2)"
    assert "have 9 NVLinks, their 2 peers have 18" in finding.summary


def test_c2c_and_pci_are_compared_too() -> None:
    found = rules(predict(tray([gpu(0, c2c=False), gpu(1), gpu(2, speed="2.5 GT/s PCIe"), gpu(3)]), VERSION))
    assert found["fewer-c2c"].subject == "GPU/0-6000 (rank 0)"
    assert found["fewer-pci"].subject == "GPU/0-206000 (rank 2)"
    assert found["fewer-pci"].severity is Severity.WARNING
    assert "has 3 GB/s of PCI, its 3 peers have 96" in found["fewer-pci"].summary


def test_gpus_that_are_taken_out_are_named() -> None:
    root = healthy()
    for cpu in root.children:
        cpu.attrs["host_hash"] = hex(int(cpu.attrs["numaid"]) + 1)
    found = rules(predict(root, VERSION, options=CommOptions(cliques={0: 1, 1: 2})))
    assert found["removed"].subject == "GPU/1-206000 (rank 2), GPU/1-306000 (rank 3)"


def test_without_nics_two_nodes_do_not_apply() -> None:
    prediction = predict(tray([gpu(number) for number in range(4)], nics=False), VERSION)
    found = rules(prediction)
    assert found["no-net"].verdict is Verdict.NOT_APPLICABLE
    assert found["graphs"].verdict is Verdict.PASS
    assert prediction.two.ended_at == "ring"


def test_out_of_steps_is_unknown_and_not_healthy() -> None:
    prediction = predict(healthy(), VERSION, max_steps=100)
    assert prediction.one.out_of_steps
    assert rules(prediction)["not-predicted"].verdict is Verdict.UNKNOWN
    assert not any(finding.verdict is Verdict.PASS for finding in prediction.findings)


def test_no_gpu_is_unknown() -> None:
    prediction = predict(tray([]), VERSION)
    assert [finding.verdict for finding in prediction.findings] == [Verdict.UNKNOWN]
    assert prediction.one.found == {}


def test_other_versions_are_told_apart_from_those_compared_with() -> None:
    assert "rules of 2.29.7" in rules(predict(healthy(), Version(2, 28, 3)))["version"].summary
    assert "version" not in rules(predict(healthy(), Version(2, 29, 7)))


def test_what_nccl_refuses_is_refused() -> None:
    root = healthy()
    del root.attrs["version"]
    root.children[0].children[0].children[0].children[0].attrs.pop("tclass")
    with pytest.raises(TopologyRefused):
        predict(root, VERSION)


def test_collnet_is_searched_for_on_request() -> None:
    prediction = predict(healthy(), VERSION, collnet=True)
    assert {"collnet", "collnetDirect"} <= prediction.one.found.keys()
    assert prediction.one.found["collnet"].pattern == 3
    assert prediction.two.found["collnet"].n_channels == 0
