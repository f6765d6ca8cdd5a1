"""The warm server that forks ranks, and small real file systems where mounting is permitted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

RANKS = Path(__file__).with_name("ranks.py")

Ranks = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def server() -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(RANKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert json.loads(process.stdout.readline()) == {"threads": 1}
        yield process
        process.stdin.close()


@pytest.fixture
def ranks(server: "subprocess.Popen[str]") -> Ranks:
    """Call `ranks(name, world=2, **args)`: run a function of ranks.py on forked ranks.

    All must end well, or with `killed` at least one by SIGKILL.
    """

    def call(do: str, *, world: int = 2, killed: bool = False, **args: Any) -> dict[str, Any]:
        assert server.stdin is not None and server.stdout is not None
        told = {key: str(value) if isinstance(value, Path) else value for key, value in args.items()}
        server.stdin.write(json.dumps({"do": do, "world": world, "args": told}) + "\n")
        server.stdin.flush()
        answer: dict[str, Any] = json.loads(server.stdout.readline())
        codes = answer["codes"]
        assert -9 in codes if killed else codes == [0] * world, "\n".join(answer["logs"])
        return answer

    return call


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Call `mounted("size=1m")` for a tmpfs of its own; skips where mounting is not permitted."""
    places: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"mount-{len(places)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", str(place)], check=True)
