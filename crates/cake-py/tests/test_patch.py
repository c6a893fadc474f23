"""Models whose norms are replaced, against the same models as they were."""

import copy
import pickle
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
import transformers
from conftest import close
from torch.nn.utils import parametrize

import cake_py as cake

SIZES = dict(
    vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=128, tie_word_embeddings=False, pad_token_id=0,
)  # fmt: skip
# With the number of norms that each has.
FAMILIES = {"Llama": 5, "Mistral": 5, "Qwen2": 5, "Qwen3": 9, "Gemma": 5, "Gemma2": 9, "Qwen3Next": 8}
# One layer of linear attention, whose norm is gated, and one of attention.
MORE = {
    "Qwen3Next": dict(
        layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=16, linear_value_head_dim=16, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    )
}  # fmt: skip
# Of every kind that is known, and of models that have a copy of it.
NORMS = [
    "llama.Llama", "mixtral.Mixtral", "qwen2_moe.Qwen2Moe", "phi3.Phi3", "deepseek_v3.DeepseekV3", "olmo2.Olmo2",
    "helium.Helium", "gemma.Gemma", "gemma2.Gemma2", "gemma3.Gemma3", "qwen3_next.Qwen3Next",
]  # fmt: skip
# With the sizes of groups that are tried; those with groups take the gate first, or no gate.
GATED = [("qwen3_next.Qwen3Next", None), ("kimi_linear.KimiLinear", None)]
GATED += [("mamba2.Mamba", 64), ("mamba2.Mamba", 16), ("bamba.Bamba", 16)]


def build(family, device="cpu"):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **MORE.get(family, {}))
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 0.0 if "Gemma" in family else 1.0, 0.2)
    return model.to(device)


def text():
    """Real text that every Python has."""
    licence = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")
    source = licence if licence.exists() else Path(copy.__file__)
    return torch.tensor(list(source.read_bytes()))


def batch(step, device):
    tokens = text()
    starts = torch.arange(4) * 97 + step * 13
    return torch.stack([tokens[start : start + 65] for start in starts]).to(device)


def loss_of(model, tokens):
    return model(input_ids=tokens, labels=tokens).loss


def gradients(model, tokens):
    model.zero_grad()
    loss = loss_of(model, tokens)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten().double() for p in model.parameters()])


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients(family, device):
    exact = build(family, device)
    plain = copy.deepcopy(exact).bfloat16()
    patched = copy.deepcopy(plain)
    patch = cake.patch(patched)
    assert len(patch.replaced) == FAMILIES[family] and not patch.left and f"{family}RMSNorm" in str(patch)
    assert patched.state_dict().keys() == plain.state_dict().keys()
    tokens = batch(0, device)
    true_loss, true = gradients(exact, tokens)
    theirs_loss, theirs = gradients(plain, tokens)
    ours_loss, ours = gradients(patched, tokens)
    close(ours_loss, true_loss, 2**-7)
    error = lambda g: ((g - true).norm() / true.norm()).item()  # noqa: E731
    assert error(ours) <= 1.1 * error(theirs) and error(ours) < 0.08

    with torch.autocast(device, torch.bfloat16):
        under = copy.deepcopy(exact)
        cake.patch(under)
        under_loss, under_gradients = gradients(under, tokens)
    close(under_loss, true_loss, 2**-7)
    assert error(under_gradients) < 0.08


