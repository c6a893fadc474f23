"""The operators as plain functions: on tensors of PyTorch, NumPy and CuPy, and on others where outputs are given."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, Literal

from . import _arrays, _cake

Array = Any
"""A tensor of any library: a DLPack exporter, or an array interface."""


def rms_norm_forward(
    x: Array,
    weight: Array | None,
    eps: float,
    *,
    residual: Array | None = None,
    out: Array | None = None,
    rstd: Array | Literal[False] | None = None,
    h: Array | None = None,
    offset: bool = False,
    stream: int | None = None,
) -> tuple[Any, ...]:
    """`y = x * rstd * weight` with `rstd = 1 / sqrt(mean(x**2) + eps)`: returns `(y, rstd)`.

    With `residual`, `h = x + residual` takes the place of `x`, and `(y, rstd, h)` is returned. `offset` scales by
    `1 + weight`. Outputs that are not given are allocated; `rstd=False` leaves it out. `out` may be `x`, and `h` may be
    `residual`. Nothing is recorded for autograd: see `rms_norm`.
    """
    _refuse_unseen("rms_norm", x=x, weight=weight, residual=residual, out=out, rstd=rstd, h=h)
    shape = _shape("x", x)
    if out is None:
        out = _arrays.empty(x, shape, None, "out")
    if rstd is None:
        rstd = _arrays.empty(x, shape[:-1] or (1,), "float32", "rstd")
    if residual is not None and h is None:
        h = _arrays.empty(x, shape, None, "h")
    given = None if rstd is False else rstd
    _cake.forward(x, weight, _number("eps", eps), offset, residual, out, h, given, _stream(x, stream))
    _written(out, given, h)
    return (out, given) if residual is None else (out, given, h)


def rms_norm_backward(
    dy: Array,
    x: Array,
    weight: Array | None,
    rstd: Array | None,
    *,
    eps: float | None = None,
    dh: Array | None = None,
    dx: Array | Literal[False] | None = None,
    dw: Array | Literal[False] | None = None,
    dw_dtype: Literal["float32", "bfloat16"] = "float32",
    accumulate: bool = False,
    deterministic: bool = True,
    max_sms: int | None = None,
    workspace: Array | None = None,
    offset: bool = False,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """The gradients of `rms_norm_forward`: returns `(dx, dw)`.

    `x` is the forward's input, its `h` in the residual form, where `dh` is that output's gradient and `dx` the gradient of
    both addends. Without `rstd` it is computed again from `x` and `eps`. Outputs that are not given are allocated; `False`
    leaves one out. `accumulate` adds to the `dw` that is given. `dx` may be `dy`. `max_sms` leaves the other SMs to
    whatever else runs.
    """
    _refuse_unseen("rms_norm", dy=dy, x=x, weight=weight, rstd=rstd, dh=dh, dx=dx, dw=dw)
    shape = _shape("x", x)
    if rstd is None and eps is None:
        raise ValueError("eps: absent, expected because rstd is")
    if dx is None:
        dx = _arrays.empty(x, shape, None, "dx")
    if dw is None and weight is not None:
        dw = _new_dw(x, shape, dw_dtype, accumulate)
    number = 0.0 if eps is None else _number("eps", eps)
    max_sms = None if max_sms is None else _size("max_sms", max_sms, 1)
    dx_given, dw_given = (None if gradient is False else gradient for gradient in (dx, dw))

    outputs = dx_given, dw_given, accumulate, deterministic, max_sms
    arguments = dy, x, weight, rstd, number, offset, dh, *outputs
    _with_workspace(lambda scratch: _cake.backward(*arguments, scratch, _stream(x, stream)), x, workspace)
    _written(dx_given, dw_given)
    return dx_given, dw_given


def rms_norm_silu_gate_forward(
    x: Array,
    z: Array,
    weight: Array,
    eps: float,
    *,
    activation: Literal["silu", "swish", "sigmoid"] = "silu",
    gate_first: bool = False,
    group_size: int | None = None,
    out: Array | None = None,
    rstd: Array | Literal[False] = False,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """`y = x * rstd * weight * gate(z)`, each row of the last dimension normalised on its own: returns `(y, rstd)`.

    `gate(z)` is `z * sigmoid(z)`, or `sigmoid(z)`. With `gate_first`, `x * gate(z)` takes the place of `x` and is what is
    normalised. With `group_size`, each run of as many elements is normalised on its own, by a launch of its own; `rstd` then
    has a last dimension for the groups. `x` and `z` have the same shape, each its own strides; `out` may be either. `rstd` is
    written where it is given. Nothing is recorded for autograd: see `rms_norm_silu_gate`.
    """
    _refuse_unseen("rms_norm_silu_gate", x=x, z=z, weight=weight, out=out, rstd=rstd)
    shape = _shape("x", x)
    if out is None:
        out = _arrays.empty(x, shape, None, "out")
    given = None if rstd is False else rstd
    form = _number("eps", eps), activation, gate_first
    groups = 1 if group_size is None else _groups(shape, z, weight, group_size)
    for group, (*inputs, part_out) in enumerate(_split(groups, x, z, weight, out)):
        _cake.gate_forward(*inputs, *form, part_out, _of_group(given, groups, group), _stream(x, stream))
    _written(out, given)
    return out, given


def rms_norm_silu_gate_backward(
    dy: Array,
    x: Array,
    z: Array,
    weight: Array,
    eps: float,
    *,
    rstd: Array | None = None,
    activation: Literal["silu", "swish", "sigmoid"] = "silu",
    gate_first: bool = False,
    group_size: int | None = None,
    dx: Array | None = None,
    dz: Array | None = None,
    dw: Array | Literal[False] | None = None,
    dw_dtype: Literal["float32", "bfloat16"] = "float32",
    accumulate: bool = False,
    deterministic: bool = True,
    max_sms: int | None = None,
    workspace: Array | None = None,
    stream: int | None = None,
) -> tuple[Any, Any, Any]:
    """The gradients of `rms_norm_silu_gate_forward`: returns `(dx, dz, dw)`.

    Without `rstd` it is computed again. Outputs that are not given are allocated; `dw=False` leaves it out. `accumulate` adds
    to the `dw` that is given. `dx` may be `dy`, and `dz` may be `z`.
    """
    _refuse_unseen("rms_norm_silu_gate", dy=dy, x=x, z=z, weight=weight, rstd=rstd, dx=dx, dz=dz, dw=dw)
    shape = _shape("x", x)
    if dx is None:
        dx = _arrays.empty(x, shape, None, "dx")
    if dz is None:
        dz = _arrays.empty(x, shape, None, "dz")
    if dw is None:
        dw = _new_dw(x, shape, dw_dtype, accumulate)
    eps = _number("eps", eps)
    max_sms = None if max_sms is None else _size("max_sms", max_sms, 1)
    dw_given = None if dw is False else dw

    form = eps, activation, gate_first
    groups = 1 if group_size is None else _groups(shape, z, weight, group_size)
    for group, (*inputs, part_dx, part_dz, part_dw) in enumerate(_split(groups, dy, x, z, weight, dx, dz, dw_given)):
        outputs = part_dx, part_dz, part_dw, accumulate, deterministic, max_sms
        arguments = *inputs, _of_group(rstd, groups, group), *form, *outputs
        _with_workspace(
            lambda scratch, arguments=arguments: _cake.gate_backward(*arguments, scratch, _stream(x, stream)), x, workspace
        )
    _written(dx, dz, dw_given)
    return dx, dz, dw_given


def partial_dw(dy: Array, x: Array, weight: Array, rstd: Array, *, dw: Array | None = None, **options: Any) -> Any:
    """The FP32 `dw` of a shard of the rows, for `combine_dw`; options as in `rms_norm_backward`."""
    return rms_norm_backward(dy, x, weight, rstd, dx=False, dw=dw, **options)[1]


def combine_dw(
    shards: Array,
    *,
    dw: Array | None = None,
    dw_dtype: Literal["float32", "bfloat16"] = "float32",
    accumulate: bool = False,
    stream: int | None = None,
) -> Any:
    """The `dw` of all rows from those of row shards, FP32 `[shards, H]` in the order of the rows.

    All shards have the same number of rows, 8 times a power of two, but for the last ones, which may have fewer or none.
    The result has the bits of one call on all rows.
    """
    _refuse_unseen(None, shards=shards, dw=dw)
    shape = _shape("shards", shards)
    if dw is None:
        dw = _new_dw(shards, shape, dw_dtype, accumulate)
    _cake.combine(shards, dw, accumulate, _stream(shards, stream))
    _written(dw)
    return dw


def workspace_bytes(rows: int, width: int, device: Any = "cuda") -> int:
    """Bytes of a workspace that serves every backward of up to `rows` rows of `width` on a device; 0 on the host.

    A workspace is an array of unsigned bytes for the calls of one stream. Its first 1024 bytes have to be zero before the
    first call; each call leaves them fit for the next.
    """
    ordinal = _ordinal(device)
    if ordinal is None:
        return 0
    size = _size("rows", rows, 0), _size("width", width, 1), ordinal
    return max(_cake.workspace_bytes(*size), _cake.gate_workspace_bytes(*size))


def warm_up(width: int, device: Any = "cuda") -> None:
    """Loads what rows of `width` need on a device, so that the first call may be inside a graph capture."""
    width, ordinal = _size("width", width, 1), _ordinal(device)
    if ordinal is not None:
        _cake.warm_up(width, ordinal)
        _cake.gate_warm_up(width, ordinal)


def is_supported(device: Any = "cuda") -> bool:
    """Whether the operators run on a device: the host, always; a GPU, if it and its driver are served."""
    ordinal = _ordinal(device)
    return ordinal is None or _cake.is_supported(ordinal)


def routes(
    width: int,
    arch: str,
    *,
    weight: Literal["bf16", "f32"] | None = "bf16",
    offset: bool = False,
    residual: bool = False,
    gated: bool = False,
    backward: bool = False,
) -> list[tuple[int, str, str]]:
    """Which kernel serves how many rows on an architecture, say `sm_90a`; no GPU is needed.

    A tuple for each route: the most rows for each SM, the kernel, what was measured for it.
    """
    return _cake.routes(_size("width", width, 1), arch, weight, offset, residual, gated, backward)


def _shape(argument: str, array: Array) -> tuple[int, ...]:
    shape = getattr(array, "shape", None)
    if shape is None:
        raise TypeError(f"{argument}: {type(array).__name__}, expected a tensor")
    if len(shape) == 0:
        raise ValueError(f"{argument}: 0 dimensions, expected 1 to 7")
    return tuple(shape)


def _with_workspace(call: Callable[[Any], int], like: Array, workspace: Array | None) -> None:
    """Makes a call with the workspace that is given, or else with one that is kept."""
    needed = call(workspace)
    if needed and workspace is not None:
        raise ValueError(f"workspace: {workspace.nbytes} bytes, expected at least {needed}")
    if needed:
        _arrays.retry(call, like, needed)


def _groups(shape: tuple[int, ...], z: Array, weight: Array, size: int) -> int:
    """How many groups of a size a row has."""
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"group_size: {type(size).__name__}, expected an int")
    width = shape[-1] if shape else 1
    if size < 1 or width % size:
        raise ValueError(f"group_size: {size}, expected a divisor of {width}, the size of a row")
    for argument, array, expected in (("z", z, shape), ("weight", weight, shape[-1:])):
        if _shape(argument, array) != tuple(expected):
            raise ValueError(f"{argument}: shape {list(array.shape)}, expected {list(expected)}")
    return width // size


def _split(groups: int, *arrays: Array | None) -> list[tuple[Any, ...]]:
    """For each group, what belongs to it of arrays whose last dimension is that of the rows, as views."""
    if groups == 1:
        return [arrays]

    def part(array: Array | None, group: int) -> Any:
        if array is None:
            return None
        size = array.shape[-1] // groups
        return array[..., group * size : (group + 1) * size]

    return [tuple(part(array, group) for array in arrays) for group in range(groups)]


def _of_group(rstd: Array | None, groups: int, group: int) -> Any:
    return rstd if rstd is None or groups == 1 else rstd[..., group]


def _new_dw(like: Array, shape: tuple[int, ...], dtype: str, accumulate: bool) -> Any:
    if accumulate:
        raise ValueError("dw: absent, expected because accumulate=True adds to it")
    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"dw_dtype: {dtype}, expected float32 or bfloat16")
    return _arrays.empty(like, shape[-1:], dtype, "dw")


def _size(argument: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{argument}: {type(value).__name__}, expected an int")
    value = operator.index(value)
    if not least <= value < 2**31:
        raise ValueError(f"{argument}: {value}, expected {least} to 2**31 - 1")
    return value


def _number(argument: str, value: Any) -> float:
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{argument}: {type(value).__name__}, expected a float")


def _ordinal(device: Any) -> int | None:
    """The ordinal of a GPU that is given as `cuda`, `cuda:1`, 1 or a device of PyTorch; None for the host."""
    if isinstance(device, int) and not isinstance(device, bool):
        device = f"cuda:{device}"
    kind, _, index = str(device).partition(":")
    if kind == "cpu":
        return None
    if kind != "cuda" or not (index == "" or index.isdecimal() and int(index) < 2**31):
        raise ValueError(f"device: {device}, expected cpu, cuda, cuda:N or N")
    if index:
        return int(index)
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0


def _stream(array: Array, stream: int | None) -> int | None:
    if stream is not None and _arrays.library(array) == "torch":
        raise ValueError(f"stream: {stream}, expected None: tensors of PyTorch are served on its current stream")
    return stream


def _refuse_unseen(differentiable: str | None, **arrays: Any) -> None:
    """A call that sees memory alone must not pass over what PyTorch knows of it: a graph, a tangent, a negation."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    forward_mode = torch.autograd.forward_ad
    for argument, array in arrays.items():
        if not isinstance(array, torch.Tensor):
            continue
        if array.requires_grad and torch.is_grad_enabled():
            other = f"use {differentiable}, or " if differentiable else ""
            raise RuntimeError(
                f"{argument}: requires grad, and this call records nothing for it: {other}call it under torch.no_grad()"
            )
        if forward_mode._current_level >= 0 and forward_mode.unpack_dual(array).tangent is not None:
            raise RuntimeError(f"{argument}: has a tangent, and forward mode is not served")
        if array.is_neg():
            raise ValueError(f"{argument}: negated lazily, expected what its resolve_neg() returns")


def _written(*outputs: Any) -> None:
    """Counts the change, so that autograd refuses a graph that has saved what was there before."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for output in outputs:
        if isinstance(output, torch.Tensor) and not output.is_inference():
            torch.autograd.graph.increment_version(output)
