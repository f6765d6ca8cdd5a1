"""What the ranks of the tests do, and the warm server that forks them. Run by path: `python ranks.py`.

The server imports torch once, starts no thread, and forks two ranks a request, as Rackyard's own agent does.
It reads one JSON request a line: {"do": name, "world": n, "args": {...}}; it answers one JSON line:
{"codes": [exit codes], "results": [JSON values], "logs": [output of each rank]}.
"""

import errno
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what the first optimizer would import, four seconds in every rank
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as dsd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rackyard import worker
from rackyard.checkpoint import Checkpointer, publish, saving, writer
from rackyard.errors import CheckpointError

LIMIT_S = 50


def model(seed: int, width: int = 16) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.GELU(), torch.nn.Linear(width, 3))


def train(net: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        torch.manual_seed(1000 + step)
        net(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, dict[str, Any]]:
    net = DistributedDataParallel(model(seed))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01 * (seed + 1))
    return net, optimizer, {"model": net, "optimizer": optimizer, "step": 0, "note": f"seed {seed}"}


def sharded(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    net = model(seed, width=7)  # not divisible by the number of ranks
    fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


def table(value: Any) -> dict[str, Any]:
    """All tensors and values by path, whole, as numbers that JSON keeps exactly."""
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    if isinstance(value, torch.Tensor):
        return {"": value.detach().double().tolist()}
    if isinstance(value, dict):
        return {f"{key}/{rest}": leaf for key, child in value.items() for rest, leaf in table(child).items()}
    return {"": value}


def tiny(value: float) -> dict[str, Any]:
    return {"w": torch.full((64,), value), "step": int(value)}


def save_tiny(directory: str, steps: list[int], keep: int = 3) -> None:
    with Checkpointer(directory, keep=keep, on_error="raise") as ck:
        for step in steps:
            ck.save(step, tiny(float(step)), {"rank": dist.get_rank()})


def load_tiny(directory: str) -> dict[str, Any]:
    damage: list[str] = []
    worker.report_damage = lambda path, why: damage.append(why)  # type: ignore[assignment]
    ck = Checkpointer(directory)
    found, state = ck.latest(), tiny(0.0)
    extras = ck.load(found, state) if found else {}
    return {"step": found.step if found else None, "w": state["w"][0].item(), "extras": extras, "damage": damage}


def round_trip_ddp(directory: str) -> dict[str, Any]:
    net, optimizer, state = ddp(0)
    train(net, optimizer, 3)
    mine = {"rank": dist.get_rank(), "rng": torch.get_rng_state(), "python": random.getstate()}
    state["step"] = 3
    reports: list[int] = []
    saving.worker.report_checkpoint = lambda step, path, seconds: reports.append(step)  # type: ignore[assignment]
    ck = Checkpointer(directory, on_error="raise")
    ck.save(3, state, mine)
    before = table({"m": net.state_dict(), "o": optimizer.state_dict()})
    train(net, optimizer, 2)  # while it is being written
    ck.wait()
    net2, optimizer2, state2 = ddp(1)
    found = ck.latest()
    assert found is not None
    extras = ck.load(found, state2)
    after = table({"m": net2.state_dict(), "o": optimizer2.state_dict()})
    train(net2, optimizer2, 2)  # the same as if nothing had happened
    ahead = [table({"m": n.state_dict(), "o": o.state_dict()}) for n, o in ((net, optimizer), (net2, optimizer2))]
    return {
        "same": before == after,
        "same_ahead": ahead[0] == ahead[1],
        "values": [state2["step"], state2["note"]],
        "extras": extras["rank"] == dist.get_rank() and torch.equal(extras["rng"], mine["rng"]),
        "python": extras["python"] == mine["python"],
        "reports": reports,
        "world_size": found.world_size,
    }


def save_fsdp(directory: str) -> dict[str, Any]:
    net, optimizer = sharded(0)
    train(net, optimizer, 3)
    with Checkpointer(directory, on_error="raise") as ck:
        ck.save(3, {"model": net, "optimizer": optimizer})
    return table({"m": net.state_dict(), "o": optimizer.state_dict()})


def load_fsdp(directory: str) -> dict[str, Any]:
    net, optimizer = sharded(1)
    ck = Checkpointer(directory)
    found = ck.latest()
    assert found is not None
    ck.load(found, {"model": net, "optimizer": optimizer})
    return table({"m": net.state_dict(), "o": optimizer.state_dict()})


def state_dict_fsdp(directory: str) -> bool:
    """With the state dicts that torch's own helpers make, by parameter names."""
    net, optimizer = sharded(0)
    train(net, optimizer, 2)
    model_state, optimizer_state = dsd.get_state_dict(net, optimizer)
    ck = Checkpointer(directory, on_error="raise")
    ck.save(2, {"model": model_state, "optimizer": optimizer_state})
    net2, optimizer2 = sharded(1)
    model2, optimizer_state2 = dsd.get_state_dict(net2, optimizer2)
    found = ck.latest()
    assert found is not None
    ck.load(found, {"model": model2, "optimizer": optimizer_state2})
    dsd.set_state_dict(net2, optimizer2, model_state_dict=model2, optim_state_dict=optimizer_state2)
    return table({"m": net.state_dict(), "o": optimizer.state_dict()}) == table(
        {"m": net2.state_dict(), "o": optimizer2.state_dict()}
    )


def background(directory: str) -> dict[str, Any]:
    """save() returns before anything is published, and what is saved is what the state was then."""
    gate, publish_now = Path(directory) / ".gate", saving.publish

    def held(*args: Any) -> Path:
        while not gate.exists():
            time.sleep(0.005)
        return publish_now(*args)

    saving.publish = held  # type: ignore[assignment]
    ck, state = Checkpointer(directory, on_error="raise"), tiny(1.0)
    ck.save(1, state)
    early = sorted(path.name for path in Path(directory).glob("step-*"))
    state["w"].fill_(9.0)
    dist.barrier()
    gate.touch()
    ck.wait()
    return {"early": early, **load_tiny(directory)}


def killed(directory: str, when: str) -> None:
    """Die by SIGKILL on the last rank while writing, or on rank 0 between writing and publishing."""
    ck = Checkpointer(directory)

    def die(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    if when == "write" and dist.get_rank() == dist.get_world_size() - 1:
        writer.HashingFile.flush = die  # type: ignore[method-assign]
    if when == "publish":
        saving.publish = die  # type: ignore[assignment]
    if when == "rename":
        publish._set_aside = die  # type: ignore[assignment]
    ck.save(2, tiny(2.0))
    ck.wait()


def full_disk(directory: str, policy: str, how: str) -> dict[str, Any]:
    """Step 1 fits, step 2 doesn't on the last rank, step 3 does again."""
    ck = Checkpointer(directory, on_error=policy)  # type: ignore[arg-type]
    ck.save(1, tiny(1.0))
    ck.wait()
    restore = _refuse_writing(how) if dist.get_rank() == dist.get_world_size() - 1 else None
    ck.save(2, {**tiny(2.0), "big": torch.zeros(300_000)})
    error = ""
    try:
        ck.wait()
    except CheckpointError as raised:
        error = str(raised)
    last_error = str(ck.last_error)
    if restore is not None:
        restore()
    ck.save(3, tiny(3.0))
    ck.wait()
    return {"error": error, "last_error": last_error, "names": sorted(os.listdir(directory))}


def _refuse_writing(how: str) -> Any:
    import resource

    if how == "rlimit":
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, old)
    real = writer.HashingFile.flush

    def full(self: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer.HashingFile.flush = full  # type: ignore[method-assign]
    return lambda: setattr(writer.HashingFile, "flush", real)


def opens(directory: str) -> str:
    try:
        Checkpointer(directory)
    except CheckpointError as error:
        return str(error)
    return ""


def stalls(directory: str, width: int) -> dict[str, Any]:
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(6)])
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(2, width)).sum().backward()
    optimizer.step()
    ck, times = Checkpointer(directory, on_error="raise"), []
    for step in range(1, 6):
        ck.save(step, {"model": net, "optimizer": optimizer})
        ck.wait()
        assert ck.last is not None
        times.append([ck.last.stall, ck.last.write, ck.last.bytes])
    began = time.monotonic()
    found = ck.latest()
    verified = time.monotonic()
    assert found is not None
    ck.load(found, {"model": net, "optimizer": optimizer})
    parameters = sum(p.numel() for p in net.parameters())
    return {"times": times, "verify": verified - began, "load": time.monotonic() - verified, "parameters": parameters}


