"""Checked by mypy, and run: what a typed program sees of Cake."""

import torch
from torch import Tensor

import cake_py as cake


def block(x: Tensor, residual: Tensor, norm: cake.RMSNorm, weight: Tensor) -> Tensor:
    y: Tensor = cake.rms_norm(x, weight, 1e-6)
    both: tuple[Tensor, Tensor] = cake.rms_norm(y, weight, 1e-6, residual, offset=True)
    z: Tensor = norm(both[0])
    return z + both[1]


def patched(model: torch.nn.Module) -> list[str]:
    patch: cake.Patch = cake.patch(model)
    names = list(patch.replaced)
    patch.undo()
    return names


if __name__ == "__main__":
    x = torch.randn(4, 64).bfloat16()
    norm = cake.RMSNorm(64, 1e-6, dtype=torch.bfloat16)
    assert block(x, x, norm, norm.weight).shape == x.shape
    assert patched(torch.nn.Sequential(torch.nn.RMSNorm(64))) == ["0"]
    version: str = cake.__version__
    table: list[tuple[int, str, str]] = cake.routes(2048, "sm_90a")
