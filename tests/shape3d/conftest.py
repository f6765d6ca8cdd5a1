"""Shared by the shape3d tests: sample meshes made once, the committed weights read once."""

from pathlib import Path

import pytest
import torch

from rackyard.shape3d.meshes import write_samples
from rackyard.shape3d.stored import Models, load_models

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def sample_meshes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 9 synthetic mesh files, one of each family, in all four formats."""
    folder = tmp_path_factory.mktemp("meshes")
    write_samples(folder, 9, resolution=32)
    return folder


@pytest.fixture(scope="session")
def tiny() -> Models:
    """The committed weights."""
    return load_models()
