"""The calls that take tensors of any library."""

import numpy as np
import pytest
import torch
from conftest import close, reference, refused, same

import cake_py as cake

EPS = 1e-6


@pytest.mark.parametrize("width", [1, 3, 96, 128, 2048])
@pytest.mark.parametrize("weight", [torch.bfloat16, torch.float32, None])
@pytest.mark.parametrize("residual", [False, True])
def test_forward_and_backward_against_fp64(call, width, weight, residual):
    x, w, r, dy = call((5, 7), width, weight)
    y, rstd, *h = cake.rms_norm_forward(x, w, EPS, residual=r if residual else None)
    h = h[0] if residual else x
    xr, wr, yr = reference(x, w, EPS, r if residual else None)
    close(h, xr, 0)
    close(y, yr, 2**-8)
    dh = torch.randn_like(dy) if residual else None
    dx, dw = cake.rms_norm_backward(dy, h, w, rstd, dh=dh)
    yr.backward(dy.double())
    close(dx, xr.grad if dh is None else xr.grad + dh.double(), 2**-7)
    if weight is None:
        assert dw is None
    else:
        assert dw.dtype is torch.float32
        close(dw, wr.grad, 1e-5)


def test_offset_is_added_in_fp32(call):
    x, w, *_ = call()
    y, _ = cake.rms_norm_forward(x, w, EPS, offset=True)
    ones, _ = cake.rms_norm_forward(x, w.float() + 1, EPS)
    assert same([y], [ones])


def test_outputs_that_are_given_are_written_and_returned(call):
    x, w, r, dy = call()
    y, rstd, h = cake.rms_norm_forward(x, w, EPS, residual=r)
    out, rstd2, h2 = torch.empty_like(x), torch.empty_like(rstd), r.clone()
    got = cake.rms_norm_forward(x, w, EPS, residual=h2, out=out, rstd=rstd2, h=h2)
    assert got[0] is out and got[1] is rstd2 and got[2] is h2
    assert same(got, (y, rstd, h))
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    assert cake.rms_norm_backward(dy, h, w, rstd, dx=dx, dw=dw)[1] is dw
    full = cake.rms_norm_backward(dy, h, w, rstd)
    assert same([dx, dw], [full[0], full[1].bfloat16()])
    assert cake.rms_norm_forward(x, w, EPS, rstd=False)[1] is None
    assert cake.rms_norm_backward(dy, h, w, rstd, dx=False)[0] is None
    assert cake.rms_norm_backward(dy, h, w, rstd, dw=False)[1] is None


def test_options_of_the_backward(call):
    x, w, _, dy = call()
    _, rstd = cake.rms_norm_forward(x, w, EPS)
    dx, dw = cake.rms_norm_backward(dy, x, w, rstd)
    assert same([dx, dw], cake.rms_norm_backward(dy, x, w, None, eps=EPS))
    assert same([dx, dw], cake.rms_norm_backward(dy, x, w, rstd, max_sms=1))
    old = torch.ones_like(dw)
    cake.rms_norm_backward(dy, x, w, rstd, dw=old, accumulate=True)
    assert same([old], [1 + dw])
    assert same([cake.rms_norm_backward(dy, x, w, rstd, deterministic=False)[0]], [dx])
    inplace = dy.clone()
    assert same([cake.rms_norm_backward(inplace, x, w, rstd, dx=inplace)[0]], [dx])


def test_shards_combine_to_the_bits_of_the_whole(call):
    x, w, _, dy = call((100,))
    _, rstd = cake.rms_norm_forward(x, w, EPS)
    parts = [cake.partial_dw(dy[i : i + 32], x[i : i + 32], w, rstd[i : i + 32]) for i in range(0, 128, 32)]
    whole = cake.rms_norm_backward(dy, x, w, rstd)[1]
    assert same([cake.combine_dw(torch.stack(parts))], [whole])
    assert same([cake.combine_dw(torch.stack(parts), dw_dtype="bfloat16")], [whole.bfloat16()])


