"""Fused RMSNorm for training: CUDA kernels on NVIDIA GPUs, and the same bits on the host.

`import cake_py` needs neither PyTorch nor a GPU. What is PyTorch's own (`rms_norm`, `RMSNorm`, `patch`) is loaded with its
first use.
"""

import os
from typing import TYPE_CHECKING

from ._cake import __version__, forked
from ._functional import (
    combine_dw,
    is_supported,
    partial_dw,
    rms_norm_backward,
    rms_norm_forward,
    rms_norm_silu_gate_backward,
    rms_norm_silu_gate_forward,
    routes,
    warm_up,
    workspace_bytes,
)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)

if TYPE_CHECKING:
    from ._gate import RMSNormGated, rms_norm_silu_gate
    from ._patch import Patch, patch
    from ._torch import RMSNorm, rms_norm

_LAZY = {
    "rms_norm": "_torch",
    "RMSNorm": "_torch",
    "rms_norm_silu_gate": "_gate",
    "RMSNormGated": "_gate",
    "patch": "_patch",
    "Patch": "_patch",
}

__all__ = [
    "Patch",
    "RMSNorm",
    "RMSNormGated",
    "__version__",
    "combine_dw",
    "is_supported",
    "partial_dw",
    "patch",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_forward",
    "rms_norm_silu_gate",
    "rms_norm_silu_gate_backward",
    "rms_norm_silu_gate_forward",
    "routes",
    "warm_up",
    "workspace_bytes",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value
