import pytest
import torch
from two_gpus.compare import bits, same

__all__ = ["bits", "close", "reference", "refused", "same"]

H = 96
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU"))]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


@pytest.fixture
def call(device):
    """Tensors of a call: x, weight, residual, dy."""

    def make(rows=(33,), width=H, weight=torch.bfloat16):
        shape = (*rows, width)
        x, residual, dy = (torch.randn(shape, device=device).bfloat16() for _ in range(3))
        w = None if weight is None else (torch.rand(width, device=device) + 0.5).to(weight)
        return x, w, residual, dy

    return make


def reference(x, w, eps, residual=None, offset=False):
    """FP64 from the very values; h is rounded as specified."""
    if residual is not None:
        x = (x.float() + residual.float()).bfloat16()
    x = x.detach().double().requires_grad_()
    w = None if w is None else w.detach().double().requires_grad_()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    if w is not None:
        y = y * (1 + w if offset else w)
    return x, w, y


def close(actual, expected, bound):
    error = (actual.double() - expected.double()).abs().max().item()
    limit = bound * max(1.0, expected.abs().max().item())
    assert error <= limit, f"error {error}, expected at most {limit}"


def refused(kind, text, function, *args, **options):
    with pytest.raises(kind, match=text):
        function(*args, **options)
