"""`nvidia-smi nvlink -s`: the links of each GPU with their rate, or why they have none.

A link that is up gives its rate (`Link 3: 53.125 GB/s`, one direction); any other word (`<inactive>`, `Disabled`,
`Sleep`) or a rate of zero is a link that is not up. Where none is up, many drivers print one sentence instead of links.
"""

import re
from functools import lru_cache

from rackyard.fabric.facts import Facts, GpuFact, Source
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.readers.smi_fields import complaint, unreachable

NAME = "nvidia-smi-nvlink"

_STATE = r"(?:\d+(?:\.\d+)? ?GB/s|<\w+>|Disabled|Sleep|Off|Inactive|N/A)"
_SHOWS = re.compile(
    rf"^GPU \d+:[^\n]*\n(?:\s*\n)*\s*(?:Link \d+: {_STATE}|NVML: Unable to retrieve NVLink)", re.M | re.I
)
_SHOWS_ALL_DOWN = re.compile(r"^GPU \d+:.*NVML: Unable to retrieve NVLink information", re.M | re.I)
_GPU = re.compile(r"^[^\S\n]*GPU (\d{1,4}): ([^\n]*)$", re.M)
_UUID = re.compile(r"(.*?)\s*\(UUID: ([^)\s]+)\)")
_LINK = re.compile(r"Link \d+: ([^\n]*)")
_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?GB/s")
_ALL_DOWN = re.compile(r"all links are in-?active", re.I)


def _knows(head: str, file: str) -> bool:
    if "GPU " not in head or ("Link " not in head and "link information" not in head):
        return False
    return _SHOWS.search(head) is not None or _SHOWS_ALL_DOWN.search(head) is not None


def read(capture: Capture) -> Facts:
    """One GpuFact a GPU with links, links_seen and link_gbps (the slowest of those up, in GB/s a direction).

    The source is the line of the first link that is not up, and the GPU's own line when all are.
    """
    text = text_of(capture)
    facts = Facts()
    starts = list(_GPU.finditer(text))
    line, at = 1, 0
    for number, match in enumerate(starts):
        line += text.count("\n", at, match.start())
        at = match.start()
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        facts.gpus.append(_gpu(capture, text, match, (line, end)))
    if not starts:
        for number, row in enumerate(text.split("\n"), 1):
            if complaint(row):
                facts.findings.append(unreachable(capture.node, Source(NAME, capture.file, number, row)))
    return facts


def _gpu(capture: Capture, text: str, match: re.Match[str], place: tuple[int, int]) -> GpuFact:
    line, end = place
    up, seen, slowest, down = _links(text[match.end() : end])
    proof = match[0]
    if down is not None:
        at = match.end() + down
        line += text.count("\n", match.start(), at)
        proof = text[at : text.find("\n", at) if "\n" in text[at:end] else end]
    named = _UUID.match(match[2])
    silent = not seen and not _ALL_DOWN.search(text, match.start(), end)
    return GpuFact(
        node=capture.node,
        source=Source(NAME, capture.file, line, proof.strip()),
        index=int(match[1]),
        uuid=named[2] if named else None,
        product=(named[1] if named else match[2].strip()) or None,
        links=None if silent else up,
        links_seen=seen or None,
        link_gbps=slowest,
    )


@lru_cache(256)
def _links(block: str) -> tuple[int, int, float | None, int | None]:
    """Of the lines below a GPU: links up, links seen, the slowest rate, and where the first that is not up stands."""
    words = _LINK.findall(block)
    up, slowest = 0, None
    for word in set(words):
        if rate := _rate(word):
            up += words.count(word)
            slowest = rate if slowest is None else min(slowest, rate)
    if up == len(words):
        return up, up, slowest, None
    down = next(link for link in _LINK.finditer(block) if not _rate(link[1]))
    return up, len(words), slowest, down.start()


@lru_cache(256)
def _rate(word: str) -> float:
    """GB/s of one link in one direction; 0 for one that is not up."""
    match = _RATE.fullmatch(word.strip())
    return float(match[1]) if match else 0.0


READER = Reader(NAME, _knows, read)
