"""Make the committed weights anew: `python -m rackyard.shape3d.weights`, about 40 minutes of one core."""

import argparse
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from rackyard.shape3d import stored
from rackyard.shape3d.config import named
from rackyard.shape3d.pretrain import DIT_RECIPE, VAE_RECIPE, train_dit, train_vae, vae_iou
from rackyard.shape3d.sample import generation_iou

VAE_SHAPES, SAMPLED_SHAPES = 90, 45  # held-out shapes measured: whole rounds of the families


def _log(line: str) -> None:
    print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Train both stages, store the weights, and record recipe and measurements."""
    parser = argparse.ArgumentParser(prog="python -m rackyard.shape3d.weights", description=__doc__)
    parser.add_argument("--folder", type=Path, default=stored.FOLDER, help="where the files go")
    parser.add_argument("--vae-steps", type=int, default=VAE_RECIPE.steps)
    parser.add_argument("--dit-steps", type=int, default=DIT_RECIPE.steps)
    parser.add_argument("--keep-vae", action="store_true", help="use the stored autoencoder, train only the rest")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    config = named(stored.COMMITTED)
    vae_recipe = replace(VAE_RECIPE, steps=args.vae_steps)
    dit_recipe = replace(DIT_RECIPE, steps=args.dit_steps)
    start = time.perf_counter()
    stored_vae = args.folder / f"{config.name}-vae.pt"
    if args.keep_vae:
        vae = stored.fresh(config).vae
        stored.fill(vae, stored.read_tensors(stored_vae), str(stored_vae))
    else:
        vae = train_vae(config, vae_recipe, _log)
        stored.save_tensors(stored_vae, dict(vae.state_dict()))
    vae_seconds = time.perf_counter() - start
    conditioner, dit = train_dit(config, vae, dit_recipe, _log)
    stored.save_models(stored.Models(config, vae, conditioner, dit), args.folder)
    models = stored.load_models(config.name, folder=args.folder)  # measured as stored, in half precision
    measured = {
        "vae_iou_held_out": round(float(vae_iou(models.vae, VAE_SHAPES).mean()), 4),
        "generated_iou_held_out": round(float(generation_iou(models, SAMPLED_SHAPES).mean()), 4),
        "vae_seconds": None if args.keep_vae else round(vae_seconds),
        "dit_seconds": round(time.perf_counter() - start - vae_seconds),
    }
    note = {
        "config": config.name,
        "data": "synthetic: procedural shapes of rackyard.shape3d.families",
        "vae_recipe": asdict(vae_recipe),
        "dit_recipe": asdict(dit_recipe),
        "held_out_shapes": {"vae": VAE_SHAPES, "generated": SAMPLED_SHAPES},
        "measured": measured,
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, 1 thread, fp32",
    }
    (args.folder / f"{config.name}.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    _log(f"measured {json.dumps(measured)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
