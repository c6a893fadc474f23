"""What only a GPU shows: streams, graphs, devices, memory, host time. Everything else runs on both devices."""

import os
import subprocess
import sys
import time

import pytest
import torch
from conftest import same

import cake_py as cake

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
EPS = 1e-6


def inputs(rows=300, width=2048, weight=torch.bfloat16, device="cuda"):
    x, r, dy = (torch.randn(rows, width, device=device).bfloat16() for _ in range(3))
    return x, (torch.rand(width, device=device) + 0.5).to(weight), r, dy


def step(x, w, r, dy):
    """Outputs and gradients; the leaves are x, r and w."""
    x, w, r = (t.detach().requires_grad_() for t in (x, w, r))
    y, h = cake.rms_norm(x, w, EPS, r)
    return [y, h, *torch.autograd.grad([y, h], [x, r, w], [dy, dy])]


@pytest.mark.parametrize("width", [96, 128, 2048, 6144, 12289])
@pytest.mark.parametrize("rows", [0, 1, 7, 300, 5000])
@pytest.mark.parametrize("weight", [torch.bfloat16, torch.float32])
def test_bits_are_those_of_the_host(rows, width, weight):
    call = inputs(rows, width, weight)
    assert same(step(*call), step(*(t.cpu() for t in call)))


def test_a_side_stream():
    call = inputs()
    expected = step(*call)
    side = torch.cuda.Stream()
    empty = [torch.zeros_like(t) for t in call]
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)
            for tensor, value in zip(empty, call, strict=True):
                tensor.copy_(value)
            x, w, r = (t.detach().requires_grad_() for t in empty[:3])
            y, h = cake.rms_norm(x, w, EPS, r)
        torch.autograd.backward([y, h], [empty[3], empty[3]])  # PyTorch runs it on the forward's stream
        torch.cuda.synchronize()
        assert same([y, h, x.grad, r.grad, w.grad], expected)
        for tensor in empty:
            tensor.zero_()
        torch.cuda.synchronize()


def test_streams_have_workspaces_of_their_own():
    call = inputs(8192, 2048)
    expected = step(*call)
    sides = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    for _ in range(10):
        results = []
        for side in sides:
            with torch.cuda.stream(side):
                results.append(step(*call))
        torch.cuda.synchronize()
        assert all(same(result, expected) for result in results)


def test_a_captured_graph_replays_the_eager_bits():
    cake.warm_up(2048)
    static = inputs()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step(*static)
    for _ in range(20):
        fresh = inputs()
        for tensor, value in zip(static, fresh, strict=True):
            tensor.copy_(value)
        graph.replay()
        assert same(outputs, step(*fresh))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_width_is_ready_for_every_backward(deterministic, accumulate):
    width = 4999 - 2 * deterministic - accumulate  # of no other test
    x, w, z, dy = inputs(3, width)
    dw = torch.zeros(width, device="cuda")
    options = {"dw": dw, "accumulate": accumulate, "deterministic": deterministic}
    workspace = torch.zeros(cake.workspace_bytes(3, width), dtype=torch.uint8, device="cuda")
    given = torch.ones(3, device="cuda")
    cake.warm_up(width)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        for rstd in (None, given):
            cake.rms_norm_backward(dy, x, w, rstd, eps=EPS, workspace=workspace, **options)
            cake.rms_norm_silu_gate_backward(dy, x, z, w, EPS, rstd=rstd, workspace=workspace, **options)
        cake.combine_dw(torch.empty(2, width, device="cuda"), dw=dw, accumulate=accumulate)


