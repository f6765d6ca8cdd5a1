"""What the containers of a pod wrote, from the kubelet's state folder."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from rackyard.errors import UsageError
from testbed.kubelet.processes import LOG
from testbed.kubelet.runner import Card


def find(state: Path, namespace: str, pod: str) -> Path:
    """The folder of the newest pod of that name, running or ended. UsageError when there is none."""
    found = [
        (card.since, path.parent)
        for path in (*state.glob("pods/*/pod.json"), *state.glob("ended/*/pod.json"))
        if (card := msgspec.json.decode(path.read_bytes(), type=Card)).name == pod and card.namespace == namespace
    ]
    if not found:
        raise UsageError(f"no pod {namespace}/{pod} has run here", where=str(state))
    return max(found)[1]


def runs(folder: Path, container: str = "") -> list[Path]:
    """The log of each run of a container, oldest first; of the only one where none is named."""
    parts = [path.name for path in folder.iterdir() if (path / "0").is_dir()]
    name = container or (parts[0] if len(parts) == 1 else "")
    return sorted(folder.glob(f"{name}/*/{LOG}"), key=lambda one: int(one.parent.name)) if name in parts else []


def text(folder: Path, container: str = "") -> Iterator[tuple[str, str]]:
    """`(container/run, text)` of all containers of a pod's folder, or of one, oldest run first."""
    for part in sorted(path for path in folder.iterdir() if (path / "0").is_dir()):
        if container in ("", part.name):
            for path in runs(folder, part.name):
                yield f"{part.name}/{path.parent.name}", path.read_text(encoding="utf-8", errors="replace")
