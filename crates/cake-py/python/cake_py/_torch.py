"""The operators for PyTorch: differentiable, compiled, distributed.

Each exists twice over the same kernels. The custom ops `torch.ops.cake.*` are what PyTorch's machinery sees: `torch.compile`,
`torch.export`, dispatch modes, DTensor and other subclasses. Plain tensors in eager mode take a shorter way, an
`autograd.Function`: the dispatch of a custom op that is written in Python costs more than the kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, overload

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import Function
from torch.nn import Parameter

from . import _arrays, _cake
from ._functional import _number

if not hasattr(Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(f"torch {torch.__version__}, expected 2.10 or newer")

_BF16 = torch.bfloat16
_PLAIN = (Tensor, Parameter)

_empty_like = torch.empty_like
_forward = _cake.forward
_functorch_active = torch._C._are_functorch_transforms_active
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_modes = torch._C._len_torch_dispatch_stack
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # absent in builds without CUDA


@overload
def rms_norm(
    x: Tensor,
    weight: Tensor | None = ...,
    eps: float = ...,
    residual: None = ...,
    *,
    offset: bool = ...,
    deterministic: bool = ...,
) -> Tensor: ...
@overload
def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    residual: Tensor,
    *,
    offset: bool = ...,
    deterministic: bool = ...,
) -> tuple[Tensor, Tensor]: ...
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    residual: Tensor | None = None,
    *,
    offset: bool = False,
    deterministic: bool = True,
) -> Tensor | tuple[Tensor, Tensor]:
    """RMSNorm over the last dimension of a BF16 tensor: `y = x / sqrt(mean(x**2) + eps) * weight`.

    With `residual`, `h = x + residual` takes the place of `x`, and `(y, h)` is returned. `weight` is BF16, FP32 or absent;
    `offset` scales by `1 + weight`. Under autocast to BF16, `x` is cast to it and the weight stays as it is.

    `deterministic=False` lets the last bits of the weight's gradient vary on a GPU; it is no faster, and
    `torch.use_deterministic_algorithms` overrules it at each call.
    """
    if not isinstance(x, Tensor):
        raise _no_tensor("x", x)
    if x.dtype is not _BF16:
        x = _autocast(x)
    if type(eps) is not float:
        eps = _number("eps", eps)
    if not deterministic:
        deterministic = _overruled("rms_norm")
    if _is_compiling() or not _plain(x, weight, residual):
        if not (weight is None or isinstance(weight, Tensor)):
            raise _no_tensor("weight", weight)
        if not (residual is None or isinstance(residual, Tensor)):
            raise _no_tensor("residual", residual)
        _refuse_tangents("rms_norm", (x, weight, residual))
        if residual is None:
            return torch.ops.cake.rms_norm(x, weight, eps, offset, deterministic)[0]
        return torch.ops.cake.add_rms_norm(x, residual, weight, eps, offset, deterministic)[:2]
    if _is_grad_enabled() and (
        x.requires_grad
        or (weight is not None and weight.requires_grad)
        or (residual is not None and residual.requires_grad)
    ):
        return _eager(eps, offset, deterministic)(x, residual, weight)
    y = _empty_like(x)
    if residual is None:
        _forward(x, weight, eps, offset, None, y, None, None)
        return y
    h = _empty_like(x)
    _forward(x, weight, eps, offset, residual, y, h, None)
    return y, h


class RMSNorm(torch.nn.RMSNorm):
    """`torch.nn.RMSNorm` by `rms_norm`: the same arguments, parameters and state, for BF16 activations.

    `offset` scales by `1 + weight`, which then starts at zero. Called with a second tensor, the residual, it returns
    `(y, h)`.
    """

    def __init__(
        self,
        normalized_shape: int | list[int] | torch.Size,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        offset: bool = False,
        deterministic: bool = True,
    ) -> None:
        if offset and not elementwise_affine:
            raise ValueError("offset: True, expected False without a weight")
        self.offset = offset
        self.deterministic = deterministic
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            torch.nn.init.constant_(self.weight, 0.0 if self.offset else 1.0)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return rms_norm_of(self, x, self.weight, self.eps, residual, self.offset, self.deterministic)

    def extra_repr(self) -> str:
        return super().extra_repr() + (", offset=True" if self.offset else "")


def rms_norm_of(
    module: torch.nn.RMSNorm,
    x: Tensor,
    weight: Tensor | None,
    eps: float | None,
    residual: Tensor | None = None,
    offset: bool = False,
    deterministic: bool = True,
) -> Any:
    """`rms_norm` as a module of PyTorch spells it: several last dimensions, and a default for `eps`."""
    if eps is None:
        eps = torch.finfo(torch.float32).eps  # what PyTorch computes with for BF16, whatever its documentation says
    ends = tuple(module.normalized_shape)
    width = len(ends)
    if width > 1 or weight is None:  # a weight is compared with the width below
        for argument, tensor in ("x", x), ("residual", x if residual is None else residual):
            if not isinstance(tensor, Tensor):
                raise _no_tensor(argument, tensor)
            if tuple(tensor.shape[-width:]) != ends:
                raise ValueError(f"{argument}: shape {tuple(tensor.shape)}, expected {ends} at its end")
    if width == 1:
        return rms_norm(x, weight, eps, residual, offset=offset, deterministic=deterministic)  # type: ignore[arg-type]
    flat = [None if tensor is None else tensor.flatten(-width) for tensor in (x, weight, residual)]
    result = rms_norm(flat[0], flat[1], eps, flat[2], offset=offset, deterministic=deterministic)  # type: ignore
    return result.view(x.shape) if residual is None else tuple(tensor.view(x.shape) for tensor in result)


def _plain(x: Tensor, weight: Tensor | None, residual: Tensor | None) -> bool:
    """Whether nothing but autograd looks at the tensors."""
    return (
        type(x) in _PLAIN
        and not x.is_meta
        and (weight is None or (type(weight) in _PLAIN and not weight.is_neg()))
        and (residual is None or type(residual) in _PLAIN)
        and not _modes()
        and not _functorch_active()
        and forward_ad._current_level < 0
    )


def _no_tensor(argument: str, value: object) -> TypeError:
    return TypeError(f"{argument}: {type(value).__name__}, expected a torch.Tensor")


def _autocast(x: Tensor) -> Tensor:
    kind = x.device.type
    if x.is_floating_point() and torch.is_autocast_enabled(kind):
        target = torch.get_autocast_dtype(kind)
        if target is not _BF16:
            raise ValueError(f"autocast to {target}, expected torch.bfloat16, the activations that are served")
        return x.to(_BF16)
    raise ValueError(f"x: dtype {x.dtype}, expected torch.bfloat16")


def _overruled(function: str) -> bool:
    """What `deterministic=False` becomes: PyTorch's own setting wins, at the call."""
    if not torch.are_deterministic_algorithms_enabled():
        return False
    text = f"{function} was called with deterministic=False while torch.use_deterministic_algorithms(True) is set"
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(f"{text}: leave it out, the deterministic sum is as fast")
    warnings.warn(f"{text}: the sum is deterministic", stacklevel=3)
    return True


