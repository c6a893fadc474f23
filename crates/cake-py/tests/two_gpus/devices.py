"""One process, two devices: whose memory, whose context, whose bits.

`here` is the device that is current, `there` the other one; on a machine without two GPUs they are what there is.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import cake_py as cake
from cake_py import _arrays

from .compare import Row, equal, failed, not_run, refused, states, within
from .models import EPS

SHAPES = [(1, 128), (33, 96), (300, 2048)]
LARGE = (4096, 6144)
MIB = 1 << 20


def devices(here: torch.device, there: torch.device) -> Iterator[Row]:
    for check in (bits, contexts, refusals, captures, threads, orders, fresh, memory):
        try:
            yield from check(here, there)
        except Exception as error:
            yield failed(f"devices: {check.__name__}", error)


def tensors(rows: int, width: int, device: Any, weight: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Of every call: `z` is the gate, or the residual."""
    generator = torch.Generator().manual_seed(rows)
    x, z, dy = (torch.randn(rows, width, generator=generator).bfloat16() for _ in range(3))
    w = (torch.rand(width, generator=generator) + 0.5).to(weight)
    return {name: tensor.to(device) for name, tensor in {"x": x, "z": z, "w": w, "dy": dy}.items()}


def results(x: Tensor, z: Tensor, w: Tensor, dy: Tensor, max_sms: int | None = None) -> dict[str, Tensor]:
    """What every call on these tensors gives."""
    y, rstd = cake.rms_norm_forward(x, w, EPS)
    y2, rstd2, h = cake.rms_norm_forward(x, w, EPS, residual=z)
    dx, dw = cake.rms_norm_backward(dy, x, w, rstd, max_sms=max_sms)
    dx2, dw2 = cake.rms_norm_backward(dy, h, w, rstd2, dh=z, max_sms=max_sms)
    gated, _ = cake.rms_norm_silu_gate_forward(x, z, w, EPS)
    dx3, dz3, dw3 = cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, max_sms=max_sms)
    shards = zip(*(t.split(rows_of_shard(x)) for t in (dy, x, rstd)), strict=True)
    parts = torch.stack([cake.partial_dw(dy, x, w, rstd, max_sms=max_sms) for dy, x, rstd in shards])
    return {
        "y": y, "rstd": rstd, "y (res)": y2, "rstd (res)": rstd2, "h": h, "dx": dx, "dw": dw, "dx (res)": dx2,
        "dw (res)": dw2, "y (gate)": gated, "dx (gate)": dx3, "dz": dz3, "dw (gate)": dw3,
        "dw of shards": cake.combine_dw(parts), **recorded(x, z, w, dy),
    }  # fmt: skip


def rows_of_shard(x: Tensor) -> int:
    """8 times a power of two, and at least half of the rows."""
    return max(8, 1 << (len(x) - 1).bit_length() >> 1)


def recorded(x: Tensor, z: Tensor, w: Tensor, dy: Tensor) -> dict[str, Tensor]:
    """The same through autograd."""
    leaves = [t.clone().requires_grad_() for t in (x, z, w)]
    y, h = cake.rms_norm(leaves[0], leaves[2], EPS, leaves[1])
    gated = cake.rms_norm_silu_gate(*leaves, EPS)
    gradients = torch.autograd.grad([y, h, gated], leaves, [dy, dy, dy])
    return dict(zip(["y'", "h'", "y' (gate)", "dx'", "dz'", "dw'"], [y, h, gated, *gradients], strict=True))


def bits(here: torch.device, there: torch.device) -> list[Row]:
    """Everything on each device and on the host, once with a limit on SMs."""
    rows = []
    for shape in [*SHAPES, *([LARGE] if here.type == "cuda" else [])]:
        for weight in (torch.float32, torch.bfloat16):
            expected = results(**tensors(*shape, "cpu", weight))
            what = f"{'x'.join(map(str, shape))}, {str(weight)[6:]} weight"
            rows.append(equal(f"{what}: dw of two shards", [expected["dw of shards"]], [expected["dw"]]))
            for device, max_sms in dict.fromkeys([(here, None), (there, None), (there, 16)]):
                seen = results(**tensors(*shape, device, weight), max_sms=max_sms)
                limit = f", max_sms={max_sms}" if max_sms else ""
                rows.append(equal(f"{what}: {len(seen)} results of {device}{limit}", seen.values(), expected.values()))
    return rows


def contexts(here: torch.device, there: torch.device) -> list[Row]:
    """Each call on either device leaves the thread as it was."""
    return [*contexts_of(there, here), *(contexts_of(here, there) if here != there else [])]


