"""Sizes of the model family, shapes of what the networks return, and stored weights."""

from pathlib import Path

import pytest
import torch

from rackyard.errors import RackyardError, UsageError
from rackyard.shape3d import stored
from rackyard.shape3d.config import CONFIGS, named
from rackyard.shape3d.dit import ShapeDit, null_condition
from rackyard.shape3d.vae import VecsetVae, anchors


def _millions(name: str) -> float:
    with torch.device("meta"):
        return sum(p.numel() for p in ShapeDit(named(name).dit).parameters()) / 1e6


def test_the_full_size_denoiser_has_the_published_number_of_parameters() -> None:
    # Hunyuan3D-2.0: 1.1 B in its model card; 1.107 B computed in shared/facts/shape3d.md, §5, without the inputs.
    assert _millions("hunyuan3d-2") == pytest.approx(1110, rel=0.01)
    assert _millions("hunyuan3d-2mini") == pytest.approx(560, rel=0.02)  # "0.6 B"
    assert _millions("tiny") < 2


def test_full_size_shapes_pass_through_without_memory() -> None:
    c = named("hunyuan3d-2").dit
    with torch.device("meta"):
        out = ShapeDit(c)(torch.empty(2, 3072, 64), torch.empty(2), torch.empty(2, 1370, 1536))
        vae = VecsetVae(named("hunyuan3d-2").vae)
        field = vae.query(torch.empty(1, 100, 3), vae.prepare(torch.empty(1, 3072, 64)))
    assert out.shape == (2, 3072, 64)
    assert field.shape == (1, 100)


def test_names_in_the_state_dict_are_those_of_published_checkpoints() -> None:
    names = set(ShapeDit(named("micro").dit).state_dict())
    expected = {
        "latent_in.weight", "cond_in.weight", "time_in.in_layer.weight", "time_in.out_layer.bias",
        "double_blocks.0.img_mod.lin.weight", "double_blocks.0.img_attn.qkv.weight",
        "double_blocks.0.img_attn.norm.query_norm.scale", "double_blocks.0.txt_attn.proj.weight",
        "double_blocks.0.txt_mlp.2.weight", "single_blocks.0.linear1.weight", "single_blocks.0.linear2.bias",
        "single_blocks.0.norm.key_norm.scale", "single_blocks.0.modulation.lin.weight",
        "final_layer.linear.weight", "final_layer.adaLN_modulation.1.weight",
    }  # fmt: skip
    assert expected <= names


def test_an_untrained_denoiser_predicts_zero_and_the_condition_matters_once_trained(tiny: stored.Models) -> None:
    c = tiny.dit.config
    x, t = torch.randn(2, c.latent_tokens, c.latent_channels), torch.tensor([0.3, 0.6])
    assert not stored.fresh(named("tiny")).dit(x, t, null_condition(c, 2)).any()
    with torch.no_grad():
        none = tiny.dit(x, t, null_condition(c, 2))
        some = tiny.dit(x, t, torch.randn(2, c.cond_tokens, c.cond_width))
    assert not torch.allclose(none, some, atol=0.05)


def test_a_sample_does_not_depend_on_its_neighbours_in_the_batch(tiny: stored.Models) -> None:
    c = tiny.dit.config
    x, t, condition = torch.randn(3, 32, 8), torch.rand(3), torch.randn(3, c.cond_tokens, c.cond_width)
    with torch.no_grad():
        together, alone = tiny.dit(x, t, condition), tiny.dit(x[1:2], t[1:2], condition[1:2])
    assert torch.allclose(together[1:2], alone, atol=1e-5)


def test_anchors_are_spread() -> None:
    place = anchors(32)
    apart = torch.cdist(place, place) + 9 * torch.eye(32)
    assert apart.min() > 0.4
    assert torch.equal(place, anchors(32))


def test_fresh_networks_repeat_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    one, two = stored.fresh(named("micro"), 3), stored.fresh(named("micro"), 3)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.vae.parameters(), two.vae.parameters(), strict=True))


def test_unknown_and_unusable_configurations_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="hunyuan3d-2"):
        named("huge")
    with pytest.raises(UsageError, match="DINOv2"):
        stored.fresh(named("hunyuan3d-2mini"))
    assert set(CONFIGS) == {"tiny", "micro", "hunyuan3d-2", "hunyuan3d-2mini"}


def test_weights_come_back_and_damage_is_reported(tmp_path: Path) -> None:
    models = stored.fresh(named("micro"))
    paths = stored.save_models(models, tmp_path)
    again = stored.load_models("micro", folder=tmp_path)
    assert torch.allclose(models.vae.encoder.out.weight, again.vae.encoder.out.weight, atol=1e-3)
    stored.save_tensors(paths[0], {"other": torch.zeros(1)})
    with pytest.raises(RackyardError, match="for another model"):
        stored.load_models("micro", folder=tmp_path)
    paths[0].write_bytes(b"not a file of torch")
    with pytest.raises(RackyardError, match="cannot read weights"):
        stored.load_models("micro", folder=tmp_path)
    paths[0].unlink()
    with pytest.raises(RackyardError, match="no weights"):
        stored.load_models("micro", folder=tmp_path)


def test_the_committed_weights_are_small() -> None:
    size = sum(path.stat().st_size for path in stored.FOLDER.glob("tiny-*.pt"))
    assert 1e5 < size <= 6e6
