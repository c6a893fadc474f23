"""Times of the norms on a CUDA GPU, beside those of the peers that are installed.

GPU time: CUDA events around one call, queued while the GPU is busy so that the host's time does not show, with the L2 full
of other lines; the median of interleaved rounds. Host time: of a call at 16 rows. Answers are checked first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from ._torch import rms_norm

EPS = 1e-6
ROUNDS = 24
Call = Callable[[], Any]


def _cake() -> Any:
    return lambda x, w: rms_norm(x, w, EPS)


def _torch() -> Any:
    return lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, EPS)


def _compile() -> Any:
    def formula(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * w.float()).to(x.dtype)

    return torch.compile(formula, dynamic=False)


def _liger() -> Any:
    from liger_kernel.ops import LigerRMSNormFunction  # type: ignore

    return lambda x, w: LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False)


def _quack() -> Any:
    from quack import rmsnorm  # type: ignore

    return lambda x, w: rmsnorm(x, w, eps=EPS)


def _fla() -> Any:
    from fla.modules.norm.layernorm import rms_norm as norm  # type: ignore

    return lambda x, w: norm(x, w, None, eps=EPS)


PROVIDERS = {"cake": ("torch", _cake), "torch": ("torch", _torch), "compile": ("triton", _compile),
             "liger": ("liger_kernel", _liger), "quack": ("quack", _quack), "fla": ("fla", _fla)}  # fmt: skip


def bench(widths: list[int], rows: list[int], plot: str | None) -> int:
    if not torch.cuda.is_available():
        print("bench: no CUDA GPU, expected one")
        return 1
    print(torch.cuda.get_device_name())
    norms = {}
    for name, (module, make) in PROVIDERS.items():
        if find_spec(module) is None:
            print(f"{name}: not installed")
            continue
        norms[name] = make()
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    _host_times(norms)
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    header = "".join(f"{name:>10}" for name in norms)
    print(f"\nGPU time, us{'':<20}{header}{'copy':>10}")
    for width in widths:
        for count in rows:
            for label, moved, calls in _calls(norms, count, width):
                times = _gpu_times(calls, flush)
                cells = "".join(f"{times[name]:>10.1f}" if name in times else f"{'-':>10}" for name in [*norms, "copy"])
                print(f"{label:<32}{cells}")
                for name, micros in times.items():
                    lines = curves.setdefault(f"{label.split('/')[0]} H{width}", {})
                    lines.setdefault(name, []).append((count, moved / micros / 1e3))
    if plot:
        _plot(curves, plot)
    return 0


def _inputs(count: int, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, dy = (torch.randn(count, width, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return x.requires_grad_(), torch.ones(width, device="cuda", dtype=torch.bfloat16).requires_grad_(), dy


def _calls(norms: dict[str, Any], count: int, width: int) -> list[tuple[str, int, dict[str, Call]]]:
    """The forward and the backward of a shape, with a copy of as many bytes."""
    x, w, dy = _inputs(count, width)
    expected = torch.nn.functional.rms_norm(x.double(), w.shape, w.double(), EPS)
    forward: dict[str, Call] = {}
    backward: dict[str, Call] = {}
    for name, norm in norms.items():
        try:
            y = norm(x, w)
            error = (y.double() - expected).norm() / expected.norm()
            if error > 8e-3:
                print(f"{name}: relative error {error.item():.1e}, expected at most 8e-3; left out")
                continue
        except Exception as error:  # a peer's own
            print(f"{name}: {error}; left out")
            continue
        forward[name] = lambda norm=norm: norm(x, w)  # type: ignore[misc]
        backward[name] = lambda y=y: torch.autograd.grad(y, [x, w], dy, retain_graph=True)  # type: ignore[misc]
    result = []
    for label, calls, moved in (("fwd", forward, 4 * count * width), ("bwd", backward, 6 * count * width)):
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        calls["copy"] = lambda target=target, source=source: target.copy_(source)  # type: ignore[misc]
        result.append((f"{label}/H{width}/T{count}", moved, calls))
    return result


def _gpu_times(calls: dict[str, Call], flush: torch.Tensor) -> dict[str, float]:
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            flush.zero_()
            torch.cuda._sleep(300_000)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            samples[name].append(start.elapsed_time(end) * 1e3)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def _host_times(norms: dict[str, Any]) -> None:
    x, w, _ = _inputs(16, 2048)
    print(f"\n{'host time, us':<20}{'no grad':>10}{'with grad':>10}")
    for name, norm in norms.items():
        try:
            with torch.no_grad():
                plain = _host_time(lambda norm=norm: norm(x, w))  # type: ignore[misc]
            print(f"{name:<20}{plain:>10.1f}{_host_time(lambda norm=norm: norm(x, w)):>10.1f}")  # type: ignore[misc]
        except Exception as error:  # a peer's own
            print(f"{name:<20} {error}")


def _host_time(call: Call) -> float:
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            call()
        times.append((time.perf_counter() - start) / 200 * 1e6)
    return statistics.median(times)


def _plot(curves: dict[str, dict[str, list[tuple[int, float]]]], file: str) -> None:
    import matplotlib.pyplot as plt  # type: ignore

    figure, axes = plt.subplots(1, len(curves), figsize=(5 * len(curves), 4), squeeze=False)
    for axis, (title, lines) in zip(axes[0], curves.items(), strict=True):
        for name, points in lines.items():
            style = {"color": "black", "linestyle": "--"} if name == "copy" else {"marker": "o"}
            axis.plot(*zip(*points, strict=True), label=name, **style)
        axis.set(title=title, xlabel="rows", ylabel="GB/s", xscale="log", ylim=0)
        axis.legend()
    figure.tight_layout()
    figure.savefig(file)
    print(f"wrote {file}")
