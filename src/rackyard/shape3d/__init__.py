"""3D-generation models: autoencoder, denoiser, samplers, decoders, trainer, meshes. Usable without the rest."""

from rackyard.shape3d.condition import Conditioner
from rackyard.shape3d.config import CONFIGS, ShapeConfig, named
from rackyard.shape3d.dit import ShapeDit
from rackyard.shape3d.meshes import Mesh, load, write_samples
from rackyard.shape3d.sample import SampleOptions, SampleReport, generate, models_from, sample_sheet
from rackyard.shape3d.stored import Models, load_models
from rackyard.shape3d.vae import VecsetVae

__all__ = [
    "CONFIGS",
    "Conditioner",
    "Mesh",
    "Models",
    "SampleOptions",
    "SampleReport",
    "ShapeConfig",
    "ShapeDit",
    "VecsetVae",
    "generate",
    "load",
    "load_models",
    "models_from",
    "named",
    "sample_sheet",
    "write_samples",
]
