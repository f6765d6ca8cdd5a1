"""Mixed versions: HCA firmware by board, VBIOS by GPU product, driver and kernel by product. One finding a group."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rackyard.fabric.expect.context import Context, most
from rackyard.fabric.expect.majority import by_count, pattern
from rackyard.fabric.expect.parts import GpuView, NicView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.facts import HostFact, Source
from rackyard.findings import Finding, Severity


class _Version(NamedTuple):
    """A version that a part of a group has; `field` of `part` says it."""

    group: str
    value: str
    node: str
    part: NicView | GpuView | HostFact
    field: str

    @property
    def where(self) -> str:
        """The node, and the part of it."""
        return self.node if isinstance(self.part, HostFact) else f"{self.node} {self.part.label}"

    @property
    def source(self) -> Source:
        """The line that says it."""
        return self.part.source if isinstance(self.part, HostFact) else self.part.source(self.field)


Versions = Callable[[Context], Iterable[_Version]]


def _nics(ctx: Context) -> Iterator[_Version]:
    # The PSID names the board and so the firmware image; without it the type is the best there is.
    for node, nic in ctx.nics():
        fact = nic.fact
        if fact.firmware:
            yield _Version(fact.board_id or fact.hca_type or "HCA", fact.firmware, node.name, nic, "firmware")


def _vbios(ctx: Context) -> Iterator[_Version]:
    for node, gpu in ctx.gpus():
        if gpu.fact.vbios:
            yield _Version(node.family, gpu.fact.vbios, node.name, gpu, "vbios")


def _drivers(ctx: Context) -> Iterator[_Version]:
    return _host(ctx, "driver")


def _kernels(ctx: Context) -> Iterator[_Version]:
    return _host(ctx, "kernel")


def _host(ctx: Context, name: str) -> Iterator[_Version]:
    for node in ctx.nodes.values():
        value = most([getattr(host, name) for host in node.hosts])
        if value:
            host = next(host for host in node.hosts if getattr(host, name) == value)
            yield _Version(node.family, str(value), node.name, host, name)


def _checker(versions: Versions, what: str, advice: str) -> Callable[[Rule, Context], list[Finding]]:
    def check(rule: Rule, ctx: Context) -> list[Finding]:
        groups: dict[str, list[_Version]] = defaultdict(list)
        for version in versions(ctx):
            groups[version.group].append(version)
        if not groups:
            return [rule.unknown("site", f"no capture tells the {what}", "run `rackyard topo collect` on the nodes")]
        counts = {group: Counter([one.value for one in groups[group]]) for group in sorted(groups)}
        findings = [_mixed(rule, what, advice, groups[group]) for group in counts if len(counts[group]) > 1]
        shown = "; ".join(f"{group}: {by_count(counted)}" for group, counted in counts.items())
        return rule.close(findings, f"{what} is one version in each group ({shown})")

    return check


def _mixed(rule: Rule, what: str, advice: str, versions: list[_Version]) -> Finding:
    versions.sort(key=lambda one: (one.node, one.where))
    counts = Counter(one.value for one in versions)
    usual = pattern(counts)
    odd = [one for one in versions if one.value != usual]
    first = {one.value: one for one in reversed(versions)}
    text = f"{what} is mixed: {by_count(counts)}"
    if usual is None:
        text += "; no version prevails"
    else:
        text += f"; {listed(one.where for one in odd)} differ from the {counts[usual]} with {usual}"
    proof = [one.source for one in odd[:4]] if usual else []
    return rule.fail(versions[0].group, text, [*proof, *(first[value].source for value in sorted(first))], advice)


RULES = (
    Rule(
        "fabric/nic-firmware",
        Severity.WARNING,
        "HCAs of one board run one firmware",
        _checker(
            _nics, "HCA firmware", "bring the odd ones to the version of the rest (`mlxfwmanager`), a node at a time"
        ),
    ),
    Rule(
        "fabric/vbios",
        Severity.WARNING,
        "GPUs of one product carry one VBIOS",
        _checker(
            _vbios, "VBIOS", "bring the odd ones to the version of the rest; a replaced tray often comes with another"
        ),
    ),
    Rule(
        "fabric/driver",
        Severity.WARNING,
        "nodes with the same GPUs run one driver",
        _checker(
            _drivers,
            "driver",
            "finish the upgrade, or keep jobs from spanning both; IMEX wants one version in a domain",
        ),
    ),
    Rule(
        "fabric/kernel",
        Severity.WARNING,
        "nodes with the same GPUs run one kernel",
        _checker(_kernels, "kernel", "finish the upgrade, or keep jobs from spanning both versions"),
    ),
)