@pytest.mark.parametrize("family", ["Llama", "Gemma"])
def test_twenty_steps(family, device):
    plain = build(family, device).bfloat16()
    patched = copy.deepcopy(plain)
    cake.patch(patched)
    curves = []
    for model in (plain, patched):
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        curve = []
        for step in range(20):
            loss = loss_of(model, batch(step, device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            curve.append(loss.item())
        curves.append(torch.tensor(curve))
    assert curves[1][-1] < curves[1][0] - 1
    close(curves[1], curves[0], 0.02)


def test_undo_copy_and_state(device):
    model = build("Llama", device).bfloat16()
    kinds = [type(module) for module in model.modules()]
    tokens = batch(0, device)
    before = loss_of(model, tokens)
    patch = cake.patch(model)
    assert not cake.patch(model).replaced
    norm = model.model.norm
    assert isinstance(norm, kinds[[*model.modules()].index(norm)]) and "cake_py" in repr(norm)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert "cake_py" in repr(twin.model.norm)
        twin.load_state_dict(model.state_dict())
        assert torch.equal(loss_of(twin, tokens), loss_of(model, tokens))
    patch.undo()
    assert [type(module) for module in model.modules()] == kinds
    assert torch.equal(loss_of(model, tokens), before)


def test_undo_is_refused_where_the_class_is_another_by_now():
    plain, changed = torch.nn.RMSNorm(8), torch.nn.RMSNorm(8)
    patch = cake.patch(torch.nn.Sequential(plain, changed))
    parametrize.register_parametrization(changed, "weight", torch.nn.Identity())
    with pytest.raises(RuntimeError, match="RMSNorm has become ParametrizedRMSNorm since"):
        patch.undo()
    assert type(plain) is not torch.nn.RMSNorm
    parametrize.remove_parametrizations(changed, "weight")
    patch.undo()
    assert type(plain) is type(changed) is torch.nn.RMSNorm


def test_norms_of_torch_and_unknown_ones(device):
    class OddRMSNorm(torch.nn.Module):
        pass

    norms = [torch.nn.RMSNorm(64), torch.nn.RMSNorm((4, 16), 1e-5), torch.nn.RMSNorm(64, elementwise_affine=False)]
    model = torch.nn.Sequential(*norms, OddRMSNorm(), cake.RMSNorm(64)).bfloat16().to(device)
    x = torch.randn(3, 64, device=device).bfloat16()
    outputs = [norm(x.view(3, *norm.normalized_shape)) for norm in norms]
    patch = cake.patch(model)
    assert list(patch.replaced) == ["0", "1", "2"] and list(patch.left) == ["3"] and "OddRMSNorm" in str(patch)
    for norm, y in zip(norms, outputs, strict=True):
        close(norm(x.view(3, *norm.normalized_shape)), y.double(), 2**-7)
    with pytest.raises(ValueError, match="x: dtype torch.float32"):
        norms[0](x.float())


def kind_of(name, last="RMSNorm"):
    model, prefix = name.split(".")
    return getattr(pytest.importorskip(f"transformers.models.{model}.modeling_{model}"), prefix + last)


@pytest.mark.parametrize("name", NORMS)
def test_every_kind_computes_what_cake_does(name, device):
    norm = kind_of(name)(64).to(device).bfloat16()
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(5, 64, device=device).bfloat16()
    expected = norm(x)
    patch = cake.patch(norm)
    assert list(patch.replaced.values()) == [type(norm).__name__]
    close(norm(x), expected.double(), 2**-6)


@pytest.mark.parametrize(("name", "group_size"), GATED)
def test_every_gated_kind_computes_what_cake_does(name, group_size, device):
    kind = kind_of(name, "RMSNormGated")
    norm = (kind(64, group_size=group_size) if group_size else kind(64)).to(device).bfloat16()
    torch.nn.init.normal_(norm.weight)
    x, z = (torch.randn(5, 64, device=device).bfloat16() for _ in range(2))
    calls = [(x, z), (x,)] if group_size else [(x, z)]
    expected = [norm(*call) for call in calls]
    assert list(cake.patch(norm).replaced.values()) == [kind.__name__]
    for call, y in zip(calls, expected, strict=True):
        close(norm(*call), y.double(), 2**-6)


def test_what_is_left_says_why():
    gelu = kind_of("qwen3_next.Qwen3Next", "RMSNormGated")(64)
    gelu.activation = "gelu"
    other = kind_of("idefics.Idefics")(64)
    hooked = kind_of("llama.Llama")(64)
    hooked.forward = hooked.forward
    patch = cake.patch(torch.nn.Sequential(gelu, other, hooked))
    assert not patch.replaced and [*patch.left] == ["0", "1", "2"]
    for why in ("activation gelu, expected", "not known", "hides"):
        assert why in str(patch)


def test_the_example_runs():
    example = Path(__file__).parent.parent / "examples/patched_step.py"
    small = "--layers 1 --hidden 128 --batch 1 --length 32 --steps 1 --device cpu".split()
    done = subprocess.run([sys.executable, example, *small], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "3 norms were patched" in done.stdout, done.stdout + done.stderr
