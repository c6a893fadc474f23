"""Autograd, modules, ops, compile: the torch cases that need no GPU run on both devices."""

import copy
import gc
import itertools
import multiprocessing
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from conftest import close, reference, refused, same
from torch.library import opcheck
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import cake_py as cake

EPS = 1e-6
OPS = torch.ops.cake


def leaves(*tensors):
    return [None if t is None else t.detach().clone().requires_grad_() for t in tensors]


def run(x, w, r, dy, dh, **options):
    """Outputs and gradients of a residual call."""
    x, w, r = leaves(x, w, r)
    y, h = cake.rms_norm(x, w, EPS, r, **options)
    torch.autograd.backward([y, h], [dy, dh])
    return y, h, x.grad, r.grad, w.grad


@pytest.fixture
def whole(call):
    x, w, r, dy = call((4, 9))
    return x, w, r, dy, torch.randn_like(dy)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("weight", [torch.bfloat16, torch.float32])
def test_gradients_against_fp64(call, offset, weight):
    x, w, r, dy = call((4, 9), weight=weight)
    dh = torch.randn_like(dy)
    y, h, dx, dr, dw = run(x, w, r, dy, dh, offset=offset)
    hr, wr, yr = reference(x, w, EPS, r, offset)
    yr.backward(dy.double())
    close(y, yr, 2**-8)
    close(h, hr, 0)
    close(dx, hr.grad + dh.double(), 2**-7)
    close(dw, wr.grad, 2**-7 if weight is torch.bfloat16 else 1e-5)
    assert same([dx], [dr]) and dw.dtype is weight


def test_ops_and_the_eager_way_give_the_same_bits(whole):
    x, w, r, dy, dh = whole
    expected = run(*whole)
    x, w, r = leaves(x, w, r)
    y, h, _ = OPS.add_rms_norm(x, r, w, EPS, False, True)
    torch.autograd.backward([y, h], [dy, dh])
    assert same(expected, (y, h, x.grad, r.grad, w.grad))
    rstd, full = cake.rms_norm_forward(h.detach(), w.detach(), EPS)[1], None
    full = cake.rms_norm_backward(dy, h.detach(), w.detach(), rstd, dh=dh, dw_dtype="bfloat16")
    assert same(full, (x.grad, w.grad))


@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("used", ["y", "h", "both"])
@pytest.mark.parametrize("way", ["eager", "op"])
def test_gradients_exist_where_they_are_asked_for(whole, wanted, used, way):
    expected = None
    x, w, r, dy, dh = whole
    x, w, r = (t.clone().requires_grad_(flag) for t, flag in zip((x, w, r), wanted, strict=True))
    f = cake.rms_norm if way == "eager" else lambda x, w, e, r: OPS.add_rms_norm(x, r, w, e, False, True)[:2]
    y, h = f(x, w, EPS, r)
    if not any(wanted) or (used == "h" and not (wanted[0] or wanted[2])):
        if not any(wanted):
            assert not y.requires_grad and not h.requires_grad
        return
    outputs, gradients = zip(*[(y, dy), (h, dh)], strict=True)
    pick = {"y": slice(0, 1), "h": slice(1, 2), "both": slice(0, 2)}[used]
    torch.autograd.backward(outputs[pick], gradients[pick])
    zero = torch.zeros_like(dy)
    expected = run(*whole[:3], dy if used != "h" else zero, dh if used != "y" else zero)[2:]
    expected = dict(zip("xrw", expected, strict=True))
    for name, tensor, flag in (("x", x, wanted[0]), ("w", w, wanted[1]), ("r", r, wanted[2])):
        if not flag:
            assert tensor.grad is None
        elif name == "w" and used == "h":
            assert tensor.grad is None or not tensor.grad.any()
        else:
            assert torch.equal(tensor.grad, expected[name]), name


