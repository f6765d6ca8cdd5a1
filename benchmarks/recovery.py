"""Seconds from the SIGKILL of one node to the first completed step: Rackyard beside torchrun elastic, in one run.

Both run `recovery_train.py` on two nodes of four ranks each, all on this machine. The node is killed whole: its
agent and its ranks, by SIGKILL. torchrun: two agents, `--nnodes=1:2`, c10d rendezvous on the surviving one; it goes
on with the four ranks that are left. Rackyard: a simulated rack of three trays; it goes on with eight ranks, the
spare tray in place of the dead one. Once with ranks forked from warm parents, and once with `warm: []`, every rank
a fresh interpreter.

    python benchmarks/recovery.py [--trials 5] [--json benchmarks/results/recovery.json]
"""

import argparse
import json
import math
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import psutil

SCRIPT = Path(__file__).with_name("recovery_train.py")
KILL_AT = 10
STEPS = 10_000
WAIT = 300.0
"""Seconds after which a trial counts as not recovered."""


class NoRecovery(RuntimeError):
    """The job did not complete a step again within the time allowed."""


def steps_in(folder: Path) -> list[tuple[float, int]]:
    """(monotonic seconds, step) of each completed step so far."""
    file = folder / "steps.txt"
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().splitlines() if line.count(" ") == 2]
    return [(float(at), int(step)) for at, step, _ in lines]


def wait_for(ready: Callable[[], float | None], what: str) -> float:
    """Poll until `ready` gives a time."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        found = ready()
        if found is not None:
            return found
        time.sleep(0.02)
    raise NoRecovery(what)


def warmed_up(folder: Path) -> float | None:
    done = steps_in(folder)
    return done[-1][0] if done and done[-1][1] >= KILL_AT else None


def after(folder: Path, moment: float) -> float | None:
    return next((at for at, _ in steps_in(folder) if at > moment + 0.5), None)


def kill_tree(pid: int) -> None:
    """SIGKILL a process and everything below it: a node that loses power."""
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def torchrun_trial(folder: Path) -> tuple[float, dict[str, float]]:
    """One kill under torchrun elastic; returns seconds to the first completed step."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=4", "--max-restarts=5",
        "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench", "HOST",
        str(SCRIPT), "--steps", str(STEPS), "--dir", str(folder),
    ]  # fmt: skip
    # A store of its own for each attempt: with the shared one (the default) torch 2.15's restarted gloo ranks found
    # the addresses of dead ranks in it, failed to connect, and often did not recover within five minutes.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    agents = []
    try:
        for number in range(2):
            log = (folder / f"agent-{number}.log").open("w")
            # The store lives on the first node, which survives: losing it would end the whole torchrun job.
            words = [f"--rdzv-conf=is_host={number == 0}" if word == "HOST" else word for word in command]
            agents.append(subprocess.Popen(words, stdout=log, stderr=log, env=env, start_new_session=True))
        wait_for(lambda: warmed_up(folder), "torchrun did not start")
        time.sleep(1.0)
        victim = agents[1]
        moment = time.monotonic()
        kill_tree(victim.pid)
        return wait_for(lambda: after(folder, moment), "torchrun did not recover") - moment, {}
    finally:
        for agent in agents:
            if agent.poll() is None:
                kill_tree(agent.pid)
            agent.wait()


def rackyard_trial(folder: Path, *, warm: bool) -> tuple[float, dict[str, float]]:
    """One kill under Rackyard; returns seconds to the first completed step and how they split."""
    (folder / "site.yaml").write_text("simulate: {racks: 1, trays: 3}\n")
    (folder / "job.yaml").write_text(
        f"name: bench\nrun: python {SCRIPT} --steps {STEPS} --dir {folder}\ngpus: 8\n"
        "segment: {gpus: 8, required: true}\nrecover: {attempts: 5, spares: 1}\n" + ("" if warm else "warm: []\n")
    )
    state = folder / "state"
    rackyard = [sys.executable, "-m", "rackyard"]
    log = (folder / "run.log").open("w")
    run = subprocess.Popen(
        [*rackyard, "run", "job.yaml", "--site", "site.yaml", "--state", str(state)],
        cwd=folder, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: warmed_up(folder), "rackyard did not start")
        if warm:
            wait_for(
                lambda: 1.0 if "warm        r01-t03" in (folder / "run.log").read_text() else None, "no warm spare"
            )
        time.sleep(1.0)
        card = json.loads((state / "nodes" / "r01-t02" / "agent.json").read_text())
        moment = time.monotonic()
        kill_tree(int(card["pid"]))
        seconds = wait_for(lambda: after(folder, moment), "rackyard did not recover") - moment
        time.sleep(1.0)
        told = subprocess.run(
            [*rackyard, "attempts", "bench", "-o", "json", "--state", str(state)], capture_output=True, check=True
        )
        parts = json.loads(told.stdout)["recoveries"][0]["parts"]
        return seconds, {name: value or 0.0 for name, value in parts.items()}
    finally:
        subprocess.run([*rackyard, "cancel", "bench", "-y", "--state", str(state)], capture_output=True, check=False)
        try:
            run.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--only", choices=["torchrun", "warm", "fresh"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    kinds: dict[str, Callable[[Path], tuple[float, dict[str, float]]]] = {
        "torchrun": torchrun_trial,
        "warm": lambda folder: rackyard_trial(folder, warm=True),
        "fresh": lambda folder: rackyard_trial(folder, warm=False),
    }
    results: dict[str, list[float]] = {kind: [] for kind in kinds if args.only in (None, kind)}
    splits: dict[str, list[dict[str, float]]] = {kind: [] for kind in results}
    # Trials take turns, so that a busy spell of the machine does not fall on one side only.
    for trial in range(args.trials):
        for kind in results:
            with tempfile.TemporaryDirectory(prefix="recovery-") as folder:
                try:
                    seconds, parts = kinds[kind](Path(folder))
                except NoRecovery as error:
                    print(f"trial {trial + 1} {kind}: {error} within {WAIT:g} s", flush=True)
                    seconds, parts = math.inf, {}
            results[kind].append(seconds)
            splits[kind].append(parts)
            print(
                f"trial {trial + 1} {kind:<9} {seconds:7.2f} s  " + "  ".join(f"{k} {v:.2f}" for k, v in parts.items()),
                flush=True,
            )
    report(results, splits, args.json)


def report(results: dict[str, list[float]], splits: dict[str, list[dict[str, float]]], file: Path | None) -> None:
    """Print the table, and keep the numbers."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"\nseconds from SIGKILL of one node to the first completed step (measured, {machine}, {date.today()})")
    base = statistics.median(results["torchrun"]) if results.get("torchrun") else None
    for kind, values in results.items():
        middle = statistics.median(values)
        ratio = f"  {middle / base:.3f} of torchrun" if base else ""
        print(f"{kind:<9} median {middle:7.2f}  min {min(values):7.2f}  max {max(values):7.2f}  n={len(values)}{ratio}")
    for kind, parts in splits.items():
        if parts and parts[0]:
            print(
                f"{kind} split, medians: "
                + "  ".join(f"{k} {statistics.median(p[k] for p in parts):.2f}" for k in parts[0])
            )
    if file is not None:
        command = " ".join(["python", "benchmarks/recovery.py", *sys.argv[1:]])
        kept = {"command": command, "machine": machine, "date": str(date.today()), "seconds": results, "splits": splits}
        file.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
