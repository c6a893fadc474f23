"""Training on several ranks: two processes with gloo on the host, against one process."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import close, same
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import cake_py as cake

EPS = 1e-6
H = 64
RANKS = 2
ROWS = 32


def model():
    torch.manual_seed(3)
    layers = [cake.RMSNorm(H, EPS), nn.Linear(H, H), cake.RMSNorm(H, EPS, offset=True)]
    return nn.Sequential(*layers)


def batch():
    generator = torch.Generator().manual_seed(5)
    return torch.randn(ROWS, H, generator=generator)


def loss_of(net, x):
    with torch.autocast("cpu", torch.bfloat16):
        return net(x).float().square().mean()


def single():
    net = model()
    loss_of(net, batch()).backward()
    return {name: p.grad for name, p in net.named_parameters()}


def shard(rank, x):
    rows = x.shape[0] // RANKS
    return x[rank * rows : (rank + 1) * rows]


def ddp(rank):
    net = DistributedDataParallel(model())
    loss_of(net, shard(rank, batch())).backward()
    for name, grad in single().items():
        close(dict(net.module.named_parameters())[name].grad, grad, 2**-7)


def fsdp(rank):
    net = model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in net:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(net, mesh=mesh, mp_policy=policy)
    net(shard(rank, batch())).float().square().mean().backward()
    for name, grad in single().items():
        parameter = dict(net.named_parameters())[name]
        assert parameter.grad.dtype is torch.float32
        close(parameter.grad.full_tensor(), grad, 2**-5)


def ddp_without_rows_on_a_rank(rank):
    net = DistributedDataParallel(model())
    x = batch()
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x[: 0 if rank else ROWS]).float().square().sum()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def sequence_parallel(rank):
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(1)
    x, r, dy = (torch.randn(2, 16, H).bfloat16() for _ in range(3))
    w = torch.rand(H).bfloat16()
    plain = [t.clone().requires_grad_() for t in (x, r, w)]
    y, h = cake.rms_norm(plain[0], plain[2], EPS, plain[1])
    torch.autograd.backward([y, h], [dy, dy])
    for placement in (Shard(1), Shard(0), Replicate()):
        a, b = (distribute_tensor(t, mesh, [placement]).requires_grad_() for t in (x, r))
        c = distribute_tensor(w, mesh, [Replicate()]).requires_grad_()
        y2, h2 = cake.rms_norm(a, c, EPS, b)
        assert isinstance(y2, DTensor) and y2.placements == (placement,)
        assert same([y, h], [y2.full_tensor(), h2.full_tensor()])
        gradient = distribute_tensor(dy, mesh, [placement])
        torch.autograd.backward([y2, h2], [gradient, gradient])
        assert a.grad.placements == (placement,)
        assert same([plain[0].grad, plain[1].grad], [a.grad.full_tensor(), b.grad.full_tensor()])
        close(c.grad.full_tensor(), plain[2].grad, 2**-7)

        a, c = a.detach().requires_grad_(), c.detach().requires_grad_()
        cake.rms_norm(a, c, EPS).backward(gradient)
        alone = [t.detach().requires_grad_() for t in (x, w)]
        cake.rms_norm(*alone, EPS).backward(dy)
        assert same([a.grad.full_tensor()], [alone[0].grad])
        close(c.grad.full_tensor(), alone[1].grad, 2**-7)

    # A sharded width is gathered: the statistics are those of whole rows.
    y3 = cake.rms_norm(distribute_tensor(x, mesh, [Shard(2)]), distribute_tensor(w, mesh, [Replicate()]), EPS)
    assert same([y3.full_tensor()], [cake.rms_norm(x, w, EPS)])
    with pytest.raises(RuntimeError, match="(?i)dtensor|mixed"):
        cake.rms_norm(distribute_tensor(x, mesh, [Shard(0)]), w, EPS)


def gated_sequence_parallel(rank):
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(1)
    x, z, dy = (torch.randn(2, 16, H).bfloat16() for _ in range(3))
    w = torch.rand(H)
    plain = [t.clone().requires_grad_() for t in (x, z, w)]
    y = cake.rms_norm_silu_gate(*plain, EPS)
    y.backward(dy)
    for placement in (Shard(1), Shard(0), Replicate()):
        a, b = (distribute_tensor(t, mesh, [placement]).requires_grad_() for t in (x, z))
        c = distribute_tensor(w, mesh, [Replicate()]).requires_grad_()
        y2 = cake.rms_norm_silu_gate(a, b, c, EPS)
        assert isinstance(y2, DTensor) and y2.placements == (placement,)
        y2.backward(distribute_tensor(dy, mesh, [placement]))
        assert a.grad.placements == b.grad.placements == (placement,)
        assert same([y, plain[0].grad, plain[1].grad], [t.full_tensor() for t in (y2, a.grad, b.grad)])
        close(c.grad.full_tensor(), plain[2].grad, 2**-20)

    y3 = cake.rms_norm_silu_gate(*(distribute_tensor(t, mesh, [Shard(2)]) for t in (x, z)), c, EPS)
    assert same([y3.full_tensor()], [y])


def module_of_dtensors(rank):
    mesh = init_device_mesh("cpu", (RANKS,))
    from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

    net = nn.Sequential(cake.RMSNorm(H, EPS, dtype=torch.bfloat16))
    parallelize_module(net, mesh, {"0": SequenceParallel()})
    x = torch.randn(2, 16, H, generator=torch.Generator().manual_seed(2)).bfloat16()
    y = net(distribute_tensor(x, mesh, [Shard(1)]))
    y.float().sum().backward()
    alone = cake.RMSNorm(H, EPS, dtype=torch.bfloat16)
    alone(x).float().sum().backward()
    assert same([y.full_tensor()], [alone(x)])
    close(net[0].weight.grad.full_tensor(), alone.weight.grad, 2**-7)


def one_gpu_bits(rank):
    x = batch().bfloat16()
    w = torch.rand(H, generator=torch.Generator().manual_seed(1))
    dy = x.flip(0).contiguous()
    rstd = cake.rms_norm_forward(x, w, EPS)[1]
    part = cake.partial_dw(shard(rank, dy), shard(rank, x), w, shard(rank, rstd))
    parts = [torch.empty_like(part) for _ in range(RANKS)]
    dist.all_gather(parts, part)
    assert same([cake.combine_dw(torch.stack(parts))], [cake.rms_norm_backward(dy, x, w, rstd)[1]])


def work(rank, name, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    globals()[name](rank)
    dist.barrier()
    dist.destroy_process_group()
    # PyTorch's own threads may outlive the group, and then abort the process while it ends as usual.
    os._exit(0)


@pytest.mark.parametrize(
    "name",
    [
        "ddp",
        "fsdp",
        "ddp_without_rows_on_a_rank",
        "sequence_parallel",
        "gated_sequence_parallel",
        "module_of_dtensors",
        "one_gpu_bits",
    ],
)
def test_two_ranks(name):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (name, port), nprocs=RANKS)
