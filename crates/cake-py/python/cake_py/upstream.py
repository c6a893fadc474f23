"""The entry points of FlashInfer's `cake_rmsnorm_train` family under their names, for code that comes from there.

Arguments and results are in that family's order. `deterministic` is accepted everywhere; results are deterministic unless it
is false. What Cake refuses it refuses here, too: see `rms_norm_forward` and `rms_norm_backward`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._arrays import HEADER
from ._functional import is_supported, rms_norm_backward, rms_norm_forward, workspace_bytes
from ._torch import rms_norm


def cake_rmsnorm_train_forward(
    x: Tensor,
    w: Tensor,
    eps: float,
    *,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    rstd: Tensor | None = None,
    residual_out: Tensor | None = None,
    deterministic: bool = True,
) -> tuple[Any, ...]:
    return rms_norm_forward(x, w, eps, residual=residual, out=out, rstd=rstd, h=residual_out)


def cake_rmsnorm_train_backward(
    g: Tensor,
    x: Tensor,
    w: Tensor,
    rstd: Tensor,
    *,
    deterministic: bool = True,
    g_residual: Tensor | None = None,
    workspace: Tensor | None = None,
    dx: Tensor | None = None,
    dw: Tensor | None = None,
) -> tuple[Any, Any]:
    return rms_norm_backward(
        g, x, w, rstd, dh=g_residual, dx=dx, dw=dw, workspace=workspace, deterministic=deterministic
    )


def cake_rmsnorm_train_workspace_bytes(
    rows: int, hidden: int, device: Any, *, residual: bool = False, deterministic: bool = True
) -> int:
    return workspace_bytes(rows, hidden, device)


def cake_rmsnorm_train_workspace(
    rows: int, hidden: int, device: Any, *, residual: bool = False, deterministic: bool = True
) -> Tensor:
    return torch.zeros(max(HEADER, workspace_bytes(rows, hidden, device)), dtype=torch.uint8, device=device)


def cake_rmsnorm_train(
    x: Tensor, w: Tensor, eps: float = 1e-6, residual: Tensor | None = None, deterministic: bool = True
) -> Any:
    return rms_norm(x, w, eps, residual, deterministic=deterministic)  # type: ignore[arg-type]


def is_cake_rmsnorm_train_supported(device: Any, hidden: int | None = None, deterministic: bool = True) -> bool:
    return torch.device(device).type == "cuda" and is_supported(device)


cake_rmsnorm = cake_rmsnorm_det = cake_rmsnorm_train
cake_rmsnorm_det_train_forward = cake_rmsnorm_train_forward
cake_rmsnorm_det_train_backward = cake_rmsnorm_train_backward
cake_rmsnorm_det_train_workspace = cake_rmsnorm_train_workspace
cake_rmsnorm_det_train_workspace_bytes = cake_rmsnorm_train_workspace_bytes