def test_views_are_read_and_written_where_they_are(call):
    big, w, *_ = call((9,), 4 * 96)
    x = big[2:, 96:192]
    w = w[:96]
    out = torch.zeros_like(big)
    cake.rms_norm_forward(x, w, EPS, out=out[2:, 96:192])
    expected = torch.zeros_like(big)
    expected[2:, 96:192] = cake.rms_norm_forward(x.contiguous(), w, EPS)[0]
    assert same([out], [expected])
    t = big.t()[:7]
    assert same(cake.rms_norm_forward(t, None, EPS), cake.rms_norm_forward(t.contiguous(), None, EPS))


@pytest.mark.parametrize("weight", [torch.bfloat16, torch.float32])
def test_no_input_changes(call, weight):
    x, w, r, dy = call(weight=weight)
    before = [t.clone() for t in (x, w, r, dy)]
    _, rstd, h = cake.rms_norm_forward(x, w, EPS, residual=r)
    cake.rms_norm_backward(dy, h, w, rstd, dh=dy)
    assert same(before, (x, w, r, dy))


@pytest.mark.parametrize("shape", [(0, 96), (3, 0, 96)])
def test_no_rows(call, shape):
    x, w, _, dy = call(shape[:-1])
    y, rstd = cake.rms_norm_forward(x, w, EPS)
    assert y.shape == x.shape and rstd.shape == shape[:-1]
    dw = torch.full((96,), float("nan"), device=x.device)
    cake.rms_norm_backward(dy, x, w, rstd, dw=dw)
    assert same([dw], [torch.zeros_like(dw)])


def test_bad_input_is_refused_by_name(call):
    x, w, r, dy = call()
    out = torch.full_like(x, 3)
    forward = cake.rms_norm_forward
    for bad in (torch.float16, torch.float32, torch.float64, torch.int32):
        refused(ValueError, "x: dtype", forward, x.to(bad), w, EPS, out=out)
    for bad in (torch.float16, torch.float64, torch.int32):
        refused(ValueError, "weight: dtype", forward, x, w.to(bad), EPS, out=out)
    refused(ValueError, r"residual: dtype f32, expected bf16", forward, x, w, EPS, residual=r.float(), out=out)
    refused(ValueError, r"weight: shape \[95\], expected \[96\]", forward, x, w[:-1], EPS, out=out)
    refused(ValueError, r"weight: shape \[1, 96\], expected \[96\]", forward, x, w[None], EPS, out=out)
    refused(ValueError, "weight: 0 dimensions", forward, x, w[0], EPS, out=out)
    refused(ValueError, r"residual: shape \[32, 96\], expected \[33, 96\]", forward, x, w, EPS, residual=r[1:], out=out)
    refused(ValueError, "eps: -1", forward, x, w, -1.0, out=out)
    refused(ValueError, "eps: NaN", forward, x, w, float("nan"), out=out)
    refused(TypeError, "x: str, expected a tensor", forward, "x", w, EPS)
    refused(TypeError, "weight: .*expected a tensor", forward, x, 3, EPS, out=out)
    for bad in ("small", "1e-6", None, 1j):
        refused(TypeError, f"eps: {type(bad).__name__}, expected a float", forward, x, w, bad, out=out)
    refused(ValueError, "elements of an output overlap", forward, x, w, EPS, out=out[:1].expand(33, 96))
    refused(ValueError, "overlaps", forward, x, w, EPS, residual=out, out=out)
    refused(ValueError, "x: 0 dimensions", forward, x[0, 0], w, EPS)
    refused(ValueError, "width: 0", forward, x[:, :0], w[:0], EPS)
    refused(ValueError, "stream", forward, x, w, EPS, out=out, stream=1)
    assert (out == 3).all()

    _, rstd = forward(x, w, EPS)
    backward = cake.rms_norm_backward
    dx = torch.full_like(x, 3)
    refused(ValueError, "dy: dtype f32", backward, dy.float(), x, w, rstd, dx=dx)
    refused(ValueError, r"dy: shape \[96, 33\]", backward, dy.t(), x, w, rstd, dx=dx)
    refused(ValueError, r"rstd: shape \[32\], expected \[33\]", backward, dy, x, w, rstd[1:], dx=dx)
    refused(ValueError, "rstd: dtype bf16", backward, dy, x, w, rstd.bfloat16(), dx=dx)
    refused(ValueError, "eps: absent", backward, dy, x, w, None, dx=dx)
    refused(ValueError, "dx .*overlaps x", backward, dy, x, w, rstd, dx=x)
    refused(ValueError, "dw: absent", backward, dy, x, w, rstd, dx=dx, accumulate=True)
    refused(ValueError, "dw: present", backward, dy, x, None, rstd, dx=dx, dw=torch.empty(96, device=x.device))
    for bad in (0, -1, 2**40):
        refused(ValueError, f"max_sms: {bad}, expected 1 to", backward, dy, x, w, rstd, dx=dx, max_sms=bad)
    refused(TypeError, "max_sms: float, expected an int", backward, dy, x, w, rstd, dx=dx, max_sms=1.5)
    refused(ValueError, "dw_dtype: float16, expected float32 or", backward, dy, x, w, rstd, dx=dx, dw_dtype="float16")
    refused(ValueError, "dx: absent", backward, dy, x, w, rstd, dx=False, dw=False)
    refused(ValueError, "workspace: dtype f32", backward, dy, x, w, rstd, dx=dx, workspace=rstd)
    assert (dx == 3).all()


