"""The gated norm for PyTorch: differentiable, compiled, distributed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function

from . import _cake, _torch
from ._functional import _groups, _number, _split

ACTIVATIONS = "silu", "swish", "sigmoid"

_library = _torch._library
_library.define(
    "rms_norm_silu_gate(Tensor x, Tensor z, Tensor weight, float eps, str activation, bool gate_first, "
    "SymInt groups, bool deterministic) -> Tensor"
)
_library.define(
    "rms_norm_silu_gate_backward(Tensor dy, Tensor x, Tensor z, Tensor weight, float eps, str activation, "
    "bool gate_first, SymInt groups, bool dw, bool deterministic) -> (Tensor, Tensor, Tensor)"
)


def rms_norm_silu_gate(
    x: Tensor,
    z: Tensor,
    weight: Tensor,
    eps: float = 1e-6,
    *,
    activation: str = "silu",
    gate_first: bool = False,
    group_size: int | None = None,
    deterministic: bool = True,
) -> Tensor:
    """`rmsnorm(x) * weight * gate(z)` over the last dimension of BF16 tensors; `gate(z)` is `z * sigmoid(z)` or `sigmoid(z)`.

    With `gate_first`, `rmsnorm(x * gate(z)) * weight`. With `group_size`, each run of as many elements is normalised on its
    own, by a launch of its own. Autograd saves the inputs and nothing else. Under autocast to BF16, `x` and `z` are cast to it
    and the weight stays as it is.
    """
    for argument, value in (("x", x), ("z", z), ("weight", weight)):
        if not isinstance(value, Tensor):
            raise _torch._no_tensor(argument, value)
    if x.dtype is not torch.bfloat16:
        x = _torch._autocast(x)
    if z.dtype is not torch.bfloat16:
        z = _torch._autocast(z)
    if type(eps) is not float:
        eps = _number("eps", eps)
    if not deterministic:
        deterministic = _torch._overruled("rms_norm_silu_gate")
    groups = 1 if group_size is None else _groups(x.shape, z, weight, group_size)
    if torch.compiler.is_compiling() or not _torch._plain(x, weight, z):
        _torch._refuse_tangents("rms_norm_silu_gate", (x, z, weight))
        return torch.ops.cake.rms_norm_silu_gate(x, z, weight, eps, activation, gate_first, groups, deterministic)
    if torch.is_grad_enabled() and (x.requires_grad or z.requires_grad or weight.requires_grad):
        return _eager(eps, activation, gate_first, groups, deterministic)(x, z, weight)
    return _forward(x, z, weight, eps, activation, gate_first, groups)


class RMSNormGated(torch.nn.Module):
    """`rms_norm_silu_gate` with a weight; `norm_before_gate=False` normalises `x * gate(z)`."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        *,
        activation: str = "silu",
        norm_before_gate: bool = True,
        group_size: int | None = None,
        device: Any = None,
        dtype: Any = None,
        deterministic: bool = True,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: {activation}, expected {', '.join(ACTIVATIONS[:-1])} or {ACTIVATIONS[-1]}")
        self.eps, self.activation, self.norm_before_gate = eps, activation, norm_before_gate
        self.group_size, self.deterministic = group_size, deterministic
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        torch.nn.init.ones_(self.weight)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return rms_norm_silu_gate(
            x,
            z,
            self.weight,
            self.eps,
            activation=self.activation,
            gate_first=not self.norm_before_gate,
            group_size=self.group_size,
            deterministic=self.deterministic,
        )

    def extra_repr(self) -> str:
        last = "" if self.norm_before_gate else ", norm_before_gate=False"
        if self.group_size is not None:
            last += f", group_size={self.group_size}"
        return f"{self.weight.numel()}, eps={self.eps}, activation={self.activation!r}{last}"


def _forward(x: Tensor, z: Tensor, weight: Tensor, eps: float, activation: str, gate_first: bool, groups: int) -> Tensor:
    y = torch.empty_like(x)
    for part_x, part_z, part_weight, part_y in _split(groups, x, z, weight, y):
        _cake.gate_forward(part_x, part_z, part_weight, eps, activation, gate_first, part_y, None)
    return y