def test_a_frozen_weight_costs_no_sum(call, monkeypatch):
    from cake_py import _cake, _torch

    seen = []
    record = lambda *a: seen.append((a[7] is not None, a[8] is not None)) or _cake_backward(*a)  # noqa: E731
    _cake_backward = _cake.backward
    monkeypatch.setattr(_torch._cake, "backward", record)
    x, w, _, dy = call()
    for needs in ((True, False), (False, True), (True, True)):
        a, b = (t.clone().requires_grad_(flag) for t, flag in zip((x, w), needs, strict=True))
        cake.rms_norm(a, b, EPS).backward(dy)
        assert seen.pop() == needs and not seen


@pytest.mark.parametrize("device", ["cpu"])  # a GPU's stream may have its workspace already
def test_a_call_that_lacks_workspace_is_made_again_with_one(call, monkeypatch):
    from cake_py import _arrays, _torch

    given, lacking = [], {None: 4096}

    def backward(*arguments):
        given.append(arguments[12])
        return lacking.get(arguments[12], 0)

    monkeypatch.setattr(_torch._cake, "backward", backward)
    monkeypatch.setattr(_arrays, "workspace", lambda like, needed: needed)
    x, w, _, dy = call()
    for f in (
        lambda: cake.rms_norm(x, w.clone().requires_grad_(), EPS).backward(dy),
        lambda: cake.rms_norm_backward(dy, x, w, torch.ones(33, device=x.device)),
    ):
        given.clear()
        f()
        assert given == [None, 4096]
        lacking[4096] = 8192
        with pytest.raises(RuntimeError, match="workspace: 4096 bytes, expected 8192"):
            f()
        del lacking[4096]


def test_expanded_and_odd_gradients_are_read_in_place(call):
    x, w, *_ = call((33,), 96)
    a, b = leaves(x, w)
    cake.rms_norm(a, b, EPS).sum().backward()
    ones = leaves(x, w)
    cake.rms_norm(*ones, EPS).backward(torch.ones_like(x))
    assert same([a.grad, b.grad], [t.grad for t in ones])
    a, b = leaves(x, w)
    cake.rms_norm(a, b, EPS).t().reshape(-1)[1:-1].sum().backward()
    assert torch.isfinite(a.grad).all()


def test_gradients_that_others_need_stay_as_they_are(call):
    x, w, _, dy = call()
    x, w = leaves(x, w)
    before = dy.clone()
    out = x + cake.rms_norm(x, w, EPS)
    for _ in range(2):
        x.grad = w.grad = None
        out.backward(dy, retain_graph=True)
        first = (x.grad, w.grad) if _ == 0 else first
    assert same([dy], [before]) and same(first, (x.grad, w.grad))


def test_a_changed_input_is_noticed(call):
    x, w, _, dy = call()
    x, w = leaves(x, w)
    y = cake.rms_norm(x, w, EPS)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(dy)


def test_second_derivative_is_a_clear_error(call):
    for f in (cake.rms_norm, lambda *a: OPS.rms_norm(*a, False, True)[0]):
        x, w = leaves(*call()[:2])
        (dx,) = torch.autograd.grad(f(x, w, EPS).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="second derivative"):
            dx.sum().backward()


def test_layouts(call):
    big, w, *_ = call((6, 5), 2 * 96)
    w = w[:96]
    for x in (big[..., 96:], big[1::2, :, :96], big.transpose(0, 1)[..., :96], big[:1, :1, :96].expand(4, 3, 96)):
        a, b = leaves(x, w)
        dense = leaves(x.contiguous(), w)
        y = cake.rms_norm(a, b, EPS)
        y.sum().backward()
        y2 = cake.rms_norm(*dense, EPS)
        y2.sum().backward()
        assert same((y, a.grad, b.grad), (y2, dense[0].grad, dense[1].grad))
    one = cake.rms_norm(big[0, 0, :96], w, EPS)
    assert same([one], [cake.rms_norm(big[:1, 0, :96], w, EPS)[0]])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 1)])
def test_no_rows(call, shape):
    x, w, _, dy = call(shape)
    x, w = leaves(x, w)
    y = cake.rms_norm(x, w, EPS)
    y.backward(dy)
    assert y.shape == x.shape and x.grad.shape == x.shape and torch.equal(w.grad, torch.zeros_like(w))


