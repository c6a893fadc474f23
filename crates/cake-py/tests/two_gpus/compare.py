"""Comparisons of tensors, and the table that says how they went."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """What was looked at, what was expected, what was seen; `good` is None where nothing could be judged."""

    what: str
    expected: str
    seen: str
    good: bool | None = True

    def __str__(self) -> str:
        verdict = {True: "", False: "DIFFERS", None: "not judged"}[self.good]
        return f"{self.what:<66} {self.expected:<34} {self.seen} {verdict}".rstrip()


def bits(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if t is None else t.detach().cpu().contiguous().view(-1).view(torch.uint8).clone() for t in tensors]


def same(a: Iterable[Tensor | None], b: Iterable[Tensor | None]) -> bool:
    pairs = zip(bits(*a), bits(*b), strict=True)
    return all(p is q if p is None or q is None else torch.equal(p, q) for p, q in pairs)


def distance(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest element that is expected."""
    expected = expected.detach().double().cpu()
    error = (actual.detach().double().cpu() - expected).abs().max().item()
    return error / max(expected.abs().max().item(), 1e-30)


def equal(what: str, seen: Iterable[Tensor | None], expected: Iterable[Tensor | None]) -> Row:
    seen, expected = list(seen), list(expected)
    different = [i for i, pair in enumerate(zip(seen, expected, strict=True)) if not same(*([tensor] for tensor in pair))]
    text = f"tensors {different} of {len(seen)} have other bits" if different else "the same bits"
    return Row(what, "the same bits", text, not different and bool(seen))


def within(what: str, seen: float, limit: float) -> Row:
    return Row(what, f"at most {limit:.1e}", f"{seen:.1e}", seen <= limit)


def states(what: str, expected: object, seen: object) -> Row:
    """For what is not a tensor."""
    return Row(what, str(expected), str(seen), expected == seen)


def refused(what: str, message: str, call: Callable[[], object]) -> Row:
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        text = str(error).partition("\n")[0]
        return Row(what, message, text if len(text) < 80 else text[:77] + "...", message.lower() in str(error).lower())
    return Row(what, message, "it was accepted", False)


def figure(what: str, seen: str) -> Row:
    return Row(what, "a figure", seen, None)


def not_run(what: str, reason: str) -> Row:
    return Row(what, "-", f"not run: {reason}", None)


def failed(what: str, error: BaseException) -> Row:
    lines = [line for line in re.split(r"\n+", str(error).strip()) if line]
    return Row(what, "no error", f"{type(error).__name__}: {lines[-1] if lines else ''}", False)
