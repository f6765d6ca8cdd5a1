"""Train the denoiser on a folder of mesh files: `python -m rackyard.shape3d.train --data DIR --steps N …`.

Runs alone or as one of many ranks under torchrun's environment variables. A run that is killed and
started again continues from its newest sound checkpoint and ends with the same loss and the same
weights, bit for bit, as one that was never interrupted (at the same number of ranks).
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo  # the first optimizer imports it, 2 s: here it is warm in ranks that are forked
from torch import nn

from rackyard.checkpoint import Checkpointer
from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d import stored
from rackyard.shape3d.config import CONFIGS, named
from rackyard.shape3d.data import LatentSet, batch_at, encode
from rackyard.shape3d.flow import Path as FlowPath
from rackyard.shape3d.meshes import load_folder
from rackyard.shape3d.parallel import MODES, Ranks, joined, mean_over_ranks, spread
from rackyard.shape3d.trainstate import TrainState
from rackyard.worker import report_step, resume_step


@dataclass(frozen=True, slots=True)
class TrainArgs:
    """The command line of one run."""

    config: str
    data: Path
    steps: int
    checkpoint: Path
    every: int
    parallel: str
    seed: int
    batch: int
    rate: float
    scratch: bool


def parse(argv: Sequence[str] | None = None) -> TrainArgs:
    """Read the command line; UsageError for values that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m rackyard.shape3d.train", description="Train the shape denoiser.")
    parser.add_argument("--config", default="tiny", choices=sorted(CONFIGS))
    parser.add_argument("--data", type=Path, required=True, help="folder of OBJ, PLY, STL or GLB files")
    parser.add_argument("--steps", type=int, required=True, help="optimizer steps of the whole run")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder for checkpoints; a run resumes from it")
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--parallel", choices=MODES, default="ddp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=2, help="shapes per rank and step")
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate after warm-up")
    parser.add_argument("--scratch", action="store_true", help="do not start from the committed denoiser")
    args = TrainArgs(**vars(parser.parse_args(argv)))
    for name in ("steps", "every", "batch"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name} is {getattr(args, name)}; it must be 1 or more")
    if args.seed < 0:
        raise UsageError(f"--seed is {args.seed}; it must be 0 or more")
    return args


def prepare(args: TrainArgs) -> tuple[stored.Models, LatentSet]:
    """The networks and the encoded meshes, computed alike on every rank."""
    config = named(args.config)
    models = stored.load_models(config.name) if stored.committed(config.name) else stored.fresh(config, args.seed)
    source = encode(models, load_folder(args.data))
    if args.scratch:
        models = stored.Models(config, models.vae, models.conditioner, stored.fresh(config, args.seed).dit)
    return models, source


def train_step(model: nn.Module, state: TrainState, source: LatentSet, args: TrainArgs, ranks: Ranks) -> float:
    """One optimizer step; returns the loss averaged over all ranks."""
    path = FlowPath()
    batch = batch_at(source, seed=args.seed, position=state.consumed, rank=ranks.rank, count=args.batch)
    data, noise, t = batch.data.to(ranks.device), batch.noise.to(ranks.device), batch.t.to(ranks.device)
    predicted = model(path.mix(data, noise, t), t, batch.condition.to(ranks.device))
    loss = (predicted - path.velocity(data, noise)).square().mean()
    state.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    state.advance(args.batch * ranks.world, loss=mean_over_ranks(loss), rate=args.rate)
    return state.loss


def run(args: TrainArgs, ranks: Ranks) -> float:
    """Train to the last step, from the newest checkpoint if there is one; returns the last loss."""
    start = time.perf_counter()
    torch.manual_seed(args.seed * ranks.world + ranks.rank)
    models, source = prepare(args)
    # The wrapper of DDP is for calling; parameters are named by the bare model in both modes.
    bare = models.dit.train()
    model = spread(bare, args.parallel, ranks)
    state = TrainState(bare, rate=args.rate)
    checkpointer = Checkpointer(args.checkpoint)
    _resume(state, checkpointer, ranks)
    if ranks.first:
        print(f"ready: {len(source)} shapes, {ranks.world} ranks, {time.perf_counter() - start:.2f} s", flush=True)
    while state.step < args.steps:
        loss = train_step(model, state, source, args, ranks)
        report_step(state.step, loss=loss)
        if ranks.first:
            print(f"step={state.step} loss={loss:.6f} of={args.steps}", flush=True)
        if state.step % args.every == 0 or state.step == args.steps:
            checkpointer.save(state.step, state.tensors(), per_rank=state.rng())
    checkpointer.wait()
    if ranks.first:
        print(f"final loss={state.loss!r} hex={state.loss.hex()}", flush=True)
    return state.loss


def _resume(state: TrainState, checkpointer: Checkpointer, ranks: Ranks) -> None:
    found = checkpointer.latest()
    expected = resume_step()
    if found is not None:
        tensors = state.tensors()
        extras = checkpointer.load(found, tensors)
        state.restore(tensors, extras)
    if not ranks.first:
        return
    if found is not None:
        print(f"resumed at step={state.step}", flush=True)
    if expected is not None and expected != state.step:
        print(f"note: expected to resume from step {expected}, resumed from {state.step}", flush=True)


def execute(args: TrainArgs) -> float:
    """Join the other ranks, if there are any, and run; returns the last loss."""
    torch.set_num_threads(1)  # ranks share the cores, and one thread keeps sums in one order
    with joined() as ranks:
        return run(args, ranks)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line entry; returns the exit code."""
    try:
        execute(parse(argv))
    except RackyardError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