@lru_cache(maxsize=64, typed=True)  # 0 is no False: it is refused, and not kept for it
def _eager(eps: float, offset: bool, deterministic: bool) -> Any:
    """The eager way. Its options belong to the class: kept for each call, they would cost as much as an allocation."""

    class RmsNorm(Function):
        """Saves inputs (`h` in place of `x`) and rstd."""

        @staticmethod
        def forward(ctx: Any, x: Any, residual: Any, weight: Any) -> Any:
            y, rstd = _empty_like(x), _empty_like(_row(x.shape, x.device))
            if residual is None:
                _forward(x, weight, eps, offset, None, y, None, rstd)
                ctx.save_for_backward(x, weight, rstd)
                return y
            h = _empty_like(x)
            _forward(x, weight, eps, offset, residual, y, h, rstd)
            ctx.save_for_backward(h, weight, rstd)
            ctx.set_materialize_grads(False)
            return y, h

        @staticmethod
        def backward(ctx: Any, dy: Any, dh: Any = None) -> Any:
            dx, dw = _gradients(ctx, offset, deterministic, dy, dh, *ctx.needs_input_grad)
            return dx, dx if ctx.needs_input_grad[1] else None, dw

    return RmsNorm.apply


@lru_cache(maxsize=64)
def _row(shape: torch.Size, device: torch.device) -> Tensor:
    """What an rstd is like: one element, expanded. PyTorch takes half as long over a tensor as over sizes and a dtype."""
    return torch.empty(1, dtype=torch.float32, device=device).expand(shape[:-1] or (1,))


