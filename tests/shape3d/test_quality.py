"""What the committed weights can do, measured on shapes they were never trained on."""

from pathlib import Path

import pytest
import torch
import trimesh
from PIL import Image

from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d.bench import bench
from rackyard.shape3d.pretrain import Recipe, train_dit, train_vae, vae_iou
from rackyard.shape3d.sample import SampleOptions, generate, generation_iou, models_from, sample_sheet
from rackyard.shape3d.stored import Models, named, record


def test_the_autoencoder_rebuilds_unseen_shapes(tiny: Models) -> None:
    found = vae_iou(tiny.vae, 45)
    assert found.mean() >= 0.70
    assert found.view(-1, 9).mean(0).min() >= 0.55  # no family is left behind


def test_generated_shapes_are_what_was_asked_for(tiny: Models) -> None:
    assert generation_iou(tiny, 18, SampleOptions(steps=12)).mean() >= 0.45


def test_the_record_beside_the_weights_holds(tiny: Models) -> None:
    noted = record()
    assert noted["config"] == "tiny"
    assert float(vae_iou(tiny.vae, 90).mean()) == pytest.approx(noted["measured"]["vae_iou_held_out"], abs=0.01)


def test_a_sheet_has_closed_glb_files_and_a_picture(tmp_path: Path, sample_meshes: Path) -> None:
    report = sample_sheet(None, sample_meshes, tmp_path, 3, SampleOptions(steps=8, resolution=32))
    assert len(report.iou) == len(report.names) == 3
    assert report.glbs
    assert all(trimesh.load_mesh(path).is_watertight for path in report.glbs)
    with Image.open(report.png) as picture:
        assert picture.width == 3 * 192
        assert picture.height > 3 * 192
    assert set(report.seconds) == {"load", "denoise", "decode"}


def test_sampling_repeats_and_does_not_depend_on_the_batch(tiny: Models) -> None:
    condition = torch.randn(3, tiny.dit.config.cond_tokens, tiny.dit.config.cond_width)
    options = SampleOptions(steps=3)
    together = generate(tiny, condition, options)
    assert torch.equal(together, generate(tiny, condition, options))
    assert torch.allclose(together[:2], generate(tiny, condition[:2], options), atol=1e-4)
    assert not torch.allclose(together, generate(tiny, condition, SampleOptions(steps=3, seed=1)))


def test_options_and_sources_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        SampleOptions(steps=0)
    with pytest.raises(UsageError):
        SampleOptions(resolution=30)
    with pytest.raises(RackyardError, match="no such folder"):
        models_from(tmp_path / "none")
    with pytest.raises(RackyardError, match="no usable checkpoint"):
        models_from(tmp_path)


def test_the_recipe_runs_and_learns() -> None:
    lines: list[str] = []
    recipe = Recipe(shapes=64, steps=100, batch=8, rate=4e-3, warmup=10, queries=64, points=64)
    vae = train_vae(named("micro"), recipe, lines.append)
    assert float(vae.latent_std.min()) > 0
    train_dit(named("micro"), vae, recipe, lines.append)
    assert lines[-1].startswith("dit step=100 loss=")


def test_bench_measures_every_stage() -> None:
    timings = bench(resolution=16, steps=2, repeats=1)
    assert [t.stage for t in timings][:3] == ["encode", "condition", "denoise"]
    assert all(t.seconds > 0 for t in timings)
