"""`cake.patch(model)`: the norms of a model, served by Cake."""

from __future__ import annotations

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
        forward = _forward_of(module)
        if forward is None:
            if "RMSNorm" in original.__name__:
                result.left[name] = f"{original.__name__} is not known to compute what Cake does"
            continue
        # A class of its own keeps `isinstance`, copies and `state_dict` as they were.
        module.__class__ = type(original.__name__, (_Patched, original), {"forward": forward, "__module__": __name__})
        result.replaced[name] = original.__name__
        result._modules.append((module, original))
    return result


class _Patched(nn.Module):
    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, by cake_py".removeprefix(", ")


def _forward_of(module: Any) -> Any:
    kind = type(module)
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