def test_a_call_that_records_nothing_refuses_what_needs_a_gradient(call):
    x, w, _, dy = call()
    trained, out = w.clone().requires_grad_(), torch.empty_like(x).requires_grad_()
    parts = torch.ones(2, 96, device=x.device).requires_grad_()
    refused(RuntimeError, "weight: requires grad.* use rms_norm,", cake.rms_norm_forward, x, trained, EPS)
    refused(RuntimeError, "weight: .* use rms_norm_silu_gate,", cake.rms_norm_silu_gate_forward, x, dy, trained, EPS)
    refused(RuntimeError, "out: requires grad", cake.rms_norm_forward, x, w, EPS, out=out)
    refused(RuntimeError, "shards: requires grad", cake.combine_dw, parts)
    with torch.no_grad():
        cake.rms_norm_forward(x, trained, EPS, out=out)
        cake.combine_dw(parts)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        refused(RuntimeError, "x: has a tangent", cake.rms_norm_forward, dual, w, EPS)


def test_a_lazy_negation_is_refused(call):
    x, *_ = call()
    weight = torch.randn(96, dtype=torch.complex64, device=x.device).conj().imag
    assert weight.is_neg()
    refused(ValueError, "weight: negated lazily", cake.rms_norm_forward, x, weight, EPS)
    cake.rms_norm_forward(x, weight.resolve_neg(), EPS)


def test_what_is_written_is_changed_for_autograd(call):
    x, w, r, dy = call()
    _, rstd, h = cake.rms_norm_forward(x, w, EPS, residual=r)
    dw, parts = torch.zeros(96, device=x.device), torch.ones(2, 96, device=x.device)
    cases = [
        (x.clone(), lambda t: cake.rms_norm_forward(t, w, EPS, out=t)),
        (rstd, lambda t: cake.rms_norm_forward(x, w, EPS, rstd=t)),
        (r.clone(), lambda t: cake.rms_norm_forward(x, w, EPS, residual=t, h=t)),
        (dy.clone(), lambda t: cake.rms_norm_backward(t, h, w, rstd, dx=t)),
        (dw, lambda t: cake.rms_norm_backward(dy, h, w, rstd, dw=t, accumulate=True)),
        (dw, lambda t: cake.combine_dw(parts, dw=t)),
        (x.clone(), lambda t: cake.rms_norm_silu_gate_forward(t, r, w, EPS, out=t)),
        (r.clone(), lambda t: cake.rms_norm_silu_gate_backward(dy, x, t, w, EPS, dz=t)),
    ]
    for tensor, write in cases:
        saved = torch.ones_like(tensor).requires_grad_() * tensor
        loss = saved.square().sum()
        before = saved._version
        with torch.no_grad():
            write(saved)
        assert saved._version > before
        refused(RuntimeError, "modified by an inplace operation", loss.backward)
    with torch.inference_mode():
        over = x.clone()
        cake.rms_norm_forward(over, w, EPS, out=over)


