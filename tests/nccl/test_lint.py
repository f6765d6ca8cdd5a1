"""Lint: what each rule finds, at which line, and that a good file is silent."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackyard.findings import Finding, Severity, Verdict
from rackyard.nccl.lint import RULES, lint
from rackyard.nccl.version import Version

V = Version(2, 30, 7)
GOOD = b"""<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:01:00.0" class="0x060400" vendor="0x1000" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0000:03:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:82:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
  </cpu>
</system>
"""
DUMP = b"""<system version="1">
  <cpu numaid="0" host_hash="0x1" affinity="ff" arch="arm64">
    <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
    </pci>
    <pci busid="0000:04:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="0000:05:00.0" count="18" tclass="0x068000"/></gpu>
    </pci>
    <pci busid="0000:06:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" gdr="1"/></nic>
    </pci>
  </cpu>
</system>
"""


def found(text: bytes, version: Version = V) -> list[tuple[str, str, int | None]]:
    """(rule without its prefix, severity, line) of every finding but those that any dump has."""
    shown = []
    for finding in lint(text, "topo.xml", version):
        assert finding.rule.startswith("nccl-xml/")
        assert finding.summary
        assert finding.advice
        rule = finding.rule.removeprefix("nccl-xml/")
        if rule not in ("stale-values", "links-in-file"):
            shown.append((rule, finding.severity.value, finding.evidence[0].line if finding.evidence else None))
    return shown


def only(text: bytes, rule: str, version: Version = V) -> Finding:
    return next(finding for finding in lint(text, "topo.xml", version) if finding.rule == f"nccl-xml/{rule}")


@pytest.mark.parametrize("version", ["2.18.1", "2.21.5", "2.27.7", "2.29.7", "2.30.7", "2.31.0", "2.32.0"])
def test_good_files_are_silent(version: str) -> None:
    assert found(GOOD, Version.parse(version)) == []
    assert found(DUMP, Version.parse(version)) == []


def test_rules_have_their_own_names() -> None:
    names = [name for name, _ in RULES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("old", "new", "rule", "severity", "line"),
    [
        (b'busid="0000:03:00.0"', b'busid="0000:0A:00.0"', "busid", "warning", 5),
        (b'busid="0000:03:00.0"', b'busid="03:00.0"', "busid", "warning", 5),
        (b'"0000ffff"', b'"0-15"', "affinity", "warning", 2),
        (b'"0000ffff"', b'"00000000"', "affinity", "warning", 2),
        (b'"0000ffff"', b'""', "affinity", "warning", 2),
        (b'"x86_64"', b'"aarch64"', "arch", "warning", 2),
        (b'"GenuineIntel"', b'"Intel"', "vendor", "warning", 2),
        (b'modelid="143"', b'modelid="173"', "vendor", "info", 2),
        (b' modelid="143"', b"", "missing-model", "error", 2),
        (b' numaid="0"', b"", "missing-id", "error", 2),
        (b' numaid="0"', b' numaid="one"', "numaid", "warning", 2),
        (b' numaid="0"', b' numaid="-1"', "numaid", "warning", 2),
        (b' numaid="0"', b' numaid="1"', "numaid", "warning", 8),
        (b' numaid="0"', b' numaid="0" host_hash="0xHOST"', "host-hash", "warning", 2),
        (b"32.0 GT/s PCIe", b"32.0 GT/s", "link-speed", "warning", 3),
        (b"32.0 GT/s PCIe", b"", "link-speed", "warning", 3),
        (b"32.0 GT/s PCIe", b"128.0 GT/s PCIe", "link-speed", "warning", 3),
        (b'width="16"', b'width="08"', "link-width", "warning", 3),
        (b'width="16"', b'width="-1"', "link-width", "warning", 3),
        (b'width="16"', b'width="7"', "link-width", "warning", 3),
        (b' busid="0000:02:00.0"', b"", "missing-id", "error", 4),
        (b' class="0x060400"', b"", "missing-class", "warning", 3),
        (b'"0000:01:00.0" class="0x060400"', b'"ffff:ff:01.0"', "missing-class", "error", 3),
        (b'"0x060400"', b'"0x010802"', "unknown-class", "info", 3),
        (b'class="0x060400"', b'class="0x060400" keep="1"', "keep", "warning", 3),
        (b'vendor="0x1000"', b'vendr="0x1000"', "unknown-attribute", "warning", 3),
        (b'vendor="0x1000"', b'vendor="0x1000" zzz="1"', "unknown-attribute", "info", 3),
        (b'vendor="0x1000"', b'vendor="0x1000" class="x"', "duplicate-attribute", "warning", 3),
        (b"  <cpu", b"  <gpus/><cpu", "unknown-element", "warning", 2),
        (b"  <cpu", b"  <gpu/><cpu", "misplaced", "warning", 2),
        (b'version="1"', b'version="0x1"', "version-text", "info", 1),
        (b'"0000:03:00.0"', b'"0000:02:00.0"', "twice", "warning", 5),
        (b'="0x020700"', b'="0x020700" x', "no-value", "warning", 5),
    ],
)
def test_one_change_one_finding(old: bytes, new: bytes, rule: str, severity: str, line: int) -> None:
    assert (rule, severity, line) in found(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "rule", "severity", "line"),
    [
        (b'count="18"', b'count="17"', "uneven-nvlinks", "warning", 4),
        (b'count="18"', b'count="0"', "uneven-nvlinks", "error", 4),
        (b'count="18"', b'count="0"', "link-count", "warning", 4),
        (b'<nvlink target="0000:05:00.0" count="18" tclass="0x068000"/>', b"", "uneven-nvlinks", "error", 4),
        (b' count="18"', b"", "missing-on-link", "error", 4),
        (b"<nvlink", b'<c2c bw="44712"/><nvlink', "missing-on-link", "error", 4),
        (b'"0000:05:00.0"', b'"0000:07:00.0"', "nvswitch-islands", "warning", 7),
        (b'"0x068000"', b'"0x123456"', "link-class", "warning", 4),
        (b'"0000:05:00.0" count="18" tclass="0x068000"', b'"0000:04:00.0" count="18" tclass="0x03"', "direct-nvlink",
         "error", 4),
        (b'"0000:05:00.0" count="18" tclass="0x068000"', b'"0000:02:00.0" count="18" tclass="0x03"', "direct-nvlink",
         "error", 4),
        (b'"0000:05:00.0" count="18" tclass="0x068000"', b'"0000:99:00.0" count="18" tclass="0x03"', "direct-nvlink",
         "warning", 4),
        (b"32.0 GT/s PCIe", b"2.5 GT/s PCIe", "idle-gpu", "warning", 3),
        (b'"0x030200"', b'"0x060400"', "gpu-class", "error", 3),
        (b'"0000:02:00.0"', b'"0000:02:00.1"', "gpu-function", "error", 3),
        (b'speed="400000"', b'speed="400"', "net-speed", "warning", 10),
        (b'speed="400000"', b'speed="-1"', "net-speed", "warning", 10),
        (b' dev="0" speed', b" speed", "no-device", "warning", 10),
        (b'name="mlx5_0" ', b"", "no-device", "warning", 10),
        (b"<net", b'<net name="mlx5_0" dev="1"/><net', "twice", "warning", 10),
        (b"<nic>", b"<nic/><nic>", "no-device", "warning", 10),
        (b'dev="1"', b'dev="0"', "twice", "warning", 7),
        (b"<nvlink", b"<xgmi/><nvlink", "unknown-element", "warning", 4),
    ],
)  # fmt: skip
def test_dumps(old: bytes, new: bytes, rule: str, severity: str, line: int) -> None:
    assert (rule, severity, line) in found(DUMP.replace(old, new, 1))


def test_a_dump_as_file_hides_faults() -> None:
    finding = only(DUMP, "links-in-file")
    assert finding.severity is Severity.WARNING
    assert finding.evidence[0].line == 4
    assert "nvlink" in finding.evidence[0].text


def test_complete_or_bare() -> None:
    link = b' link_speed="32.0 GT/s PCIe" link_width="16"'
    nets = GOOD.replace(b'0x020700"' + link + b"/>", b'0x020700"' + link + b'><nic><net name="n"/></nic></pci>')
    assert found(nets) == []
    assert found(nets.replace(b' affinity="0000ffff"', b"")) == [("complete-or-bare", "warning", 2)]
    assert found(nets.replace(b' arch="x86_64"', b"", 1)) == [("complete-or-bare", "error", 2)]
    assert found(GOOD.replace(b' affinity="0000ffff"', b"")) == []


def test_versions_differ() -> None:
    amd = GOOD.replace(b'GenuineIntel" familyid="6" modelid="143"', b'AuthenticAMD" familyid="25"')
    assert found(amd, V) == []
    assert {rule for rule, _, _ in found(amd, Version(2, 31))} == {"missing-model"}
    bare = DUMP.replace(b' tclass="0x068000"', b"")
    assert {severity for _, severity, _ in found(bare, V)} == {"warning"}
    assert {severity for _, severity, _ in found(bare, Version(2, 31))} == {"error"}
    moved = DUMP.replace(b'"0x030200"', b'"0x060400"', 1)
    assert found(moved, Version(2, 29, 7)) == [("gpu-class", "warning", 3)]
    c2c = DUMP.replace(b"<nvlink", b'<c2c bw="1" count="1"/><nvlink')
    assert found(c2c, Version(2, 18, 1)) == [("newer-element", "info", 4), ("newer-element", "info", 7)]
    cx8 = GOOD.replace(b'class="0x020700"', b'class="0x020700" vendor="0x15b3" device="0x1023"')
    assert found(cx8, V) == []
    assert found(cx8, Version(2, 31)) == [("connectx-8", "info", 5)]


def test_all_faults_of_the_reader_are_told() -> None:
    text = b'<?xml version="1.0"?>\n' + GOOD.replace(b"  ", b"\t").replace(b" familyid", b"\nfamilyid", 1)
    assert found(text) == [("prolog", "error", 1), ("tab", "error", 3), ("line-break-in-tag", "error", 3)]


@pytest.mark.parametrize(
    ("before", "rule"),
    [(b"\xef\xbb\xbf", "byte-order-mark"), (b"<!DOCTYPE system>\n", "doctype"), (b'<?xml version="1.0"?>', "prolog")],
)
def test_what_stands_before_the_root(before: bytes, rule: str) -> None:
    assert found(before + GOOD) == [(rule, "error", 1)]


def test_what_can_not_be_read_on_is_not_called_good() -> None:
    findings = lint(GOOD.replace(b"</cpu>", b"</cpux>"), "topo.xml", V)
    assert [finding.rule for finding in findings] == ["nccl-xml/closing-tag", "nccl-xml/not-checked"]
    assert findings[1].verdict is Verdict.UNKNOWN


def test_files_that_say_nothing() -> None:
    assert found(b"") == [("no-system", "warning", 1)]
    assert found(b'<system version="1"/>') == [("empty", "info", 1)]
    assert ("no-system", "warning", 1) in found(b'<graphs version="1"></graphs>')
    assert found(GOOD + GOOD) == [("second-system", "warning", 12)]


def test_limits() -> None:
    for bridges, told in ((70, False), (71, True)):
        chain = b'<pci busid="0000:01:00.0" class="0x060400">' * bridges + b"<pci/>" + b"</pci>" * bridges
        deep = b'<system version="1"><cpu numaid="0">' + chain + b"</cpu></system>"
        assert (("bridge-depth", "error", 1) in found(deep)) is told
    many = GOOD.replace(b"  </cpu>", b'<pci busid="0000:01:00.0" class="0x060400"/>' * 250 + b"</cpu>", 1)
    assert "node-limit" in {rule for rule, _, _ in found(many)}
    full = GOOD.replace(b"  </cpu>", b'<pci busid="0000:01:00.0" class="0x060400"/>' * 246 + b"</cpu>", 1)
    assert "room" in {rule for rule, _, _ in found(full)}
    extra = b" ".join(b'x%d="1"' % number for number in range(14))
    wide = DUMP.replace(b"<net ", b"<net " + extra + b" ")
    assert ("attribute-room", "error", 10) in found(wide)


def test_many_of_a_kind_are_counted() -> None:
    many = GOOD.replace(b"  </cpu>", b'<pci busid="X" class="0x060400"/>' * 50 + b"</cpu>", 1)
    rules = [finding for finding in lint(many, "f", V) if finding.rule == "nccl-xml/busid"]
    assert len(rules) == 21
    assert rules[-1].summary == "30 more of this kind"


def test_several_hosts_become_one() -> None:
    two = DUMP.replace(b"</system>\n", DUMP[DUMP.index(b"  <cpu") :].replace(b"0x1", b"0x2", 1))
    assert found(two) == [("several-hosts", "warning", 13)]


def test_fuzz(fuzz: Callable[..., None]) -> None:
    seeds = [GOOD, DUMP, b'<?xml version="1.0"?>\n' + GOOD.replace(b"  ", b"\t"), b"<!DOCTYPE x><![CDATA[a]]>" + DUMP]
    fuzz(lambda data: lint(data, "f", V), seeds)
    fuzz(lambda data: lint(data, "f", Version(2, 31)), seeds, seed=2)


@pytest.mark.corpus
def test_no_errors_in_good_real_files(corpus: Path) -> None:
    files = [
        path for path in sorted((corpus / "topology" / "nccl_topo").glob("*/*.xml")) if "amd" not in path.parent.name
    ]
    assert len(files) >= 9
    for path in files:
        for version in (Version(2, 18, 1), V, Version(2, 32)):
            errors = [f for f in lint(path.read_bytes(), path.name, version) if f.severity is Severity.ERROR]
            assert errors == [], path.name


@pytest.mark.corpus
def test_every_refusal_of_the_corpus_is_an_error(corpus: Path) -> None:
    """Whatever stops NCCL's reader is an error; faults that NCCL would complete on a host are not."""
    for result in sorted((corpus / "topology" / "nccl_oracle" / "synthetic").glob("*.json")):
        recorded = json.loads(result.read_bytes())
        stage = recorded["result"]["stage"]
        if stage in ("parse", "paths") and recorded["outcome"] != "ok":
            findings = lint(result.with_suffix(".xml").read_bytes(), result.name, V)
            # A bus id that is none, and a tclass that is unknown, may be meant for another machine: a warning.
            assert any(finding.severity is not Severity.INFO for finding in findings), result.name
            assert stage == "paths" or any(f.severity is Severity.ERROR for f in findings), result.name
