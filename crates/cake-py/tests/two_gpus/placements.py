"""Where DTensor may place the rows of a call, and a rank that has none."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import cake_py as cake

from .compare import Row, distance, equal, refused, states, within
from .models import EPS
from .ranks import World

H = 64


def placements(world: World) -> list[Row]:
    mesh = init_device_mesh(world.device.type, (world.ranks,))
    generator = torch.Generator().manual_seed(1)
    x, r, dy = (torch.randn(world.ranks, 16, H, generator=generator).bfloat16().to(world.device) for _ in range(3))
    w = torch.rand(H, generator=generator).to(world.device)
    forms = {
        "norm": lambda x, _, w: (cake.rms_norm(x, w, EPS),),
        "norm with a residual": lambda x, r, w: cake.rms_norm(x, w, EPS, r),
        "gated norm": lambda x, z, w: (cake.rms_norm_silu_gate(x, z, w, EPS),),
    }
    rows = []
    for name, form in forms.items():
        alone = [t.clone().requires_grad_() for t in (x, r, w)]
        y = form(*alone)
        torch.autograd.backward(y, [dy for _ in y])
        for at in (Shard(1), Shard(0), Replicate()):
            parts = [distribute_tensor(t, mesh, [at]).requires_grad_() for t in (x, r)]
            weight = distribute_tensor(w, mesh, [Replicate()]).requires_grad_()
            z = form(*parts, weight)
            torch.autograd.backward(z, [distribute_tensor(dy, mesh, [at]) for _ in z])
            what = f"{name}, {at}"
            given = [part for part in parts if part.grad is not None]
            found = {t.placements for t in (*z, *(part.grad for part in given))}
            rows.append(states(f"{what}: outputs and gradients are", {(at,)}, found))
            wanted = [*y, *(t.grad for t in alone[:2] if t.grad is not None)]
            rows.append(equal(f"{what}: y, dx", [whole(t) for t in (*z, *(p.grad for p in given))], wanted))
            rows.append(within(f"{what}: dw", distance(whole(weight.grad), alone[2].grad), 2**-20))
        # A sharded width is gathered: the statistics are those of whole rows.
        z = form(*(distribute_tensor(t, mesh, [Shard(2)]) for t in (x, r)), weight)
        rows.append(equal(f"{name}, a sharded width: y", map(whole, z), y))
    mixed = distribute_tensor(x, mesh, [Shard(0)])
    rows.append(refused("a sharded x and a plain weight", "mixed", lambda: cake.rms_norm(mixed, w, EPS)))
    return rows


def modules(world: World) -> list[Row]:
    mesh = init_device_mesh(world.device.type, (world.ranks,))
    made = lambda: nn.Sequential(cake.RMSNorm(H, EPS, device=world.device, dtype=torch.bfloat16))  # noqa: E731
    alone, net = made(), made()
    parallelize_module(net, mesh, {"0": SequenceParallel()})
    x = torch.randn(2, 16, H, generator=torch.Generator().manual_seed(2)).bfloat16().to(world.device)
    y, z = alone(x), net(distribute_tensor(x, mesh, [Shard(1)]))
    for result in (y, z):
        result.float().sum().backward()
    off = distance(whole(net[0].weight.grad), alone[0].weight.grad)
    return [equal("SequenceParallel: y", [whole(z)], [y]), within("SequenceParallel: dw in BF16", off, 2**-7)]


def a_rank_without_rows(world: World) -> list[Row]:
    torch.manual_seed(3)
    net = nn.Sequential(cake.RMSNorm(H, EPS), nn.Linear(H, H), cake.RMSNorm(H, EPS, offset=True)).to(world.device)
    net = DistributedDataParallel(net, device_ids=[world.device.index] if world.is_gpu else None)
    x = torch.randn(0 if world.rank else 32, H, device=world.device)
    with torch.autocast(world.device.type, torch.bfloat16):
        net(x).float().square().sum().backward()
    finite = all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())
    return [states("ddp, only rank 0 has rows: gradients are finite", True, finite)]


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor()