def test_numpy():
    import ml_dtypes

    x = np.random.default_rng(0).standard_normal((6, 96)).astype(ml_dtypes.bfloat16)
    w = np.linspace(0.5, 1.5, 96, dtype=np.float32)
    y, rstd = cake.rms_norm_forward(x, w, EPS)
    assert y.dtype == ml_dtypes.bfloat16 and rstd.dtype == np.float32
    tx = torch.from_numpy(x.astype(np.float32)).bfloat16()
    ty, trstd = cake.rms_norm_forward(tx, torch.from_numpy(w), EPS)
    assert np.array_equal(y.view(np.int16), ty.view(torch.int16).numpy())
    dx, dw = cake.rms_norm_backward(y, x, w, rstd)
    tdx, tdw = cake.rms_norm_backward(ty, tx, torch.from_numpy(w), trstd)
    assert np.array_equal(dw, tdw.numpy()) and np.array_equal(dx.view(np.int16), tdx.view(torch.int16).numpy())
    turned = cake.rms_norm_forward(x[::-1][::-1, ::1], w[::1], EPS)[0]
    assert np.array_equal(turned.view(np.int16), y.view(np.int16))
    with pytest.raises(ValueError, match="negative"):
        cake.rms_norm_forward(x[::-1], w, EPS)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="out: read-only"):
        cake.rms_norm_forward(x, w, EPS, out=y)


def test_what_is_no_plain_memory_is_refused(device):
    x = torch.ones(4, 96, dtype=torch.bfloat16, device=device)
    refused(ValueError, "x: expected dense memory .*storage", cake.rms_norm_forward, x.to_sparse(), None, EPS, out=x)
    refused(ValueError, "weight: expected dense memory .*meta", cake.rms_norm_forward, x, x[0].to("meta"), EPS)


@pytest.mark.parametrize("strides", [(), (4, 4)])
def test_an_array_interface_has_a_stride_for_each_dimension(strides):
    class Array:
        shape = (96,)

        def __init__(self, array):
            self.array = array
            self.__array_interface__ = {**array.__array_interface__, "strides": strides}

    x = torch.ones(4, 96, dtype=torch.bfloat16)
    refused(ValueError, f"weight: {len(strides)} strides, expected 1", cake.rms_norm_forward, x, Array(np.ones(96, "f4")), EPS)


def test_any_dlpack_exporter():
    class Exporter:
        def __init__(self, tensor):
            self.tensor, self.shape = tensor, tensor.shape

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    class Old(Exporter):
        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__()

    x = torch.randn(6, 96).bfloat16()
    expected, _ = cake.rms_norm_forward(x, None, EPS)
    for kind in (Exporter, Old):
        out = torch.empty_like(x)
        cake.rms_norm_forward(kind(x), None, EPS, out=kind(out), rstd=False)
        assert same([out], [expected])
        with pytest.raises(TypeError, match="out: absent"):
            cake.rms_norm_forward(kind(x), None, EPS)


def test_queries():
    assert cake.is_supported("cpu") and cake.workspace_bytes(100, 96, "cpu") == 0
    cake.warm_up(96, "cpu")
    widest, kernel, evidence = cake.routes(2048, "sm_90a")[-1]
    assert widest == 2**32 - 1 and kernel.startswith("rmsnorm_fwd_h2048_") and evidence
    assert "bwd" in cake.routes(2048, "sm_90", backward=True)[0][1]
    assert cake.routes(128, "sm_90a", gated=True)[0][1].startswith("silu_gate_fwd")
    assert "bwd" in cake.routes(128, "sm_90a", gated=True, backward=True)[0][1]
    for wrong, message in (({"weight": None}, "weight: None"), ({"residual": True}, "residual: True")):
        with pytest.raises(ValueError, match=message):
            cake.routes(128, "sm_90a", gated=True, **wrong)
    refused(ValueError, "arch: sm_1", cake.routes, 2048, "sm_1")
    refused(ValueError, "device: tpu", cake.is_supported, "tpu")
    refused(ValueError, "width: 0, expected", cake.workspace_bytes, 1, 0)
    refused(TypeError, "rows: float", cake.workspace_bytes, 1.0, 96)
    for device in (-1, 2**40, f"cuda:{2**40}"):
        refused(ValueError, "device: cuda:.*, expected cpu", cake.is_supported, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU")
def test_without_a_gpu():
    assert not cake.is_supported("cuda")
    refused(RuntimeError, "libcuda not found|no such device", cake.warm_up, 96, "cuda")
