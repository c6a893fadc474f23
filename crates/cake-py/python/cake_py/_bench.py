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

from ._gate import rms_norm_silu_gate
from ._torch import rms_norm

EPS = 1e-6
HEADS, GATED_WIDTH = 32, 128
ROUNDS = 24
Call = Callable[[], Any]
Norm = Callable[..., Any]
"""Takes the inputs of an operator, the weight last; returns its output, or a tuple."""


def formula(op: str, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """What is computed, in the dtype of the inputs."""
    *streams, w = inputs
    x = sum(streams) if op == "rms+res" else streams[0]
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * w  # type: ignore[union-attr]
    if op == "rms+res":
        return y, x  # type: ignore[return-value]
    return (y * torch.nn.functional.silu(streams[1]) if op == "gated" else y,)


OPS = {"rms": (4, 6), "rms+res": (8, 8), "gated": (6, 10)}
"""The operators, with the least bytes that an element moves: forward, backward."""


def _cake() -> dict[str, Norm]:
    return {
        "rms": lambda x, w: rms_norm(x, w, EPS),
        "rms+res": lambda x, r, w: rms_norm(x, w, EPS, r),
        "gated": lambda x, z, w: rms_norm_silu_gate(x, z, w, EPS),
    }


def _torch() -> dict[str, Norm]:
    from torch.nn.functional import rms_norm as norm
    from torch.nn.functional import silu

    def add(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> Any:
        h = x + r
        return norm(h, w.shape, w, EPS), h

    return {
        "rms": lambda x, w: norm(x, w.shape, w, EPS),
        "rms+res": add,
        "gated": lambda x, z, w: norm(x, w.shape, w, EPS) * silu(z),
    }


def _compile() -> dict[str, Norm]:
    def compiled(op: str) -> Norm:
        def wide(*inputs: torch.Tensor) -> Any:
            return tuple(output.bfloat16() for output in formula(op, [tensor.float() for tensor in inputs]))

        return torch.compile(wide, dynamic=False)

    return {op: compiled(op) for op in OPS}


def _liger() -> dict[str, Norm]:
    from liger_kernel.ops import LigerFusedAddRMSNormFunction, LigerRMSNormFunction  # type: ignore

    return {
        "rms": lambda x, w: LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False),
        "rms+res": lambda x, r, w: LigerFusedAddRMSNormFunction.apply(x, r, w, EPS, 0.0, "llama", False),
    }


def _quack() -> dict[str, Norm]:
    from quack import rmsnorm  # type: ignore

    return {
        "rms": lambda x, w: rmsnorm(x, w, eps=EPS),
        "rms+res": lambda x, r, w: rmsnorm(x, w, residual=r, eps=EPS, prenorm=True),
    }


def _fla() -> dict[str, Norm]:
    from fla.modules.norm.fused_norm_gate import rms_norm_gated  # type: ignore
    from fla.modules.norm.layernorm import rms_norm as norm  # type: ignore

    return {
        "rms": lambda x, w: norm(x, w, None, eps=EPS),
        "rms+res": lambda x, r, w: norm(x, w, None, residual=r, eps=EPS, prenorm=True),
        "gated": lambda x, z, w: rms_norm_gated(x, z, w, None, activation="swish", eps=EPS),
    }


PROVIDERS = {"cake": ("torch", _cake), "torch": ("torch", _torch), "compile": ("triton", _compile),
             "liger": ("liger_kernel", _liger), "quack": ("quack", _quack), "fla": ("fla", _fla)}  # fmt: skip


def bench(ops: list[str], widths: list[int], rows: list[int], plot: str | None) -> int:
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
    _host_times(ops, norms)
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    header = "".join(f"{name:>10}" for name in norms)
    print(f"\nGPU time, us{'':<20}{header}{'copy':>10}")
    for op, width, count in _rows(ops, widths, rows):
        for label, moved, calls in _calls(norms, op, count, width):
            times = _gpu_times(calls, flush)
            cells = "".join(f"{times[name]:>10.1f}" if name in times else f"{'-':>10}" for name in [*norms, "copy"])
            print(f"{label:<32}{cells}")
            for name, micros in times.items():
                lines = curves.setdefault(f"{label.rpartition('/')[0]}", {})
                lines.setdefault(name, []).append((count, moved / micros / 1e3))
    if plot:
        _plot(curves, plot)
    return 0


def _rows(ops: list[str], widths: list[int], rows: list[int]) -> list[tuple[str, int, int]]:
    """Operator, width and number of rows of each line. A gated norm has one width, and heads in place of width."""
    widths_of = {op: [GATED_WIDTH] if op == "gated" else widths for op in ops}
    return [(op, width, count) for op in ops for width in widths_of[op] for count in rows]


def _inputs(op: str, count: int, width: int, device: str = "cuda") -> list[torch.Tensor]:
    """The streams of an operator, and its weight."""
    shape = (count, HEADS, width) if op == "gated" else (count, width)
    streams = [torch.randn(shape, device=device).bfloat16() for _ in range(1 if op == "rms" else 2)]
    return [tensor.requires_grad_() for tensor in (*streams, torch.ones(width, device=device).bfloat16())]


def _outputs(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _calls(norms: dict[str, dict[str, Norm]], op: str, count: int, width: int) -> list[tuple[str, int, dict[str, Call]]]:
    """The forward and the backward of a shape, with a copy of as many bytes."""
    inputs = _inputs(op, count, width)
    expected = formula(op, [tensor.detach().double() for tensor in inputs])
    gradients = [torch.randn_like(inputs[0]) for _ in expected]
    forward: dict[str, Call] = {}
    backward: dict[str, Call] = {}
    for name, norm in norms.items():
        if op not in norm:
            continue
        try:
            outputs = _outputs(norm[op](*inputs))
            error = max(((y.double() - e).norm() / e.norm()).item() for y, e in zip(outputs, expected, strict=True))
            if error > 8e-3:
                print(f"{name}: relative error {error:.1e}, expected at most 8e-3; left out")
                continue
        except Exception as error:  # a peer's own
            print(f"{name}: {error}; left out")
            continue
        forward[name] = lambda norm=norm[op]: norm(*inputs)  # type: ignore[misc]
        backward[name] = lambda outputs=outputs: torch.autograd.grad(  # type: ignore[misc]
            outputs, inputs, gradients, retain_graph=True
        )
    result = []
    shape = f"T{count}x{HEADS}" if op == "gated" else f"T{count}"
    for label, calls, bytes_each in (("fwd", forward, OPS[op][0]), ("bwd", backward, OPS[op][1])):
        moved = bytes_each * inputs[0].numel()
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        calls["copy"] = lambda target=target, source=source: target.copy_(source)  # type: ignore[misc]
        result.append((f"{label} {op}/H{width}/{shape}", moved, calls))
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


def _host_times(ops: list[str], norms: dict[str, dict[str, Norm]]) -> None:
    print(f"\n{'host time, us':<20}" + "".join(f"{op:>10}{'with grad':>10}" for op in ops))
    for name, norm in norms.items():
        cells = []
        for op in ops:
            inputs = _inputs(op, 16, GATED_WIDTH if op == "gated" else 2048)
            try:
                call = lambda norm=norm[op], inputs=inputs: norm(*inputs)  # type: ignore[misc]  # noqa: E731
                with torch.no_grad():
                    plain = _host_time(call)
                cells.append(f"{plain:>10.1f}{_host_time(call):>10.1f}")
            except Exception as error:  # a peer's own, or an operator that it has not
                cells.append(f"{'-':>10}{'-':>10}")
                if not isinstance(error, KeyError):
                    print(f"{name}: {error}")
        print(f"{name:<20}{''.join(cells)}")


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
