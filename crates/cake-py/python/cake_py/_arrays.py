"""New arrays in the library of an argument, and the workspaces that are kept for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from . import _cake

# The first bytes of a workspace, which are zero at rest; the kernels leave them so.
HEADER = 1024

_workspaces: dict[tuple[str, int, int], Any] = {}


def library(array: Any) -> str:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    return type(array).__module__.partition(".")[0]


def empty(like: Any, shape: tuple[int, ...], dtype: str | None, argument: str) -> Any:
    """An uninitialised array beside `like`: of its dtype where none is named."""
    name = library(like)
    module = sys.modules.get(name)
    if module is None or name not in ("torch", "numpy", "cupy"):
        raise TypeError(
            f"{argument}: absent, expected because {type(like).__module__}.{type(like).__qualname__} is of a library "
            "whose arrays Cake cannot allocate"
        )
    kind = like.dtype if dtype is None else _dtype(module, name, dtype)
    if name == "torch":
        return module.empty(shape, dtype=kind, device=like.device)
    with like.device if name == "cupy" else nullcontext():
        return module.empty(shape, dtype=kind)


def _dtype(module: Any, name: str, dtype: str) -> Any:
    if dtype == "bfloat16" and name != "torch":
        from ml_dtypes import bfloat16

        return bfloat16
    return getattr(module, dtype)


def retry(call: Callable[[Any], int], like: Any, needed: int) -> None:
    """Makes a call again that came back for want of `needed` bytes."""
    lacking = call(workspace(like, needed))
    if lacking:
        raise RuntimeError(f"workspace: {needed} bytes, expected {lacking} after all")


def workspace(like: Any, needed: int) -> Any:
    """The workspace of the current stream of `like`'s library, with at least `needed` bytes."""
    name = library(like)
    if name == "torch":
        torch = sys.modules["torch"]
        if _cake.is_capturing(like):
            # The graph owns it: replays may run beside the stream's other work.
            scratch = torch.empty(needed, dtype=torch.uint8, device=like.device)
            scratch[:HEADER].zero_()
            return scratch
        key = name, like.device.index, torch.cuda.current_stream(like.device).cuda_stream
        return _kept(key, needed, lambda: torch.zeros(needed, dtype=torch.uint8, device=like.device))
    if name == "cupy":
        cupy = sys.modules["cupy"]
        with like.device:
            key = name, like.device.id, cupy.cuda.get_current_stream().ptr
            return _kept(key, needed, lambda: cupy.zeros(needed, dtype=cupy.uint8))
    raise ValueError(f"workspace: absent, expected {needed} bytes of unsigned bytes on the GPU, the first {HEADER} zero")


def _kept(key: tuple[str, int, int], needed: int, new: Callable[[], Any]) -> Any:
    scratch = _workspaces.get(key)
    if scratch is None or scratch.nbytes < needed:
        scratch = _workspaces[key] = new()
    return scratch