def test_a_captured_call_without_rows():
    cake.warm_up(2048)
    static = inputs(0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step(*static)
    outputs[-1].fill_(1)
    graph.replay()
    assert not outputs[-1].any()


def test_compiled_into_graphs():
    f = torch.compile(lambda *a: cake.rms_norm(a[0], a[1], EPS, a[2]), fullgraph=True, mode="reduce-overhead")
    for _ in range(5):
        x, w, r, dy = inputs()
        x, w, r = (t.requires_grad_() for t in (x, w, r))
        torch.compiler.cudagraph_mark_step_begin()
        y, h = f(x, w, r)
        gradients = torch.autograd.grad([y, h], [x, r, w], [dy, dy])
        assert same([y, h, *gradients], step(x, w, r, dy))


def test_two_graphs_share_a_pool():
    cake.warm_up(1024)
    calls = [inputs(4096, 1024) for _ in range(2)]
    pool = torch.cuda.graph_pool_handle()
    graphs, outputs = [torch.cuda.CUDAGraph() for _ in calls], []
    for graph, call in zip(graphs, calls, strict=True):
        with torch.cuda.graph(graph, pool=pool):
            outputs.append(step(*call))
    for graph, call, output in zip(graphs, calls, outputs, strict=True):
        graph.replay()
        assert same(output, step(*call))


def test_make_graphed_callables():
    module = torch.nn.Sequential(cake.RMSNorm(512, EPS), torch.nn.Linear(512, 512), cake.RMSNorm(512, EPS))
    module = module.cuda().bfloat16()
    x = torch.randn(64, 512, device="cuda").bfloat16()

    def once(f):
        module.zero_grad()
        a = x.clone().requires_grad_()
        y = f(a)
        y.float().square().sum().backward()
        return [y.detach(), a.grad, *(p.grad.clone() for p in module.parameters())]

    expected = once(module)
    graphed = torch.cuda.make_graphed_callables(module, (x.clone().requires_grad_(),))
    assert same(once(graphed), expected)


FIRST_USE = """
import torch, cake_py as cake
x = torch.randn(8, 768, device="cuda").bfloat16()
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        cake.rms_norm(x, None, 1e-6)
except RuntimeError as error:
    assert "warm_up" in str(error), error
    cake.warm_up(768)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = cake.rms_norm(x, None, 1e-6)
    graph.replay()
    assert torch.equal(y, cake.rms_norm(x, None, 1e-6))
"""


def test_first_use_inside_a_capture_asks_for_warm_up():
    subprocess.run([sys.executable, "-c", FIRST_USE], check=True, timeout=120)


@pytest.mark.parametrize("setting", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_other_allocators(setting):
    code = """
import torch, cake_py as cake
x = torch.randn(4096, 2048, device="cuda").bfloat16().requires_grad_()
w = torch.ones(2048, device="cuda").requires_grad_()
for _ in range(3):
    cake.rms_norm(x, w, 1e-6).sum().backward()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    (dw,) = torch.autograd.grad(cake.rms_norm(x, w, 1e-6).sum(), [w])
graph.replay()
torch.cuda.synchronize()
assert torch.equal(3 * dw, w.grad), "three equal steps add up"
"""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment)


def test_a_workspace_of_ones_own():
    x, w, _, dy = inputs(8192, 2048)
    rstd = cake.rms_norm_forward(x, w, EPS)[1]
    expected = cake.rms_norm_backward(dy, x, w, rstd)
    needed = cake.workspace_bytes(8192, 2048)
    own = torch.full((needed,), 255, dtype=torch.uint8, device="cuda")
    own[:1024] = 0
    for _ in range(2):
        assert same(cake.rms_norm_backward(dy, x, w, rstd, workspace=own), expected)
        header = own[:1024].view(torch.int32)
        assert not header[1:].any() and header[0].item() & 0x7FFFFFFF == 0
    with pytest.raises(ValueError, match=r"workspace: 1024 bytes, expected at least \d+"):
        cake.rms_norm_backward(dy, x, w, rstd, workspace=own[:1024])
    with pytest.raises(ValueError, match="workspace: lives on host"):
        cake.rms_norm_backward(dy, x, w, rstd, workspace=own.cpu())
    with pytest.raises(ValueError, match="workspace: address .* not a multiple of 256"):
        cake.rms_norm_backward(dy, x, w, rstd, workspace=own[8:])


def test_places_do_not_mix():
    x, w, *_ = inputs(4)
    with pytest.raises(ValueError, match="weight: lives on host, expected cuda:0"):
        cake.rms_norm(x, w.cpu(), EPS)
    with pytest.raises(ValueError, match="weight: lives on cuda:0, expected host"):
        cake.rms_norm(x.cpu(), w, EPS)


def peak(w):
    x, _, _, dy = inputs(2048, 16384)
    x.requires_grad_()
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = cake.rms_norm(x, w, EPS)
        torch.autograd.grad(y, [x], dy)
        del y
    return torch.cuda.max_memory_allocated() - before


def test_a_frozen_weight_takes_no_workspace():
    w = torch.ones(16384, device="cuda").bfloat16()
    assert peak(w) <= 2 * 2048 * 16384 * 2 + (1 << 20)


def test_autocast_copies_no_activations():
    x = torch.randn(4096, 4096, device="cuda").bfloat16()
    w = torch.ones(4096, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", torch.bfloat16), torch.no_grad():
        cake.rms_norm(x, w, EPS)
    assert torch.cuda.max_memory_allocated() - before <= x.nbytes + (1 << 20)


def test_compiled_steps_launch_no_copies():
    from torch.profiler import ProfilerActivity, profile

    f = torch.compile(lambda *a: cake.rms_norm(a[0], a[1], EPS, a[2]), fullgraph=True, dynamic=True)
    x, w, r, dy = inputs(4096)
    x, w, r = (t.requires_grad_() for t in (x, w, r))

    def once():
        y, h = f(x, w, r)
        return torch.autograd.grad([y, h], [x, r, w], [dy, dy])

    once()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        once()
        torch.cuda.synchronize()
    kernels = [event.key for event in seen.key_averages() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert kernels and all(name.startswith("rmsnorm_") for name in kernels), kernels


def host_time(call):
    best = float("inf")
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            call()
        best = min(best, (time.perf_counter() - start) / 200)
    return best * 1e6


def test_host_time_of_a_call():
    x, w, *_ = inputs(16)
    with torch.no_grad():
        plain = host_time(lambda: cake.rms_norm(x, w, EPS))
    x.requires_grad_(), w.requires_grad_()
    recorded = host_time(lambda: cake.rms_norm(x, w, EPS))
    print(f"host time of a call: {plain:.1f} us without a gradient, {recorded:.1f} us with one")
    assert plain < 7 and recorded < 11
