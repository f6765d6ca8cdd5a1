"""Everything a training run is made of between two steps, as tensors that a checkpoint can hold.

Tensors are the live ones (sharded under FSDP2), so that loading in place restores the run; there are no
pickled objects in it. The learning rate is a function of the step and needs no storing.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

EMA = 0.999
WARMUP = 10
Tensors = dict[str, dict[str, Tensor]]


class TrainState:
    """Model, optimizer, moving average, and position in the run."""

    def __init__(self, model: nn.Module, *, rate: float) -> None:
        self.parameters = dict(model.named_parameters())
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=rate, betas=(0.9, 0.99), weight_decay=0.01)
        for parameter in self.parameters.values():
            # What AdamW makes in its first step, made now so that a checkpoint can be loaded into it.
            self.optimizer.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.ema = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.step = 0
        self.consumed = 0  # samples taken by all ranks together
        self.loss = 0.0

    def advance(self, samples: int, *, loss: float, rate: float) -> None:
        """Take the optimizer step for the gradients at hand, and move on."""
        self.step += 1
        self.consumed += samples
        self.loss = loss
        for group in self.optimizer.param_groups:
            group["lr"] = rate * min(1.0, self.step / WARMUP)
        self.optimizer.step()
        decay = min(EMA, self.step / (self.step + 10))
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                self.ema[name].mul_(decay).add_(parameter.detach(), alpha=1 - decay)

    def tensors(self) -> Tensors:
        """All state by name; the tensors are the live ones."""
        optimizer = {
            f"{name}.{key}": value
            for name, parameter in self.parameters.items()
            for key, value in self.optimizer.state[parameter].items()
        }
        progress = {
            "step": torch.tensor(self.step),
            "consumed": torch.tensor(self.consumed),
            "loss": torch.tensor(self.loss, dtype=torch.float64),
        }
        model = {name: p.detach() for name, p in self.parameters.items()}
        return {"model": model, "optimizer": optimizer, "ema": dict(self.ema), "progress": progress}

    @staticmethod
    def rng() -> dict[str, Tensor]:
        """This rank's generator states. Data and noise do not use them; whatever else may be added would."""
        states = {"rng": torch.get_rng_state()}
        if torch.cuda.is_available():
            states["rng_cuda"] = torch.cuda.get_rng_state()
        return states

    def restore(self, tensors: Tensors, extras: Mapping[str, Any]) -> None:
        """Take over what was loaded: model, optimizer and average are loaded in place already."""
        self.step = int(tensors["progress"]["step"])
        self.consumed = int(tensors["progress"]["consumed"])
        self.loss = float(tensors["progress"]["loss"])
        if "rng" in extras:
            torch.set_rng_state(extras["rng"])
        if "rng_cuda" in extras and torch.cuda.is_available():
            torch.cuda.set_rng_state(extras["rng_cuda"])
