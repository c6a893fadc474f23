"""A backward beside communication: the bits, the time, and that it ends."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cake_py as cake

from .compare import Row, equal, figure, states
from .models import EPS, made
from .ranks import World
from .training import batches, by_autocast


def overlap(world: World) -> list[Row]:
    """An all-reduce is in flight during each backward, with and without SMs that are left to it."""
    rows, width, sent, steps = (16384, 4096, 1 << 24, 500) if world.is_gpu else (256, 512, 1 << 16, 5)
    generator = torch.Generator(world.device).manual_seed(world.rank)
    x, dy = (torch.randn(rows, width, generator=generator, device=world.device).bfloat16() for _ in range(2))
    weight = torch.ones(width, device=world.device)
    rstd = cake.rms_norm_forward(x, weight, EPS)[1]
    message = torch.zeros(sent, dtype=torch.bfloat16, device=world.device)
    expected = cake.rms_norm_backward(dy, x, weight, rstd)
    table: list[Row] = []

    def measure(what: str, sends: bool, computes: bool, max_sms: int | None = None) -> None:
        same = torch.ones((), dtype=torch.bool, device=world.device)
        message.zero_()
        for step in range(-3, steps):
            if step == 0:
                dist.barrier()
                world.synchronize()
                start = time.perf_counter()
            sending = dist.all_reduce(message, async_op=True) if sends else None
            seen = cake.rms_norm_backward(dy, x, weight, rstd, max_sms=max_sms) if computes else expected
            if sending:
                sending.wait()
        world.synchronize()
        table.append(figure(f"{what}: a step", f"{(time.perf_counter() - start) / steps * 1e3:.3f} ms"))
        if sends and computes:
            message.fill_(1)
            sending = dist.all_reduce(message, async_op=True)
            for _ in range(20):
                seen = cake.rms_norm_backward(dy, x, weight, rstd, max_sms=max_sms)
                for a, b in zip(seen, expected, strict=True):
                    same &= (a == b).all()
            sending.wait()
            found = bool(same), bool((message == world.ranks).all())
            table.append(states(f"{what}: {steps} steps; gradients kept, sum right", (True, True), found))
            table.append(equal(f"{what}: the last dx, dw", seen, expected))

    measure("all-reduce alone", sends=True, computes=False)
    measure("backward alone", sends=False, computes=True)
    for max_sms in (None, *(sms_less(world, left) for left in (8, 16, 32))):
        measure(f"both, max_sms={max_sms}", sends=True, computes=True, max_sms=max_sms)
    return table


def many_steps(world: World) -> list[Row]:
    """DDP sends gradients while later ones are computed."""
    steps = 500 if world.is_gpu else 5
    ids = [world.device.index] if world.is_gpu else None
    model = DistributedDataParallel(made("gated", world.device), device_ids=ids, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    tokens = world.own(next(batches(world)))
    done, start = 0, time.perf_counter()
    for _ in range(steps):
        loss = by_autocast(model, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
    world.synchronize()
    seconds = (time.perf_counter() - start) / steps
    ended = f"{done} steps, finite loss" if loss.isfinite() else f"{done} steps, loss {loss.item()}"
    return [
        states("ddp gated, one batch over and over", f"{steps} steps, finite loss", ended),
        figure("ddp gated: a step", f"{seconds * 1e3:.1f} ms"),
    ]


def sms_less(world: World, left: int) -> int:
    """All SMs but some; on the host, where it changes nothing, of a board of 132."""
    sms = torch.cuda.get_device_properties(world.device).multi_processor_count if world.is_gpu else 132
    return sms - left
