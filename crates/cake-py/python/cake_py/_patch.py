"""`cake.patch(model)`: the norms of a model, served by Cake."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor, nn

from ._torch import RMSNorm, rms_norm, rms_norm_of

# What the classes of Hugging Face transformers call their epsilon, and whether they scale by 1 + weight.
_FAMILIES = {
    "LlamaRMSNorm": ("variance_epsilon", False),
    "MistralRMSNorm": ("variance_epsilon", False),
    "MixtralRMSNorm": ("variance_epsilon", False),
    "Qwen2RMSNorm": ("variance_epsilon", False),
    "Qwen2MoeRMSNorm": ("variance_epsilon", False),
    "Qwen3RMSNorm": ("variance_epsilon", False),
    "Qwen3MoeRMSNorm": ("variance_epsilon", False),
    "GemmaRMSNorm": ("eps", True),
    "Gemma2RMSNorm": ("eps", True),
    "Gemma3RMSNorm": ("eps", True),
}


class Patch:
    """What `patch` replaced; `undo` brings it back."""

    def __init__(self) -> None:
        self.replaced: dict[str, str] = {}
        self.left: dict[str, str] = {}
        self._modules: list[tuple[nn.Module, type[nn.Module]]] = []

    def undo(self) -> None:
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
    """Serves every RMSNorm of `model` by Cake, in place: those of PyTorch, and of Llama, Mistral, Qwen and Gemma.

    Parameters, state and names stay as they are. Activations have to be BF16, by the model's dtype or by autocast.
    """
    result = Patch()
    for name, module in model.named_modules():
        original = type(module)
        if isinstance(module, (RMSNorm, _Patched)):
            continue
        patched = _patched(original)
        if patched is None:
            if "RMSNorm" in original.__name__:
                result.left[name] = f"{original.__name__} is not known to compute what Cake does"
            continue
        module.__class__ = patched
        result.replaced[name] = original.__name__
        result._modules.append((module, original))
    return result


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
    family = _FAMILIES.get(kind.__name__)
    if family is None or not kind.__module__.startswith("transformers."):
        return None
    eps, offset = family

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        return rms_norm(hidden_states, self.weight, getattr(self, eps), offset=offset)

    return forward


def _torch_forward(self: nn.RMSNorm, x: Tensor) -> Any:
    return rms_norm_of(self, x, self.weight, self.eps)
