"""The gated norm: the calls, autograd, the op, the module."""

import pytest
import torch
from conftest import close, same
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

import cake_py as cake

EPS = 1e-6
FORMS = [("silu", False), ("sigmoid", False), ("silu", True), ("sigmoid", True)]


def tensors(device, shape=(5, 3, 128), weight=torch.bfloat16):
    x, z, dy = (torch.randn(shape, device=device).bfloat16() for _ in range(3))
    return x, z, (torch.rand(shape[-1], device=device) + 0.5).to(weight), dy


def formula(x, z, w, activation, gate_first):
    """In FP64; the leaves carry gradients."""
    x, z, w = (t.double().detach().requires_grad_() for t in (x, z, w))
    gate = torch.sigmoid(z) * (z if activation == "silu" else 1)
    u = x * gate if gate_first else x
    y = u * torch.rsqrt(u.square().mean(-1, keepdim=True) + EPS) * w
    return x, z, w, y if gate_first else y * gate


@pytest.mark.parametrize("shape", [(7, 128), (2, 3, 64), (4, 100), (128,)])
@pytest.mark.parametrize("weight", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("activation", "gate_first"), FORMS)
def test_calls_against_fp64(device, shape, weight, activation, gate_first):
    x, z, w, dy = tensors(device, shape, weight)
    xr, zr, wr, yr = formula(x, z, w, activation, gate_first)
    form = {"activation": activation, "gate_first": gate_first}
    rstd = torch.empty(shape[:-1] or (1,), device=device)
    y, _ = cake.rms_norm_silu_gate_forward(x, z, w, EPS, rstd=rstd, **form)
    close(y, yr, 2**-8)
    yr.backward(dy.double())
    gradients = cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, **form)
    for gradient, expected in zip(gradients, (xr.grad, zr.grad, wr.grad), strict=True):
        close(gradient, expected, 2**-6)
    assert same(gradients, cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, rstd=rstd, **form))


def test_slices_of_a_projection_are_read_in_place(device):
    x, z, w, dy = tensors(device)
    wide = torch.randn(5, 3, 300, device=device).bfloat16()
    wide[..., 40:168] = z
    expected = cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS)
    assert same(cake.rms_norm_silu_gate_backward(dy, x, wide[..., 40:168], w, EPS), expected)
    assert same(cake.rms_norm_silu_gate_backward(dy[:1, :1].expand_as(dy), x, z, w, EPS),
                cake.rms_norm_silu_gate_backward(dy[:1, :1].expand_as(dy).contiguous(), x, z, w, EPS))  # fmt: skip


def test_outputs_that_are_given(device):
    x, z, w, dy = tensors(device)
    expected = cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS)
    dw = torch.ones(128, device=device)
    over, z2 = dy.clone(), z.clone()
    dx, dz, got = cake.rms_norm_silu_gate_backward(over, x, z2, w, EPS, dx=over, dz=z2, dw=dw, accumulate=True)
    assert dx is over and dz is z2 and got is dw
    assert same((dx, dz, got), (*expected[:2], 1 + expected[2]))
    assert cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, dw=False)[2] is None
    out = x.clone()
    assert same(cake.rms_norm_silu_gate_forward(out, z, w, EPS, out=out)[:1], cake.rms_norm_silu_gate_forward(x, z, w, EPS)[:1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, z, w: (x, z[:, :2], w), "z: shape"),
        (lambda x, z, w: (x, z, w.repeat(3)), "weight: shape"),
        (lambda x, z, w: (x, z.float(), w), "z: dtype"),
        (lambda x, z, w: (x, z, w.half()), "weight: dtype"),
    ],
)
def test_what_does_not_fit_is_named(device, change, message):
    x, z, w, _ = tensors(device)
    with pytest.raises((ValueError, TypeError), match=message):
        cake.rms_norm_silu_gate_forward(*change(x, z, w), EPS)
    with pytest.raises(ValueError, match="activation: relu, expected"):
        cake.rms_norm_silu_gate_forward(x, z, w, EPS, activation="relu")
    with pytest.raises(ValueError, match=r"out|weight"):
        cake.rms_norm_silu_gate_forward(x, z, x.flatten()[:128], EPS, out=x)


@pytest.mark.parametrize(("activation", "gate_first"), FORMS)
def test_autograd_has_the_bits_of_the_calls(device, activation, gate_first):
    x, z, w, dy = tensors(device)
    form = {"activation": activation, "gate_first": gate_first}
    leaves = [t.clone().requires_grad_() for t in (x, z, w)]
    y = cake.rms_norm_silu_gate(*leaves, EPS, **form)
    y.backward(dy)
    dx, dz, dw = cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, dw_dtype="bfloat16", **form)
    assert same([y.detach()], cake.rms_norm_silu_gate_forward(x, z, w, EPS, **form)[:1])
    assert same([leaf.grad for leaf in leaves], [dx, dz, dw])
    leaves[2].requires_grad_(False)
    assert all(g is not None for g in torch.autograd.grad(cake.rms_norm_silu_gate(*leaves, EPS, **form), leaves[:2], dy))
    again = checkpoint(lambda *a: cake.rms_norm_silu_gate(*a, EPS, **form), *leaves, use_reentrant=False)
    assert same(torch.autograd.grad(again, leaves[:2], dy), [dx, dz])