def _gradients(
    ctx: Any, offset: bool, deterministic: bool, dy: Any, dh: Any, for_x: bool, for_residual: bool, for_weight: bool
) -> Any:
    if dy is None:
        return dh, None
    x, weight, rstd = ctx.saved_tensors
    wants_dx = for_x or for_residual
    dh = dh if wants_dx else None
    if _is_compiling() or _is_grad_enabled() or not _plain(dy, weight, dh) or type(x) not in _PLAIN:
        dx, dw = torch.ops.cake.rms_norm_backward(
            dy, x, weight, rstd, dh, offset, wants_dx, for_weight, deterministic
        )
        return dx if wants_dx else None, dw if for_weight else None
    return _backward(dy, x, weight, rstd, dh, offset, wants_dx, for_weight, deterministic)


def _backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    rstd: Tensor,
    dh: Tensor | None,
    offset: bool,
    wants_dx: bool,
    wants_dw: bool,
    deterministic: bool,
) -> tuple[Tensor | None, Tensor | None]:
    if not deterministic:
        deterministic = _overruled("rms_norm")
    dx = _empty_like(x) if wants_dx else None
    if not wants_dw or weight is None:
        if dx is not None:
            _cake.backward(dy, x, weight, rstd, 0.0, offset, dh, dx, None, False, True, None, None)
        return dx, None
    dw = _empty_like(weight)
    arguments = dy, x, weight, rstd, 0.0, offset, dh, dx, dw, False, deterministic, None
    _with_workspace(lambda scratch: _cake.backward(*arguments, scratch), x)
    return dx, dw


def _with_workspace(call: Callable[[Any], int], like: Tensor) -> None:
    """Makes a call with the workspace of the stream, as large as it has to be."""
    scratch = None
    if like.is_cuda and _raw_stream is not None:
        index = like.device.index
        # A graph that is being captured gets a workspace of its own, see `_arrays.workspace`. PyTorch tells it of the current
        # device alone, and at once.
        here = index == torch.cuda.current_device()
        if not (torch.cuda.is_current_stream_capturing() if here else _cake.is_capturing(like)):
            scratch = _arrays._workspaces.get(("torch", index, _raw_stream(index)))
    needed = call(scratch)
    if needed:
        _arrays.retry(call, like, needed)


def _rstd(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1] or (1,), dtype=torch.float32)


# The custom ops. An output that was not asked for is an empty tensor.

_library = torch.library.Library("cake", "DEF")
_library.define("rms_norm(Tensor x, Tensor? weight, float eps, bool offset, bool deterministic) -> (Tensor, Tensor)")
_library.define(
    "add_rms_norm(Tensor x, Tensor residual, Tensor? weight, float eps, bool offset, bool deterministic) "
    "-> (Tensor, Tensor, Tensor)"
)
_library.define(
    "rms_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor rstd, Tensor? dh, bool offset, bool dx, bool dw, "
    "bool deterministic) -> (Tensor, Tensor)"
)


def _op_forward(x: Tensor, weight: Any, eps: float, offset: bool, _: bool) -> tuple[Tensor, Tensor]:
    y, rstd = _empty_like(x), _rstd(x)
    _forward(x, weight, eps, offset, None, y, None, rstd)
    return y, rstd


def _op_add(x: Tensor, residual: Tensor, weight: Any, eps: float, offset: bool, _: bool) -> tuple[Tensor, ...]:
    y, h, rstd = _empty_like(x), _empty_like(x), _rstd(x)
    _forward(x, weight, eps, offset, residual, y, h, rstd)
    return y, h, rstd


def _op_backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    dx, dw = _backward(*arguments)
    return _or_empty(dx, arguments[1]), _or_empty(dw, arguments[1])


def _or_empty(gradient: Tensor | None, x: Tensor) -> Tensor:
    return x.new_empty(0) if gradient is None else gradient


def _fake_forward(x: Tensor, weight: Any, eps: float, offset: bool, _: bool) -> tuple[Tensor, Tensor]:
    return _empty_like(x), _rstd(x)


def _fake_add(x: Tensor, residual: Tensor, weight: Any, eps: float, offset: bool, _: bool) -> tuple[Tensor, ...]:
    return _empty_like(x), _empty_like(x), _rstd(x)