DO = (
    save_tiny, load_tiny, round_trip_ddp, save_fsdp, load_fsdp, state_dict_fsdp,
    background, killed, full_disk, opens, stalls,
)  # fmt: skip


def rank_main(request: dict[str, Any], rank: int, scratch: Path) -> None:
    signal.alarm(LIMIT_S)
    if request["world"] > 1 or request.get("group"):
        store = dist.FileStore(str(scratch / "store"), request["world"])
        dist.init_process_group("gloo", store=store, rank=rank, world_size=request["world"])
    do = {function.__name__: function for function in DO}[request["do"]]
    result = do(**request["args"])
    (scratch / f"result-{rank}").write_text(json.dumps(result))
    if dist.is_initialized():
        dist.destroy_process_group()


def fork_rank(request: dict[str, Any], rank: int, scratch: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        log = os.open(scratch / f"log-{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        rank_main(request, rank, scratch)
        code = 0
    except BaseException:  # noqa: BLE001 -- a rank must never return into the server
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def serve(request: dict[str, Any]) -> dict[str, Any]:
    assert len(os.listdir("/proc/self/task")) == 1, "the imports started a thread"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        pids = [fork_rank(request, rank, scratch) for rank in range(request["world"])]
        codes = []
        for pid in pids:
            _, status = os.waitpid(pid, 0)
            codes.append(os.waitstatus_to_exitcode(status))
            if codes[-1]:  # as the controller does: a dead rank ends the attempt
                time.sleep(0.2)
                for other in pids[len(codes) :]:
                    os.kill(other, signal.SIGKILL)
        results = [scratch / f"result-{rank}" for rank in range(request["world"])]
        return {
            "codes": codes,
            "results": [json.loads(path.read_text()) if path.exists() else None for path in results],
            "logs": [(scratch / f"log-{rank}").read_text() for rank in range(request["world"])],
        }


if __name__ == "__main__":
    print(json.dumps({"threads": len(os.listdir("/proc/self/task"))}), flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)