def test_the_op_passes_opcheck_and_compiles(device):
    x, z, w, dy = tensors(device)
    leaves = [t.requires_grad_() for t in (x, z, w)]
    expected = torch.autograd.grad(cake.rms_norm_silu_gate(*leaves, EPS), leaves, dy)
    opcheck(torch.ops.cake.rms_norm_silu_gate, (*leaves, EPS, "silu", False, 1, True))
    compiled = torch.compile(lambda *a: cake.rms_norm_silu_gate(*a, EPS), fullgraph=True, dynamic=True, backend="aot_eager")
    assert same(torch.autograd.grad(compiled(*leaves), leaves, dy), expected)
    (first,) = torch.autograd.grad(cake.rms_norm_silu_gate(*leaves, EPS), leaves[:1], dy, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        first.sum().backward()


@pytest.mark.parametrize("gate_first", [False, True])
def test_groups_are_rows_of_their_own(device, gate_first):
    x, z, w, dy = tensors(device, (5, 3, 96))
    leaves = [t.clone().requires_grad_() for t in (x, z, w)]
    y = cake.rms_norm_silu_gate(*leaves, EPS, gate_first=gate_first, group_size=32)
    gradients = torch.autograd.grad(y, leaves, dy)
    for at in range(0, 96, 32):
        parts = [t[..., at : at + 32] for t in (x, z, w)]
        alone = [t.clone().requires_grad_() for t in parts]
        expected = cake.rms_norm_silu_gate(*alone, EPS, gate_first=gate_first)
        assert same([y[..., at : at + 32].detach()], [expected.detach()])
        assert same([g[..., at : at + 32] for g in gradients], torch.autograd.grad(expected, alone, dy[..., at : at + 32]))
    form = {"gate_first": gate_first, "group_size": 32}
    rstd = torch.empty(5, 3, 3, device=device)
    assert same(cake.rms_norm_silu_gate_forward(x, z, w, EPS, rstd=rstd, **form), [y.detach(), rstd])
    assert rstd.isfinite().all()
    calls = cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, rstd=rstd, dw_dtype="bfloat16", **form)
    assert same(calls, gradients)
    by_op = torch.ops.cake.rms_norm_silu_gate(*leaves, EPS, "silu", gate_first, 3, True)
    assert same(torch.autograd.grad(by_op, leaves, dy), gradients) and same([by_op.detach()], [y.detach()])
    module = cake.RMSNormGated(96, EPS, norm_before_gate=not gate_first, group_size=32, device=device, dtype=w.dtype)
    module.weight.data.copy_(w)
    assert same([module(x, z).detach()], [y.detach()]) and "group_size=32" in repr(module)
    with torch.no_grad():
        assert same([module(x, z)], [y.detach()])
    for size, error, message in ((36, ValueError, "group_size: 36, expected a divisor of 96"), (32.0, TypeError, "group_size: float")):
        with pytest.raises(error, match=message):
            cake.rms_norm_silu_gate(x, z, w, EPS, group_size=size)
    with pytest.raises(ValueError, match=r"weight: shape \[32\], expected \[96\]"):
        cake.rms_norm_silu_gate(x, z, w[:32], EPS, group_size=32)


def test_the_setting_names_the_call(device):
    x, z, w, _ = tensors(device)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="rms_norm_silu_gate was called with deterministic=False"):
            cake.rms_norm_silu_gate(x, z, w, EPS, deterministic=False)
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_module(device):
    module = cake.RMSNormGated(128, norm_before_gate=False, device=device, dtype=torch.float32)
    x, z, *_ = tensors(device)
    expected = cake.rms_norm_silu_gate(x, z, torch.ones(128, device=device), gate_first=True)
    assert same([module(x, z).detach()], [expected])
    assert "norm_before_gate=False" in repr(module) and list(module.state_dict()) == ["weight"]
    with torch.autocast(device, torch.bfloat16):
        assert same([module(x.float(), z.float()).detach()], [expected])
    with pytest.raises(ValueError, match="activation: relu, expected silu, swish or sigmoid"):
        cake.RMSNormGated(128, activation="relu")


def test_names_from_upstream(device):
    from cake_py import upstream

    x, z, w, dy = tensors(device)
    expected = cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, dw_dtype="bfloat16")
    scratch = upstream.cake_rmsnorm_silu_gate_det_train_workspace(15, x.device)
    upstream.cake_rmsnorm_silu_gate_train_reset_workspace(scratch)
    assert same(upstream.cake_rmsnorm_silu_gate_train_backward(dy, x, z, w, workspace=scratch), expected)
    dw = torch.ones(128, device=device)
    sums = upstream.cake_rmsnorm_silu_gate_train_backward(dy, x, z, w, grad_weight=dw, accumulate_grad_weight=True)[2]
    assert sums is dw and not same([dw], [torch.ones_like(dw)])
    assert upstream.cake_rmsnorm_silu_gate_train_backward(dy, x, z, w, compute_grad_weight=False)[2] is None
    y = upstream.cake_rmsnorm_silu_gate_train_forward(x, z, w)
    assert same([y], [upstream.cake_rmsnorm_silu_gate(x, z, w)])
    assert not upstream.is_cake_rmsnorm_silu_gate_train_supported("cpu")
