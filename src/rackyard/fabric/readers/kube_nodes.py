"""Kubernetes nodes: `kubectl get nodes -o json` or `-o yaml`, `kubectl get --raw /api/v1/nodes`, one node, or a node
a line.

What a label means comes from the table of label keys (`labelkeys.toml`). Only the fields used here are decoded: a
node of a real cluster is 20 KB of JSON, most of it images and managed fields.
"""

import re
from collections.abc import Iterator

import msgspec

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import Facts, HostFact, Source
from rackyard.fabric.labelkeys import KeyTable, shipped
from rackyard.fabric.model import Health
from rackyard.fabric.readers.kube_labels import Labels, Meanings
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.yamlread import read

NAME = "kube-nodes"

GPU = "nvidia.com/gpu"
"""The resource of the NVIDIA device plugin. It takes an unhealthy GPU out of what is allocatable, not out of the
capacity.
"""

_PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_KIND = re.compile(r"""(?:^|[\s{,])["']?kind["']?\s*:\s*["']?(Node|NodeList)["']?\s*(?:[,}\r\n]|$)""")
_DOCUMENT = re.compile(r"^---[^\n]*\n?", re.MULTILINE)
_BYTE = re.compile(r"\(byte (\d+)\)")


class _Meta(msgspec.Struct, gc=False):
    name: str
    labels: dict[str, str] | None = None


class _Taint(msgspec.Struct, gc=False):
    key: str = ""
    effect: str = ""
    value: str | None = None


class _Spec(msgspec.Struct, gc=False):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _Info(msgspec.Struct, gc=False, rename="camel"):
    kernel_version: str = ""


class _Gpus(msgspec.Struct, gc=False):
    gpus: str | int | None = msgspec.field(default=None, name=GPU)


class _Status(msgspec.Struct, gc=False, rename="camel"):
    conditions: list[_Condition] | None = None
    capacity: _Gpus | None = None
    allocatable: _Gpus | None = None
    node_info: _Info | None = None


