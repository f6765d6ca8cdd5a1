"""CPU time of the commands that must answer at once: `--help`, and `ps` on a store of a thousand jobs.

Each is run ten times as a process of its own, and the median is compared with its limit. Python's compiled modules
are kept in a temporary folder and made by one run before, as on a machine where Rackyard was used before. With
`--cold` Python compiles every module anew, as where it may not write (PYTHONDONTWRITEBYTECODE); that has no limit.

    python benchmarks/cli_start.py [--cold] [--json benchmarks/results/cli_start.json]

Exit code 1 when a limit is missed.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from rackyard.controller.home import Home
from rackyard.jobs.events import Submitted
from rackyard.jobs.specfile import parse_spec

RUNS = 10
JOBS = 1000


def fill(folder: Path) -> None:
    """A store of JOBS jobs that wait."""
    home = Home(folder)
    spec = parse_spec("name: many\nrun: 'true'\ngpus: 8\n").to_dict()
    for number in range(JOBS):
        home.store.create(Submitted(job=f"many-{number:04x}", spec=spec, workdir="/", site=""))


def measure(words: list[str], env: dict[str, str]) -> tuple[float, float, int]:
    """Median CPU and wall milliseconds of a command over RUNS runs, and the lines it printed."""
    cpu, wall, lines = [], [], 0
    for _ in range(RUNS):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([sys.executable, "-m", "rackyard", *words], env=env, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append(time.monotonic() - began)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        lines = done.stdout.count(b"\n")
    return statistics.median(cpu) * 1000, statistics.median(wall) * 1000, lines


def main() -> None:
    """Measure, print the table, and end with 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch) / "state"
        fill(state)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(Path(scratch) / "bytecode")
        if given.cold:
            env["PYTHONDONTWRITEBYTECODE"] = "1"
        commands: list[tuple[str, list[str], int | None, int | None]] = [
            ("rackyard --help", ["--help"], 150, None),
            ("rackyard ps --help", ["ps", "--help"], 150, None),
            (f"rackyard ps, {JOBS} jobs", ["ps", "--state", str(state)], 500, 500),
        ]
        for name, words, cpu_limit, wall_limit in commands:
            subprocess.run([sys.executable, "-m", "rackyard", *words], env=env, capture_output=True, check=True)
            cpu, wall, lines = measure(words, env)
            rows.append({"command": name, "cpu_ms": round(cpu), "wall_ms": round(wall), "lines": lines}
                        | {"cpu_limit_ms": cpu_limit, "wall_limit_ms": wall_limit})  # fmt: skip
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    bytecode = "compiled anew each time" if given.cold else "compiled modules kept"
    print(f"median of {RUNS} runs, {bytecode}; {machine}; load {load}; {date.today()}")
    print(f"{'command':<28}{'CPU ms':>8}{'limit':>8}{'wall ms':>9}{'limit':>8}{'lines':>7}")
    for row in rows:
        limits = (row["cpu_limit_ms"] or "-", row["wall_limit_ms"] or "-")
        print(f"{row['command']:<28}{row['cpu_ms']:>8}{limits[0]:>8}{row['wall_ms']:>9}{limits[1]:>8}{row['lines']:>7}")
    if given.json:
        about = {"date": str(date.today()), "machine": machine, "load": load, "bytecode": bytecode, "runs": RUNS}
        given.json.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")
    pairs = [(row[f"{kind}_ms"], row[f"{kind}_limit_ms"]) for row in rows for kind in ("cpu", "wall")]
    missed = not given.cold and any(limit is not None and value > limit for value, limit in pairs)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
