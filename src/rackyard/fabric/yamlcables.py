"""The NVLink map of a rack in YAML: one line for each GPU, one text for each of its links.

    nvlinks:
    - {node: r01-t01, gpu: 0, links: ["0:r01-s1:0:12:0", "1:r01-s1:1:12:1", "2:r01-s2:0:12:2:down"]}

A link is `<port>:<switch tray>:<ASIC>:<port there>:<plane>`, with `:down` where not both ends see it.
"""

from collections.abc import Iterable
from itertools import groupby

from rackyard.fabric.model import NvCable
from rackyard.fabric.yamlread import Value, flow, flow_list, scalar

_FORM = "<port>:<switch tray>:<ASIC>:<port there>:<plane>, as in 0:r01-s1:0:12:0"


def dump_cables(cables: Iterable[NvCable]) -> list[str]:
    """The lines of a list of GPUs, in order; cables of one GPU that stand together share a line."""
    lines = []
    for (node, gpu), own in groupby(cables, key=lambda cable: (cable.node, cable.gpu)):
        links = flow_list(scalar(_text(cable)) for cable in own)
        lines.append(flow({"node": scalar(node), "gpu": str(gpu), "links": links}))
    return lines


def load_cables(value: Value) -> list[NvCable]:
    """The cables of one GPU. SpecError for a link in another form."""
    found = value.fields(("node", "gpu", "links"))
    node, gpu = found["node"].text(), found["gpu"].integer(-1)
    return [_cable(node, gpu, part) for part in found["links"].items()]


def _text(cable: NvCable) -> str:
    down = "" if cable.up else ":down"
    return f"{cable.port}:{cable.switch_tray}:{cable.asic}:{cable.switch_port}:{cable.plane}{down}"


def _cable(node: str, gpu: int, value: Value) -> NvCable:
    text = value.text()
    body = text.removesuffix(":down")
    port, _, rest = body.partition(":")
    parts = [port, *rest.rsplit(":", 3)]
    if len(parts) != 5 or not all(_is_number(part) for part in (parts[0], *parts[2:])):
        value.fail(f"{text[:60]!r} is not an NVLink", fix=_FORM)
    return NvCable(node, gpu, int(port), parts[1], int(parts[2]), int(parts[3]), int(parts[4]), body == text)


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 10