class _Node(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None


class _Top(msgspec.Struct, gc=False):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


_top = msgspec.json.Decoder(_Top)
_node = msgspec.json.Decoder(_Node, strict=False)


def parse(capture: Capture, table: KeyTable | None = None) -> Facts:
    """A host for each node that has GPUs or a label of the table; for every node where none has. SpecError for what
    is no list of nodes. A second label that says otherwise than the first gives a second record of the host.
    """
    table = shipped() if table is None else table
    data = capture.data.removeprefix(b"\xef\xbb\xbf")
    meanings = Meanings(table)
    nodes = _json(data, capture.file) if data.lstrip()[:1] == b"{" else _yaml(text_of(capture), capture.file)
    facts, others = Facts(), list[HostFact]()
    for node, line in nodes:
        hosts, known = _hosts(node, Source(NAME, capture.file, line), meanings)
        (facts.hosts if known else others).extend(hosts)
    if not facts.hosts:
        facts.hosts = others
    return facts


def _json(data: bytes, file: str) -> Iterator[tuple[_Node, int]]:
    try:
        top = _top.decode(data)
    except msgspec.DecodeError as error:
        if "trailing" in str(error):
            yield from _lines(data, file)
            return
        raise _broken(error, data, file) from None
    except RecursionError:
        raise SpecError("the JSON is nested too deep", where=Where(file)) from None
    if top.items is None:
        if top.kind != "Node":
            raise SpecError(
                f"not a list of nodes but {top.kind[:60]!r}", where=Where(file, 1), fix="kubectl get nodes -o json"
            )
        yield _decoded(data, data, 0, file), 1
        return
    at, line = 0, 1
    for raw in top.items:
        head = bytes(memoryview(raw)[:400])
        start = max(data.find(head, at), at)
        line += data.count(b"\n", at, start)
        at = start
        yield _decoded(raw, data, start, file), line


def _lines(data: bytes, file: str) -> Iterator[tuple[_Node, int]]:
    start = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield _decoded(line, data, start, file), number
        start += len(line) + 1


def _decoded(item: bytes | msgspec.Raw, data: bytes, start: int, file: str) -> _Node:
    try:
        return _node.decode(item)
    except msgspec.DecodeError as error:
        raise _broken(error, data, file, start) from None
    except RecursionError:
        raise SpecError("the JSON is nested too deep", where=Where(file)) from None


def _broken(error: msgspec.DecodeError, data: bytes, file: str, start: int = 0) -> SpecError:
    found = _BYTE.search(str(error))
    at = start + (int(found[1]) if found else 0)
    line = data.count(b"\n", 0, at) + 1
    where = Where(file, line, at - data.rfind(b"\n", 0, at) if found else None)
    what = "a node is not as Kubernetes writes it" if isinstance(error, msgspec.ValidationError) else "not JSON"
    return SpecError(what, where=where, why=str(error)[:200], fix="kubectl get nodes -o json")


def _yaml(text: str, file: str) -> Iterator[tuple[_Node, int]]:
    marks = [match.span() for match in _DOCUMENT.finditer(text)]
    starts = [0, *(end for _, end in marks)]
    ends = [*(begin for begin, _ in marks), len(text)]
    for start, end in zip(starts, ends, strict=True):
        part = text[start:end]
        if not part.strip():
            continue
        above = text.count("\n", 0, start)
        try:
            top = read(part, file, "list of nodes", "apiVersion: v1")
            found = top.entries()
            for item in found["items"].items() if "items" in found else [top]:
                line = item.line + above
                try:
                    yield msgspec.convert(item.plain(), _Node, strict=False), line
                except msgspec.ValidationError as error:
                    where = Where(file, line)
                    raise SpecError(
                        "a node is not as Kubernetes writes it", where=where, why=str(error)[:200]
                    ) from None
        except SpecError as error:
            if above and isinstance(error.where, Where) and error.where.line and part is not text:
                raise _moved(error, above) from None
            raise


def _moved(error: SpecError, above: int) -> SpecError:
    where = error.where
    assert isinstance(where, Where)
    assert where.line is not None
    moved = where if error.what.startswith("a node") else Where(where.file, where.line + above, where.column)
    return SpecError(error.what, where=moved, why=error.why, fix=error.fix)


def _hosts(node: _Node, source: Source, meanings: Meanings) -> tuple[list[HostFact], bool]:
    """The records of one node, and whether anything shows that it belongs to the fabric."""
    name = node.metadata.name
    labels = node.metadata.labels or {}
    status = node.status or _Status()
    found = Labels(meanings)
    for key, value in labels.items():
        found.take(key, value)
    first, rest = found.records()
    text = found.proof() or f"name: {name}"
    host = HostFact(
        node=name,
        source=Source(source.reader, source.file, source.line, text),
        product=labels.get("nvidia.com/gpu.product"),
        driver=_driver(labels),
        kernel=(status.node_info.kernel_version if status.node_info else "") or None,
        health=_health(status),
        cordoned=_cordoned(node.spec),
        tiers=found.tiers(),
        labels=tuple(found.kept),
        **first,  # type: ignore[arg-type]  # fields of HostFact with values of their types
    )
    more = [
        HostFact(node=name, source=Source(source.reader, source.file, source.line, label), **{key: value})  # type: ignore[arg-type]
        for label, key, value in rest
    ]
    known = bool(found.kept) or _count(status.capacity) is not None or "nvidia.com/gpu.product" in labels
    return [host, *more], known


def _health(status: _Status) -> Health | None:
    """Down or unknown as the kubelet says. A kubelet that is ready knows nothing of GPUs: only the device plugin's
    count does.
    """
    told = {condition.type: condition.status for condition in status.conditions or ()}
    if "Ready" in told and told["Ready"] != "True":
        return Health.DOWN if told["Ready"] == "False" else Health.UNKNOWN
    if any(told.get(name) == "True" for name in _PRESSURES):
        return Health.DEGRADED
    whole, usable = _count(status.capacity), _count(status.allocatable)
    if "Ready" not in told or not whole or usable is None:
        return None
    return Health.HEALTHY if usable >= whole else Health.DEGRADED


def _count(resources: _Gpus | None) -> int | None:
    text = "" if resources is None or resources.gpus is None else str(resources.gpus)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None


def _cordoned(spec: _Spec | None) -> str | None:
    if spec is None or not spec.unschedulable:
        return None
    keys = [
        f"{taint.key}={taint.value}" if taint.value else taint.key
        for taint in spec.taints or ()
        if taint.effect in ("NoSchedule", "NoExecute") and taint.key not in ("node.kubernetes.io/unschedulable", GPU)
    ]
    return f"unschedulable in Kubernetes ({', '.join(keys)})" if keys else "unschedulable in Kubernetes"


def _driver(labels: dict[str, str]) -> str | None:
    """GPU feature discovery: `cuda.driver-version.full` since 0.17, three labels before and still."""
    full = labels.get("nvidia.com/cuda.driver-version.full")
    parts = [labels.get(f"nvidia.com/cuda.driver.{part}", "") for part in ("major", "minor", "rev")]
    return full or (".".join(part for part in parts if part) if parts[0] else None)


def _read(capture: Capture) -> Facts:
    return parse(capture)


def _knows(head: str, file: str) -> bool:
    del file
    return bool(_KIND.search(head))


READER = Reader(NAME, _knows, _read)
