"""Checks a topology file as the NCCL of one version would load it by NCCL_TOPO_FILE.

Errors end communicator init, or make the job not worth running; warnings are what NCCL ignores or misreads without a
word; infos are worth knowing. Rules are read from NCCL's sources, 2.18 to 2.30; 2.31 as carried by torchcomms.
"""

from collections.abc import Iterator

from rackyard.findings import Evidence, Finding, Severity, Verdict
from rackyard.nccl import lintcpu, lintlinks, lintnames, lintrequired, lintshape, lintvalues
from rackyard.nccl.lintcontext import Context, Problem, Rule
from rackyard.nccl.lintnames import skipped
from rackyard.nccl.lintsyntax import Stop, read_on
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import Parsed, check_size
from rackyard.nccl.xmlrefused import printable

RULES: tuple[tuple[str, Rule], ...] = (
    *lintrequired.RULES,
    *lintcpu.RULES,
    *lintvalues.RULES,
    *lintlinks.RULES,
    *lintshape.RULES,
    *lintnames.RULES,
)
"""Every rule that looks at the tree, by the name its findings carry after `nccl-xml/`."""

_SAME_RULE = 20


def lint(data: bytes, file: str, version: Version) -> tuple[Finding, ...]:
    """What is wrong with the file, by line; empty if nothing is. UsageError for a file too large to be one."""
    check_size(data, file)
    reading = read_on(data, file, version)
    told = [_stopped(stop) for stop in reading.stops]
    if reading.parsed is None:
        unread = "the rest of the file was not checked: NCCL's reader stops, and what was meant can't be told"
        told.append(
            ("not-checked", Problem(Severity.WARNING, 0, file, unread, "correct the line above and lint again"))
        )
    else:
        told += _of_tree(reading.parsed, version)
    lines = _Lines(data)
    told.sort(key=lambda each: (each[1].line == 0, each[1].line))
    return tuple(_finding(rule, problem, file, lines) for rule, problem in told)


def _stopped(stop: Stop) -> tuple[str, Problem]:
    refusal = stop.refusal
    ends = "NCCL crashes" if refusal.crashes else f"init fails with {refusal.nccl_result}"
    message = f': "{printable(refusal.nccl_message)}"' if refusal.nccl_message else ""
    advice = _ADVICE.get(stop.rule) or refusal.fix or ""
    return stop.rule, Problem(Severity.ERROR, stop.line, stop.rule.replace("-", " "), f"{ends}{message}", advice)


_ADVICE = {
    "byte-order-mark": "save the file as UTF-8 without a byte order mark",
    "prolog": "remove the <?...?>: NCCL reads no XML declaration",
    "doctype": "remove the DOCTYPE",
    "cdata": "remove the CDATA section",
    "version": 'write <system version="1">; version 2 files are RCCL\'s and describe AMD GPUs',
    "tab": "indent and separate with blanks, not tabs",
    "line-break-in-tag": "write every tag in one line",
}


def _of_tree(parsed: Parsed, version: Version) -> Iterator[tuple[str, Problem]]:
    for note in parsed.notes:
        yield skipped(note)
    if parsed.unnoted:
        more = f"{parsed.unnoted} more elements and attributes are skipped"
        yield "skipped", Problem(Severity.WARNING, 0, "file", more, "correct those above and lint again")
    if parsed.root is None:
        what = "no system element: NCCL ignores the file without a word and detects what it can"
        yield "no-system", Problem(Severity.WARNING, 1, "file", what, 'write <system version="1"> as the root')
        return
    for second in parsed.roots[1:]:
        what = "a second system element: NCCL reads it and uses the first only"
        yield "second-system", Problem(Severity.WARNING, second.line, "system", what, "write one system element")
    context = Context(parsed.root, version, parsed.nodes)
    for name, rule in RULES:
        yield from _some(name, rule(context))


def _some(name: str, problems: Iterator[Problem]) -> Iterator[tuple[str, Problem]]:
    """The first problems of a rule, and how many more there are."""
    count = 0
    last: Problem | None = None
    for problem in problems:
        count += 1
        last = problem
        if count <= _SAME_RULE:
            yield name, problem
    if last is not None and count > _SAME_RULE:
        text = f"{count - _SAME_RULE} more of this kind"
        yield name, Problem(last.severity, 0, "file", text, last.advice)


class _Lines:
    """The text of a line of the file, for evidence."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at, self.line = 0, 1

    def text(self, line: int) -> str:
        """The line, cut to what can be shown."""
        if line < self.line:
            self.at, self.line = 0, 1
        while self.line < line:
            end = self.data.find(b"\n", self.at)
            if end < 0:
                return ""
            self.at, self.line = end + 1, self.line + 1
        end = self.data.find(b"\n", self.at)
        shown = self.data[self.at : end if end >= 0 else len(self.data)][:400]
        return printable(shown.decode("latin-1").strip())


def _finding(rule: str, problem: Problem, file: str, lines: _Lines) -> Finding:
    line = problem.line or None
    evidence = (Evidence(file, lines.text(line), line),) if line else ()
    verdict = Verdict.UNKNOWN if rule == "not-checked" else Verdict.FAIL
    name = f"nccl-xml/{rule}"
    return Finding(name, verdict, problem.severity, problem.subject, problem.summary, evidence, problem.advice)