def test_bad_input(call):
    x, w, r, _ = call()
    cases = [
        (TypeError, "x: list", [1.0], w, EPS),
        (ValueError, "x: dtype torch.float32, expected torch.bfloat16", x.float(), w, EPS),
        (ValueError, r"weight: shape \[95\], expected \[96\]", x, w[1:], EPS),
        (ValueError, "weight: dtype f16", x, w.half(), EPS),
        (ValueError, "residual: dtype f32", x, w, EPS, r.float()),
        (TypeError, "weight: .*list", x, [1.0], EPS),
    ]
    for kind, text, *args in cases:
        with pytest.raises(kind, match=text):
            cake.rms_norm(*args)


def test_nothing_leaks(call):
    x, w, _, dy = call()
    p = torch.nn.Parameter(w)

    def live():
        gc.collect()
        return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

    def calls():
        for _ in range(20):
            with torch.no_grad():
                cake.rms_norm(x, p, EPS)
            with torch.inference_mode():
                cake.rms_norm(x, p, EPS, x)
            cake.rms_norm(x, p, EPS)
            cake.rms_norm(x, p, EPS).backward(dy)
        p.grad = None

    calls()
    before = live()
    calls()
    assert live() <= before


# Determinism


@pytest.fixture
def deterministic():
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)


def test_the_setting_decides_at_the_call(call, deterministic):
    x, w, _, dy = call()
    x, w = leaves(x, w)
    module = cake.RMSNorm(96, EPS, deterministic=False, dtype=torch.bfloat16, device=x.device)
    y, z = module(x), OPS.rms_norm(x, w, EPS, False, False)[0]
    deterministic(True)
    with pytest.raises(RuntimeError, match="deterministic=False"):
        module(x)
    for late in (y, z):
        with pytest.raises(RuntimeError, match="deterministic=False"):
            late.backward(dy)
    deterministic(True, warn_only=True)
    with pytest.warns(UserWarning, match="deterministic=False"):
        module(x)
    deterministic(False)
    module(x).backward(dy)
    deterministic(True)
    cake.rms_norm(x, w, EPS).backward(dy)


@pytest.mark.parametrize("op", ["rms", "rms+res", "gated"])
def test_what_bench_compares_is_the_same(op, device):
    from cake_py import _bench

    inputs = _bench._inputs(op, 8, 128, device)
    expected = _bench.formula(op, [t.detach().double() for t in inputs])
    for make in (_bench._cake, _bench._torch, _bench._compile):
        outputs = _bench._outputs(make()[op](*inputs))
        for y, e in zip(outputs, expected, strict=True):
            assert (y.double() - e).norm() < 8e-3 * e.norm()


def test_names_from_upstream(whole):
    from cake_py import upstream

    x, w, r, dy, dh = whole
    y, rstd, h = upstream.cake_rmsnorm_train_forward(x, w, EPS, residual=r)
    assert same((y, rstd, h), cake.rms_norm_forward(x, w, EPS, residual=r))
    scratch = upstream.cake_rmsnorm_det_train_workspace(36, 96, x.device)
    got = upstream.cake_rmsnorm_det_train_backward(dy, h, w, rstd, g_residual=dh, workspace=scratch)
    assert same(got, cake.rms_norm_backward(dy, h, w, rstd, dh=dh))
    assert same(upstream.cake_rmsnorm_det(x, w, EPS, r), (y, h))
    assert not upstream.is_cake_rmsnorm_train_supported("cpu")


# Modules


