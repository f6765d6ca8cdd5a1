"""The training script of `recovery.py`: the same file under torchrun and under Rackyard.

A small network on gloo, a checkpoint by rank 0 after every step, resumed from by all ranks. Each step that is
complete on all ranks is written, with the time, to the file named by `--steps-file`.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

import rackyard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256))
    saved = args.dir / "state.pt"
    step = 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        step = int(state["step"])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while step < args.steps:
        loss = model(torch.randn(64, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        step += 1
        rackyard.report_step(step, loss=loss.item())
        if rank == 0:
            save(saved, model, step)
            with (args.dir / "steps.txt").open("a") as out:
                out.write(f"{time.monotonic():.6f} {step} {os.getpid()}\n")
        time.sleep(0.1)
    dist.destroy_process_group()


def save(path: Path, model: torch.nn.Module, step: int) -> None:
    """Write beside, then rename: a kill leaves the old state or the new."""
    part = path.with_suffix(".part")
    torch.save({"model": model.state_dict(), "step": step}, part)
    part.replace(path)


if __name__ == "__main__":
    main()