def _fake_backward(
    dy: Tensor, x: Tensor, weight: Any, rstd: Tensor, dh: Any, offset: bool, dx: bool, dw: bool, _: bool
) -> tuple[Tensor, Tensor]:
    wants_dw = dw and weight is not None
    return _or_empty(_empty_like(x) if dx else None, x), _or_empty(_empty_like(weight) if wants_dw else None, x)


def _save_forward(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _, *ctx.rest = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _save_add(ctx: Any, inputs: Any, output: Any) -> None:
    _, _, weight, _, *ctx.rest = inputs
    ctx.save_for_backward(output[1], weight, output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _op_gradients(ctx: Any, dy: Any, _: Any) -> Any:
    for_x, for_weight = ctx.needs_input_grad[:2]
    return *_gradients(ctx, *ctx.rest, dy, None, for_x, False, for_weight), None, None, None


def _op_add_gradients(ctx: Any, dy: Any, dh: Any, _: Any) -> Any:
    for_x, for_residual, for_weight = ctx.needs_input_grad[:3]
    dx, dw = _gradients(ctx, *ctx.rest, dy, dh, for_x, for_residual, for_weight)
    return dx if for_x else None, dx if for_residual else None, dw, None, None, None


def _no_second(ctx: Any, *_: Any) -> Any:
    raise RuntimeError("rms_norm: a second derivative was asked for, and is not served")


def _register(name: str, impl: Any, fake: Any, save: Any, derive: Any) -> None:
    """What PyTorch has to know of an op: its kernel, its outputs' shapes, what it saves, and its derivative."""

    def kernel(*arguments: Any) -> Any:
        _refuse_tangents(name, arguments)
        return impl(*arguments)

    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"cake::{name}", fake, lib=_library)
    torch.library.register_autograd(f"cake::{name}", derive, setup_context=save, lib=_library)


def _refuse_tangents(name: str, arguments: Any) -> None:
    """PyTorch drops tangents at a custom op, those of `torch.func` before its kernel: forward mode would see zeros."""
    if _is_compiling() or forward_ad._current_level < 0:
        return
    for tensor in arguments:
        if isinstance(tensor, Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError(f"{name}: a derivative in forward mode was asked for, and is not served")


_register("rms_norm", _op_forward, _fake_forward, _save_forward, _op_gradients)
_register("add_rms_norm", _op_add, _fake_add, _save_add, _op_add_gradients)
_register("rms_norm_backward", _op_backward, _fake_backward, None, _no_second)


def _rows(x: Any) -> list[Any]:
    """Where DTensor may place `x`: rows may be sharded, over any leading dimension; the width may not."""
    from torch.distributed.tensor import Replicate, Shard

    return [Replicate(), *(Shard(dimension) for dimension in range(x.ndim - 1))]


def _sum_over_rows(at: Any, wanted: bool) -> Any:
    """Where a weight's gradient is when the rows are at `at`."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    return Partial() if isinstance(at, Shard) and wanted else Replicate()


def _register_sharding() -> None:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.experimental import register_sharding

    def weight_of(weight: Any) -> Any:
        return None if weight is None else Replicate()

    @register_sharding(torch.ops.cake.rms_norm.default)
    def _(x: Any, weight: Any, eps: float, offset: bool, deterministic: bool) -> Any:
        return [([at, at], [at, weight_of(weight), None, None, None]) for at in _rows(x)]

    @register_sharding(torch.ops.cake.add_rms_norm.default)
    def _(x: Any, residual: Any, weight: Any, eps: float, offset: bool, deterministic: bool) -> Any:
        return [([at, at, at], [at, at, weight_of(weight), None, None, None]) for at in _rows(x)]

    @register_sharding(torch.ops.cake.rms_norm_backward.default)
    def _(dy: Any, x: Any, weight: Any, rstd: Any, dh: Any, offset: Any, dx: Any, dw: Any, deterministic: Any) -> Any:
        def placed(at: Any) -> Any:
            gradients = [at if dx else Replicate(), _sum_over_rows(at, dw and weight is not None)]
            inputs = [at, at, weight_of(weight), at, None if dh is None else at]
            return gradients, [*inputs, None, None, None, None]

        return [placed(at) for at in _rows(x)]


if torch.distributed.is_available():
    _register_sharding()