def contexts_of(there: torch.device, here: torch.device) -> list[Row]:
    given, on_here = tensors(300, 2048, there), tensors(300, 2048, here)
    x, z, w, dy = given.values()
    rstd = cake.rms_norm_forward(x, w, EPS)[1]
    part = torch.ones(2, 2048, device=there)
    calls: dict[str, Callable[[], Any]] = {
        "rms_norm_forward": lambda: cake.rms_norm_forward(x, w, EPS, residual=z),
        "rms_norm_backward": lambda: cake.rms_norm_backward(dy, x, w, rstd, dh=z),
        "rms_norm_silu_gate_forward": lambda: cake.rms_norm_silu_gate_forward(x, z, w, EPS),
        "rms_norm_silu_gate_backward": lambda: cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS),
        "combine_dw": lambda: cake.combine_dw(part),
        "autograd": lambda: recorded(**given),
        "warm_up": lambda: cake.warm_up(640, there),
        "workspace_bytes": lambda: cake.workspace_bytes(300, 2048, there),
        "a refused dtype": lambda: fails(lambda: cake.rms_norm_forward(x.float(), w, EPS)),
        "a refused eps": lambda: fails(lambda: cake.rms_norm_forward(x, w, -1.0)),
        "a refused place": lambda: here == there or fails(lambda: cake.rms_norm_forward(x, on_here["w"], EPS)),
        "a short workspace": lambda: there.type == "cpu"
        or fails(lambda: cake.rms_norm_backward(dy, x, w, rstd, workspace=torch.zeros(1024, dtype=torch.uint8, device=there))),
    }
    rows = []
    for name, call in calls.items():
        before = current()
        call()
        rows.append(states(f"{name} on {there}: current device and context", "unchanged", changes(before)))
    return rows


def fails(call: Callable[[], object]) -> None:
    try:
        call()
    except (ValueError, TypeError):
        return
    raise AssertionError("it was accepted")


def current() -> tuple[int, int]:
    """The current device of PyTorch and the current context of the driver."""
    if not torch.cuda.is_initialized():
        return 0, 0
    context = ctypes.c_void_p()
    status = ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    assert status == 0, f"cuCtxGetCurrent: {status}"
    return torch.cuda.current_device(), context.value or 0


def changes(before: tuple[int, int]) -> str:
    after = current()
    return "unchanged" if after == before else f"{before} became {after}"


def refusals(here: torch.device, there: torch.device) -> list[Row]:
    """One argument of another device among the rest, in memory that the call's device may well reach."""
    if here == there:
        return [not_run("mixed devices", "one device is here")]
    return [*refusals_of(here, there), *refusals_of(there, here)]


def refusals_of(here: torch.device, there: torch.device) -> list[Row]:
    a, b = tensors(300, 2048, here), tensors(300, 2048, there)
    a["x"].copy_(b["x"])  # PyTorch lets the GPUs reach each other's memory for this, where they can
    x, z, w, dy = a.values()
    rstd = cake.rms_norm_forward(x, w, EPS)[1]
    own, other = (str(device).replace("cpu", "host") for device in (here, there))
    y2, rstd2, dw2 = torch.empty_like(b["x"]), torch.empty(300, device=there), torch.empty(2048, device=there)
    z2, w2, dy2, gate = b["z"], b["w"], b["dy"], cake.rms_norm_silu_gate_backward
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("weight", lambda: cake.rms_norm(x, w2, EPS)),
        ("residual", lambda: cake.rms_norm(x, w, EPS, z2)),
        ("z", lambda: cake.rms_norm_silu_gate(x, z2, w, EPS)),
        ("weight", lambda: cake.rms_norm_silu_gate(x, z, w2, EPS)),
        ("out", lambda: cake.rms_norm_forward(x, w, EPS, out=y2)),
        ("rstd", lambda: cake.rms_norm_forward(x, w, EPS, rstd=rstd2)),
        ("h", lambda: cake.rms_norm_forward(x, w, EPS, residual=z, h=y2)),
        ("dy", lambda: cake.rms_norm_backward(dy2, x, w, rstd)),
        ("rstd", lambda: cake.rms_norm_backward(dy, x, w, rstd2)),
        ("dh", lambda: cake.rms_norm_backward(dy, x, w, rstd, dh=dy2)),
        ("dx", lambda: cake.rms_norm_backward(dy, x, w, rstd, dx=y2)),
        ("dw", lambda: cake.rms_norm_backward(dy, x, w, rstd, dw=dw2)),
        ("dy", lambda: gate(dy2, x, z, w, EPS)),
        ("dz", lambda: gate(dy, x, z, w, EPS, dz=y2)),
        ("dw", lambda: cake.combine_dw(torch.ones(2, 2048, device=here), dw=dw2)),
    ]
    if here.type == "cuda":
        scratch = torch.zeros(cake.workspace_bytes(300, 2048, here), dtype=torch.uint8, device=there)
        calls.append(("workspace", lambda: cake.rms_norm_backward(dy, x, w, rstd, workspace=scratch)))
    rows, written = [], [y2, rstd2, dw2]
    for tensor in written:
        tensor.fill_(7)
    for argument, call in calls:
        before = current()
        rows.append(refused(f"{argument} of {there} in a call on {here}", f"{argument}: lives on {other}, expected {own}", call))
        rows.append(states("  and then the current device and context", "unchanged", changes(before)))
    untouched = all(bool((tensor == 7).all()) for tensor in written)
    return [*rows, states("outputs of refused calls are untouched", True, untouched)]


