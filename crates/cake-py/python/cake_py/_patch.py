"""`cake.patch(model)`: the norms of a model, served by Cake."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ._gate import ACTIVATIONS, rms_norm_silu_gate
from ._torch import RMSNorm, rms_norm, rms_norm_of


class Patch:
    """What `patch` replaced; `undo` brings it back."""

    def __init__(self) -> None:
        self.replaced: dict[str, str] = {}
        self.left: dict[str, str] = {}
        self._modules: list[tuple[nn.Module, type[nn.Module]]] = []

    def undo(self) -> None:
        for module, original in self._modules:
            if type(module) is not _patched(original):
                raise RuntimeError(
                    f"undo: {original.__name__} has become {type(module).__name__} since it was patched, by FSDP2 or a "
                    "parametrization for instance, which has to be undone first"
                )
        for module, original in self._modules:
            module.__class__ = original
        self._modules.clear()

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)} norms"]
        lines += [f"  {name}: {kind}" for name, kind in self.replaced.items()]
        if self.left:
            lines += [f"left {len(self.left)} as they are", *(f"  {name}: {why}" for name, why in self.left.items())]
        return "\n".join(lines)


def patch(model: nn.Module) -> Patch:
    """Serves every RMSNorm of `model` by Cake, in place: those of PyTorch and of Hugging Face transformers, gated ones too.

    Parameters, state and names stay as they are. Activations have to be BF16, by the model's dtype or by autocast. A norm
    that is left as it is says why.
    """
    result = Patch()
    for name, module in model.named_modules():
        original = type(module)
        if isinstance(module, (RMSNorm, _Patched)) or "RMSNorm" not in original.__name__:
            continue
        patched = _patched(original)
        why = "it is not known to compute what Cake does" if patched is None else _obstacle(module)
        if patched is None or why:
            result.left[name] = f"{original.__name__}: {why}"
            continue
        module.__class__ = patched
        result.replaced[name] = original.__name__
        result._modules.append((module, original))
    return result


def _obstacle(module: Any) -> str | None:
    """What keeps a norm of a known kind as it is."""
    if "forward" in vars(module):
        return "a forward of its own hides that of its class, set by a hook of accelerate for instance"
    activation = getattr(module, "activation", "silu")
    if activation not in ACTIVATIONS:
        return f"activation {activation}, expected one of {', '.join(ACTIVATIONS)}"
    return None


class _Patched(nn.Module):
    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, by cake_py".removeprefix(", ")

    def __reduce__(self) -> Any:
        return _bare, (type(self).__mro__[2],), self.__dict__


@cache
def _patched(original: type[nn.Module]) -> type[nn.Module] | None:
    """A class under which `isinstance`, copies and state stay as they were; None for a norm that is not known."""
    forward = _forward_of(original)
    return forward and type(original.__name__, (_Patched, original), {"forward": forward, "__module__": __name__})


def _bare(original: type[nn.Module]) -> nn.Module:
    """A patched module without its state, for copies and pickles: its class has no name to be found by."""
    patched = _patched(original)
    assert patched is not None
    return patched.__new__(patched)


def _forward_of(kind: type[nn.Module]) -> Any:
    if kind is nn.RMSNorm:
        return _torch_forward
    if "transformers" not in sys.modules:
        return None
    for family, name, forward in _KNOWN:
        try:
            module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        except ImportError:  # younger than the transformers that are installed
            continue
        if _code(kind) == _code(getattr(module, name)):
            return forward
    return None


def _code(kind: type) -> dict[str, Any]:
    """What a class computes."""
    codes = {name: getattr(value, "__code__", None) for name, value in vars(kind).items()}
    return {
        name: (code.co_code, code.co_consts, code.co_names, code.co_varnames)
        for name, code in codes.items()
        if code and name not in ("__init__", "extra_repr")
    }


def _torch_forward(self: nn.RMSNorm, x: Tensor) -> Any:
    return rms_norm_of(self, x, self.weight, self.eps)


def _weighted(self: Any, hidden_states: Tensor) -> Tensor:
    return rms_norm(hidden_states, self.weight, self.variance_epsilon)


def _offset(self: Any, x: Tensor) -> Tensor:
    return rms_norm(x, self.weight, self.eps, offset=True)


def _gated(self: Any, hidden_states: Tensor, gate: Tensor) -> Tensor:
    return rms_norm_silu_gate(hidden_states, gate, self.weight, self.variance_epsilon, activation=self.activation)


def _gate_first(self: Any, hidden_states: Tensor, gate: Tensor | None = None) -> Tensor:
    if gate is not None:
        eps, size = self.variance_epsilon, self.group_size
        return rms_norm_silu_gate(hidden_states, gate, self.weight, eps, gate_first=True, group_size=size)
    parts = (tensor.split(self.group_size, -1) for tensor in (hidden_states, self.weight))
    return torch.cat([rms_norm(x, weight, self.variance_epsilon) for x, weight in zip(*parts, strict=True)], -1)


# Norms of transformers whose code other models have letter by letter, some 180 of them; and what serves it.
_KNOWN = [
    ("llama", "LlamaRMSNorm", _weighted),
    ("olmo2", "Olmo2RMSNorm", _weighted),
    ("helium", "HeliumRMSNorm", _weighted),
    ("gemma", "GemmaRMSNorm", _offset),
    ("qwen3_next", "Qwen3NextRMSNormGated", _gated),
    ("kimi_linear", "KimiLinearRMSNormGated", _gated),
    ("mamba2", "MambaRMSNormGated", _gate_first),
]