@lru_cache(maxsize=64, typed=True)  # 0 is no False: it is refused, and not kept for it
def _eager(eps: float, activation: str, gate_first: bool, groups: int, deterministic: bool) -> Any:
    """The eager way, as in `_torch._eager`."""

    class RmsNormSiluGate(Function):
        """Saves inputs."""

        @staticmethod
        def forward(ctx: Any, x: Any, z: Any, weight: Any) -> Any:
            ctx.save_for_backward(x, z, weight)
            return _forward(x, z, weight, eps, activation, gate_first, groups)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return _gradients(ctx, dy, eps, activation, gate_first, groups, deterministic)

    return RmsNormSiluGate.apply


def _gradients(
    ctx: Any, dy: Any, eps: float, activation: str, gate_first: bool, groups: int, deterministic: bool
) -> Any:
    x, z, weight = ctx.saved_tensors
    for_x, for_z, for_weight = ctx.needs_input_grad[:3]
    arguments = dy, x, z, weight, eps, activation, gate_first, groups, for_weight, deterministic
    plain = type(x) in _torch._PLAIN and type(z) in _torch._PLAIN and _torch._plain(dy, weight, None)
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or not plain:
        dx, dz, dw = torch.ops.cake.rms_norm_silu_gate_backward(*arguments)
    else:
        dx, dz, dw = _backward(*arguments)
    return dx if for_x else None, dz if for_z else None, dw if for_weight else None


def _backward(
    dy: Tensor,
    x: Tensor,
    z: Tensor,
    weight: Tensor,
    eps: float,
    activation: str,
    gate_first: bool,
    groups: int,
    wants_dw: bool,
    deterministic: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    if not deterministic:
        deterministic = _torch._overruled("rms_norm_silu_gate")
    dx, dz = torch.empty_like(x), torch.empty_like(z)
    dw = torch.empty_like(weight) if wants_dw else None
    for *inputs, part_dx, part_dz, part_dw in _split(groups, dy, x, z, weight, dx, dz, dw):
        outputs = part_dx, part_dz, part_dw, False, deterministic, None
        arguments = *inputs, None, eps, activation, gate_first, *outputs
        _torch._with_workspace(lambda scratch, arguments=arguments: _cake.gate_backward(*arguments, scratch), x)
    return dx, dz, dw


def _op_forward(x: Tensor, z: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return _forward(x, z, weight, *rest[:-1])


def _op_backward(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    dx, dz, dw = _backward(dy, x, *rest)
    return dx, dz, _torch._or_empty(dw, x)


def _fake_backward(dy: Tensor, x: Tensor, z: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    wants_dw = rest[-2]
    dw = torch.empty_like(weight) if wants_dw else x.new_empty(0)
    return torch.empty_like(x), torch.empty_like(z), dw


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, z, weight, *ctx.rest = inputs
    ctx.save_for_backward(x, z, weight)


def _op_gradients(ctx: Any, dy: Any) -> Any:
    return *_gradients(ctx, dy, *ctx.rest), *(None for _ in ctx.rest)


def _fake_forward(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _no_second(ctx: Any, *_: Any) -> Any:
    raise RuntimeError("rms_norm_silu_gate: a second derivative was asked for, and is not served")


_torch._register("rms_norm_silu_gate", _op_forward, _fake_forward, _save, _op_gradients)
_torch._register("rms_norm_silu_gate_backward", _op_backward, _fake_backward, None, _no_second)


def _register_sharding() -> None:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.experimental import register_sharding

    @register_sharding(torch.ops.cake.rms_norm_silu_gate.default)
    def _(x: Any, z: Any, weight: Any, *rest: Any) -> Any:
        return [([at], [at, at, Replicate(), *(None for _ in rest)]) for at in _torch._rows(x)]

    @register_sharding(torch.ops.cake.rms_norm_silu_gate_backward.default)
    def _(dy: Any, x: Any, z: Any, weight: Any, *rest: Any) -> Any:
        def placed(at: Any) -> Any:
            gradients = [at, at, _torch._sum_over_rows(at, wanted=rest[-2])]
            return gradients, [at, at, at, Replicate(), *(None for _ in rest)]

        return [placed(at) for at in _torch._rows(x)]


if torch.distributed.is_available():
    _register_sharding()