def captures(here: torch.device, there: torch.device) -> list[Row]:
    """A graph of one device that is captured while another is current keeps no workspace that others use."""
    if there.type != "cuda" or here == there:
        return [not_run("a capture on a device that is not current", "no second GPU is here")]
    given = tensors(4096, 2048, there)
    x, _, w, dy = given.values()
    rstd = cake.rms_norm_forward(x, w, EPS)[1]
    backward = lambda: torch.ops.cake.rms_norm_backward(dy, x, w, rstd, None, False, True, True, True)  # noqa: E731
    expected = backward()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(there)
    torch.cuda.synchronize(there)
    with torch.cuda.graph(graph, stream=stream), torch.cuda.device(here):
        # The stream stays current on `there`.
        seen = backward()
    for key, scratch in list(_arrays._workspaces.items()):
        if key[1] == there.index:
            scratch.fill_(255)  # a graph that held one of these would go wrong
            del _arrays._workspaces[key]
    for tensor in seen:
        tensor.zero_()
    graph.replay()
    torch.cuda.synchronize(there)
    return [equal(f"a graph captured on {there} while {here} is current", seen, expected)]


def threads(here: torch.device, there: torch.device) -> list[Row]:
    """Tensors and workspaces that one thread has used serve the next."""
    given = [tensors(300, 2048, device) for device in (here, there)]
    expected = [results(**arguments) for arguments in given]
    seen: list[dict[str, Tensor]] = []
    for _ in range(3):
        for arguments in given:
            on_a_thread(lambda arguments=arguments: seen.append(results(**arguments)))
    good = [equal("", one.values(), expected[i % 2].values()).good for i, one in enumerate(seen)]
    return [states("threads take turns with the tensors of both devices", [True] * 6, good)]


def on_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def orders(here: torch.device, there: torch.device) -> list[Row]:
    """Tensors are let go in any order while the calls that use them may still run."""
    expected = results(**tensors(300, 2048, "cpu"))
    wrong = []
    for order in itertools.permutations(["x", "z", "w", "dy"]):
        for device in (here, there):
            given = tensors(300, 2048, device)
            seen = results(**given)
            for name in order:
                given.pop(name)
                torch.full((300, 2048), 99.0, dtype=torch.bfloat16, device=device)  # takes what was given back
            if not equal("", seen.values(), expected.values()).good:
                wrong.append(order)
    return [states("tensors are dropped in 24 orders on both devices", [], wrong)]


def fresh(here: torch.device, there: torch.device) -> list[Row]:
    """The first use of each device, at the same time, in a process that has used none."""
    command = [sys.executable, "-m", "two_gpus.fresh", str(here), str(there)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300)
    return [states("first use of each device by a thread of its own", "the bits of the host, twice", done.stdout.strip())]


def memory(here: torch.device, there: torch.device) -> list[Row]:
    """A process that works on `there` alone takes nothing of `here`."""
    if here == there or there.type == "cpu" or here.type == "cpu":
        return [not_run("a process that works on one GPU leaves the other alone", "no second GPU is here")]
    torch.cuda.synchronize(here)
    before, _ = torch.cuda.mem_get_info(here)
    command = [sys.executable, "-m", "two_gpus.fresh", "--alone", str(there)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdin
        seen = child.stdout.readline().strip()  # it has worked, and waits
        taken = before - torch.cuda.mem_get_info(here)[0]
        child.stdin.close()
    own = torch.cuda.memory_allocated(here)
    results(**tensors(*LARGE, there))
    return [
        states(f"a process on {there}: contexts after PyTorch's calls, after Cake's", f"[{there.index}] [{there.index}]", seen),
        within(f"a process on {there}: MiB taken of {here}", taken / MIB, 16),
        states(f"calls on {there}: bytes of PyTorch on {here}", own, torch.cuda.memory_allocated(here)),
    ]
