"""Weights as files: how they are stored, and the committed ones of the tiny family.

A file is a flat dict of tensors written by torch.save in half precision and read with
`weights_only=True`, which runs no code. `tiny.json` beside the files says how they were made and what
they measure. `python -m rackyard.shape3d.weights` makes them anew.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d.condition import Conditioner
from rackyard.shape3d.config import ShapeConfig, named
from rackyard.shape3d.dit import ShapeDit
from rackyard.shape3d.vae import VecsetVae

FOLDER = Path(__file__).parent / "weights"
COMMITTED = "tiny"
MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Models:
    """One family's three networks, in evaluation mode."""

    config: ShapeConfig
    vae: VecsetVae
    conditioner: Conditioner
    dit: ShapeDit


def fresh(config: ShapeConfig, seed: int = 0) -> Models:
    """Untrained networks; the same seed gives the same numbers."""
    if config.condition is None:
        raise UsageError(
            f"configuration {config.name!r} has no conditioner here: it expects DINOv2 features",
            fix="use --config tiny; the large configurations serve to size and to cut",
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Models(
            config, VecsetVae(config.vae).eval(), Conditioner(config.condition).eval(), ShapeDit(config.dit).eval()
        )


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors in half precision; the file appears whole or not at all."""
    staged = path.with_suffix(".tmp")
    torch.save({name: value.detach().half() for name, value in tensors.items()}, staged)
    staged.replace(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read such a file in single precision; RackyardError when it is missing, too large or damaged."""
    if not path.is_file():
        raise RackyardError(f"no weights at {path}", fix="make them: python -m rackyard.shape3d.weights")
    if path.stat().st_size > MAX_BYTES:
        raise RackyardError(f"weights file {path.name} is too large", where=str(path))
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise RackyardError("cannot read weights", where=str(path), why=str(error)[:200]) from error
    if not isinstance(found, dict) or not all(isinstance(v, Tensor) for v in found.values()):
        raise RackyardError("not a weights file", where=str(path), why="it does not hold a dict of tensors")
    return {name: value.float() for name, value in found.items()}


def fill(module: nn.Module, tensors: dict[str, Tensor], where: str) -> None:
    """Load tensors into a module; RackyardError when names or shapes differ."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        raise RackyardError(
            "these weights are for another model", where=where, why=str(error)[:300], fix="check --config"
        ) from error


def _file(name: str, part: str) -> Path:
    return FOLDER / f"{name}-{part}.pt"


def save_models(models: Models, folder: Path = FOLDER) -> list[Path]:
    """Write the three networks; returns the files."""
    parts = {"vae": models.vae, "condition": models.conditioner, "dit": models.dit}
    paths = []
    for part, module in parts.items():
        path = folder / _file(models.config.name, part).name
        save_tensors(path, dict(module.state_dict()))
        paths.append(path)
    return paths


def load_models(name: str = COMMITTED, *, folder: Path = FOLDER) -> Models:
    """The networks of a family with stored weights."""
    models = fresh(named(name))
    for part, module in (("vae", models.vae), ("condition", models.conditioner), ("dit", models.dit)):
        path = folder / _file(name, part).name
        fill(module, read_tensors(path), str(path))
    return models


def committed(name: str) -> bool:
    """Whether weights of that family are committed."""
    return _file(name, "dit").is_file()


def record(name: str = COMMITTED) -> dict[str, Any]:
    """How the weights were made and what they measured, as stored beside them."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found
