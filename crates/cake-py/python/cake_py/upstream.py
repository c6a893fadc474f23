"""The entry points of FlashInfer's `cake_rmsnorm_train` and `cake_rmsnorm_silu_gate_train` families under their names, for
code that comes from there.

Arguments and results are in their order. `deterministic` is accepted everywhere; results are deterministic unless it is false.
What Cake refuses it refuses here, too: see `rms_norm_forward`, `rms_norm_backward` and those of the gate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._arrays import HEADER
from ._functional import (
    is_supported,
    rms_norm_backward,
    rms_norm_forward,
    rms_norm_silu_gate_backward,
    rms_norm_silu_gate_forward,
    workspace_bytes,
)
from ._gate import rms_norm_silu_gate
from ._torch import rms_norm

GATE_WIDTH = 128
"""The width of that family's gated rows; its workspaces are asked for without one."""


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


def cake_rmsnorm_silu_gate_train_forward(
    x: Tensor, z: Tensor, weight: Tensor, eps: float = 1e-6, *, out: Tensor | None = None, deterministic: bool = True
) -> Any:
    return rms_norm_silu_gate_forward(x, z, weight, eps, out=out)[0]


def cake_rmsnorm_silu_gate_train_backward(
    grad_out: Tensor,
    x: Tensor,
    z: Tensor,
    weight: Tensor,
    eps: float = 1e-6,
    *,
    grad_x: Tensor | None = None,
    grad_z: Tensor | None = None,
    grad_weight: Tensor | None = None,
    accumulate_grad_weight: bool = False,
    compute_grad_weight: bool = True,
    workspace: Tensor | None = None,
    deterministic: bool = True,
) -> tuple[Any, Any, Any]:
    return rms_norm_silu_gate_backward(
        grad_out,
        x,
        z,
        weight,
        eps,
        dx=grad_x,
        dz=grad_z,
        dw=grad_weight if compute_grad_weight else False,
        dw_dtype="bfloat16",
        accumulate=accumulate_grad_weight and compute_grad_weight,
        workspace=workspace,
        deterministic=deterministic,
    )


def cake_rmsnorm_silu_gate_train_workspace_bytes(rows: int, device: Any, *, deterministic: bool = True) -> int:
    return workspace_bytes(rows, GATE_WIDTH, device)


def cake_rmsnorm_silu_gate_train_workspace(rows: int, device: Any, *, deterministic: bool = True) -> Tensor:
    return cake_rmsnorm_train_workspace(rows, GATE_WIDTH, device)


def cake_rmsnorm_silu_gate_train_reset_workspace(workspace: Tensor, *, deterministic: bool = True) -> None:
    """Makes a workspace fit for use after a launch that was aborted."""
    workspace[:HEADER].zero_()


def cake_rmsnorm_silu_gate_train(
    x: Tensor, z: Tensor, weight: Tensor, eps: float = 1e-6, *, deterministic: bool = True
) -> Any:
    return rms_norm_silu_gate(x, z, weight, eps, deterministic=deterministic)


def is_cake_rmsnorm_silu_gate_train_supported(device: Any, deterministic: bool = True) -> bool:
    return is_cake_rmsnorm_train_supported(device)


cake_rmsnorm = cake_rmsnorm_det = cake_rmsnorm_train
cake_rmsnorm_det_train_forward = cake_rmsnorm_train_forward
cake_rmsnorm_det_train_backward = cake_rmsnorm_train_backward
cake_rmsnorm_det_train_workspace = cake_rmsnorm_train_workspace
cake_rmsnorm_det_train_workspace_bytes = cake_rmsnorm_train_workspace_bytes
cake_rmsnorm_silu_gate = cake_rmsnorm_silu_gate_det = cake_rmsnorm_silu_gate_train
cake_rmsnorm_silu_gate_det_train_forward = cake_rmsnorm_silu_gate_train_forward
cake_rmsnorm_silu_gate_det_train_backward = cake_rmsnorm_silu_gate_train_backward
cake_rmsnorm_silu_gate_det_train_workspace = cake_rmsnorm_silu_gate_train_workspace
cake_rmsnorm_silu_gate_det_train_workspace_bytes = cake_rmsnorm_silu_gate_train_workspace_bytes