@pytest.mark.parametrize("arguments", [(96,), (96, 1e-5), ((4, 24), 1e-5), (96, None, False)])
def test_module_is_a_drop_in(call, arguments):
    ours, theirs = cake.RMSNorm(*arguments), torch.nn.RMSNorm(*arguments)
    assert repr(ours) == repr(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    if theirs.weight is not None:
        torch.nn.init.uniform_(theirs.weight, 0.5, 1.5)
    ours.load_state_dict(theirs.state_dict())
    x, *_, dy = call((7,))
    shape = (7, *ours.normalized_shape)
    ours, theirs = ours.to(x.device), theirs.to(x.device).bfloat16().double()
    ours = ours.bfloat16()
    x = x.view(shape)
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    theirs.eps = theirs.eps or torch.finfo(torch.float32).eps
    y, z = ours(a), theirs(b)
    y.backward(dy.view(shape))
    z.backward(dy.view(shape).double())
    close(y, z, 2**-8)
    close(a.grad, b.grad, 2**-7)
    if theirs.weight is not None:
        close(ours.weight.grad, theirs.weight.grad, 2**-7)
        ours.reset_parameters()
        assert (ours.weight == 1).all()


def test_default_eps_is_that_of_torch():
    x = (torch.randn(8, 96) * 1e-2).bfloat16()
    close(cake.RMSNorm(96, dtype=torch.bfloat16)(x), torch.nn.RMSNorm(96, dtype=torch.bfloat16)(x), 2**-7)


def test_module_with_offset_and_residual(call):
    x, w, r, _ = call()
    module = cake.RMSNorm(96, EPS, offset=True, dtype=torch.bfloat16, device=x.device)
    assert not module.weight.any() and "offset=True" in repr(module)
    with pytest.raises(ValueError, match="offset: True, expected False without a weight"):
        cake.RMSNorm(96, EPS, elementwise_affine=False, offset=True)
    torch.nn.init.uniform_(module.weight)
    y, h = module(x, r)
    assert same((y, h), cake.rms_norm(x, module.weight, EPS, r, offset=True))
    twin = copy.deepcopy(module)
    assert same(twin(x, r), (y, h))


# Autocast


def test_autocast(call, device):
    x, _, _, dy = call()
    w = torch.rand(96, device=device).requires_grad_()
    lin = torch.nn.Linear(96, 96, device=device)
    with torch.autocast(device, torch.bfloat16):
        y = cake.rms_norm(lin(x.float()), w, EPS)
    assert y.dtype is torch.bfloat16
    y.backward(dy)
    assert w.grad.dtype is torch.float32 and lin.weight.grad.dtype is torch.float32
    wide = x.float().requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        cake.rms_norm(wide, w, EPS).backward(dy)
        with torch.autocast(device, enabled=False), pytest.raises(ValueError, match="x: dtype torch.float32"):
            cake.rms_norm(wide, w, EPS)
    assert wide.grad.dtype is torch.float32
    with torch.autocast(device, torch.float16), pytest.raises(ValueError, match="autocast to torch.float16"):
        cake.rms_norm(wide, w, EPS)


# Ops and compile


def test_opcheck(call):
    x, w, r, dy = call((5, 3))
    for weight in (w, w.float(), None):
        for grad in (False, True):
            a, b, c = (None if t is None else t.clone().requires_grad_(grad) for t in (x, weight, r))
            opcheck(OPS.rms_norm.default, (a, b, EPS, False, True))
            opcheck(OPS.add_rms_norm.default, (a, c, b, EPS, b is not None, True))
        rstd = torch.ones(5, 3, device=x.device)
        for dh, dx, dw in ((None, True, True), (r, True, False), (None, False, True)):
            if dx or weight is not None:
                opcheck(OPS.rms_norm_backward.default, (dy, x, weight, rstd, dh, False, dx, dw, True))


class Block(torch.nn.Module):
    def __init__(self, device, width=96):
        super().__init__()
        self.norm = cake.RMSNorm(width, EPS, dtype=torch.bfloat16, device=device)
        self.linear = torch.nn.Linear(width, width, dtype=torch.bfloat16, device=device)
        self.last = cake.RMSNorm(width, EPS, offset=True, dtype=torch.bfloat16, device=device)

    def forward(self, x):
        y, h = self.last(self.linear(self.norm(x)), x.bfloat16())
        return y + h


def step(model, x):
    model.zero_grad()
    x = x.clone().requires_grad_()
    y = model(x)
    y.float().square().mean().backward()
    return [y, x.grad, *(p.grad.clone() for p in model.parameters())]


def test_a_refused_option_is_not_kept(call):
    x, w, r, _ = call()
    w.requires_grad_()
    plain, gated = (lambda **o: cake.rms_norm(x, w, 3e-6, **o)), (lambda **o: cake.rms_norm_silu_gate(x, r, w, 3e-6, **o))
    for function, option in (plain, "offset"), (plain, "deterministic"), (gated, "gate_first"), (gated, "deterministic"):
        number = int(option == "deterministic")
        refused(TypeError, "bool", lambda: function(**{option: number}).sum().backward())
        function(**{option: bool(number)}).sum().backward()


@pytest.mark.parametrize("shape", [96, (4, 24)])
@pytest.mark.parametrize("affine", [False, True])
def test_a_module_has_its_shape(shape, affine):
    norm = cake.RMSNorm(shape, elementwise_affine=affine, dtype=torch.bfloat16)
    x = torch.ones(5, *norm.normalized_shape, dtype=torch.bfloat16)
    assert norm(x, x)[1].shape == norm(x).shape == x.shape
    other = x.transpose(-1, -2)
    refused(ValueError, "(x|weight): shape", norm, other)
    refused(ValueError, "residual: shape", norm, x, other)


def test_compile(device):
    torch._dynamo.reset()
    block = Block(device)
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (5, 8, 31):
        x = torch.randn(2, rows, 96, device=device).bfloat16()
        assert same(step(block, x), step(compiled, x))
    with torch.inference_mode():
        assert same([block(x)], [compiled(x)])
    exported = torch.export.export(block, (x,))
    assert same([exported.module()(x)], [block(x)])


def test_a_process_that_loads_what_another_exported(tmp_path):
    x = torch.randn(5, 96).bfloat16()
    for name, norm, inputs in ("plain", cake.RMSNorm(96), (x,)), ("gated", cake.RMSNormGated(96), (x, x)):
        torch.export.save(torch.export.export(norm, inputs), tmp_path / f"{name}.pt2")
    program = """if True:
        import sys, torch
        from cake_py import rms_norm, rms_norm_silu_gate
        x = torch.ones(5, 96, dtype=torch.bfloat16)
        for file, inputs in zip(sys.argv[1:], ((x,), (x, x))):
            print(*torch.export.load(file).module()(*inputs).shape)
    """
    files = [str(tmp_path / f"{name}.pt2") for name in ("plain", "gated")]
    done = subprocess.run([sys.executable, "-c", program, *files], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.split() == ["5", "96"] * 2, done.stderr


def test_compile_by_inductor(device):
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    block = Block(device)
    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    for rows in (5, 8, 31, 64):
        x = torch.randn(2, rows, 96, device=device).bfloat16()
        for a, b in zip(step(block, x), step(compiled, x), strict=True):
            close(b, a.double(), 2**-6)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


def test_dispatch_modes_see_the_ops(call):
    from torch.utils._python_dispatch import TorchDispatchMode

    names = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x, w = leaves(*call()[:2])
    with Spy():
        cake.rms_norm(x, w, EPS).sum().backward()
    assert "rms_norm.default" in names and "rms_norm_backward.default" in names


def test_tensors_without_memory(device):
    x, z = (torch.empty(3, 96, dtype=torch.bfloat16, device="meta", requires_grad=True) for _ in range(2))
    for norm, inputs in (cake.RMSNorm(96, device="meta"), (x, z)), (cake.RMSNormGated(96, device="meta"), (x, z)):
        y = norm(*inputs)
        first = y[0] if isinstance(y, tuple) else y
        first.sum().backward()
        assert first.shape == x.grad.shape == x.shape and norm.weight.grad.is_meta
    with pytest.raises(ValueError, match="weight: .*meta"):
        cake.rms_norm(torch.ones(3, 96, dtype=torch.bfloat16, device=device), torch.ones(96, device="meta"))


def test_rstd_of_an_op_has_no_gradient(call):
    x, w, r, _ = call()
    x, w, r = leaves(x, w, r)
    y, rstd = torch.ops.cake.rms_norm(x, w, EPS, False, True)
    assert y.requires_grad and not rstd.requires_grad
    y, h, rstd = torch.ops.cake.add_rms_norm(x, r, w, EPS, False, True)
    assert y.requires_grad and h.requires_grad and not rstd.requires_grad


# Checkpointing


def save_norms(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op.namespace == "cake" else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_checkpoint(device, selective, autocast, frozen):
    block = Block(device)
    if autocast:
        block = block.float()
    block.norm.weight.requires_grad_(not frozen)
    x = torch.randn(12, 96, device=device).to(torch.float32 if autocast else torch.bfloat16)
    options = {"context_fn": lambda: create_selective_checkpoint_contexts(save_norms)} if selective else {}

    def gradients(f):
        block.zero_grad()
        a = x.clone().requires_grad_()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            f(a).float().sum().backward()
        return [a.grad, *(p.grad.clone() if p.requires_grad else None for p in block.parameters())]

    expected = gradients(block)
    assert same(expected, gradients(lambda a: checkpoint(block, a, use_reentrant=False, debug=not selective, **options)))
    if not selective:
        assert same(expected, gradients(lambda a: checkpoint(block, a, use_reentrant=True)))


# Threads and processes


def test_threads(device):
    widths = (64, 96, 128, 200)
    inputs = {w: (torch.randn(9, w, device=device).bfloat16(), torch.rand(w, device=device).bfloat16()) for w in widths}

    def once(width):
        x, w = leaves(*inputs[width])
        y = cake.rms_norm(x, w, EPS)
        y.sum().backward()
        return y, x.grad, w.grad

    expected = {width: once(width) for width in widths}
    wrong = []

    def work(seed):
        for i in range(100):
            width = widths[(seed + i) % 4]
            if not same(once(width), expected[width]):
                wrong.append(width)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def child(queue):
    x = torch.arange(96 * 40, dtype=torch.float32).view(40, 96).bfloat16()
    queue.put(cake.rms_norm_forward(x, None, EPS)[0].float().sum().item())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(method):
    if method == "fork" and torch.cuda.is_initialized():
        pytest.skip("CUDA does not survive a fork")
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child(queue)  # the parent has its threads by now
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=child, args=(queue,))
        process.start()
    process.join(120)
    assert process.exitcode == 0 and queue.get(timeout=5) == queue.get(timeout=5)


def test_forward_mode_is_an_error(call):
    x, w, r, dy = call()
    leaf, trained = leaves(x, w)
    y = cake.rms_norm(leaf, w, EPS)

    def dual(function, tensor):
        with torch.autograd.forward_ad.dual_level():
            function(tensor)  # no tangent, no error
            function(torch.autograd.forward_ad.make_dual(tensor, torch.ones_like(tensor)))

    calls = [
        (lambda t: cake.rms_norm(t, w, EPS), x),
        (lambda t: cake.rms_norm(x, t, EPS), w),
        (lambda t: cake.rms_norm(x, w, EPS, t), r),
        (lambda t: cake.rms_norm(t, trained, EPS), x),
        (lambda t: cake.rms_norm_silu_gate(x, t, w, EPS), r),
        (lambda t: cake.rms_norm_silu_gate(x, r, t, EPS), w),
    ]
    for function, tensor in calls:
        refused(RuntimeError, "forward mode", dual, function, tensor)
        refused(RuntimeError, "forward mode", torch.func.jvp, function, (tensor,), (torch.ones_like(tensor),))
    refused(RuntimeError, "forward mode", dual, lambda t: torch.autograd.grad(y, leaf, t, retain_graph=True), dy)
    refused(RuntimeError, "forward mode", dual, lambda t: torch.ops.cake.rms_norm(t, w, EPS, False, True), x)
