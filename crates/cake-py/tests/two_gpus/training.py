"""Twenty steps of training through PyTorch's engines, against one process, and the weights' gradients from row shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel

import cake_py as cake

from .compare import Row, distance, equal, states, within
from .models import EPS, MODELS, ShardedRows, made, norms, text
from .ranks import World

STEPS = 20
# Gradients, in parts of their largest element: they pass through BF16, whose last bit is 2**-8.
GRADIENTS = 2**-6
LOSSES = 2**-6

Loss = Callable[[nn.Module, Tensor], Tensor]


def ddp(world: World) -> list[Row]:
    """The batch is split; weights in FP32 under autocast."""
    rows = []
    for name in MODELS:
        expected = Run(made(name, world.device), by_autocast, batches(world))
        ids = [world.device.index] if world.is_gpu else None
        model = DistributedDataParallel(made(name, world.device), device_ids=ids)
        seen = Run(model, by_autocast, (world.own(tokens) for tokens in batches(world)), world)
        rows += [*near(f"ddp {name}", seen, expected, world), *seen.shards]
    return rows


def fsdp(world: World) -> list[Row]:
    """The batch and the parameters are split; parameters in BF16, gradients in FP32."""
    rows = []
    for name in MODELS:
        expected = Run(made(name, world.device), by_bf16_parameters, batches(world))
        mesh = init_device_mesh(world.device.type, (world.ranks,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = made(name, world.device)
        for module in [*model.blocks, model]:
            fully_shard(module, mesh=mesh, mp_policy=policy)
        seen = Run(model, lambda model, tokens: model(tokens), (world.own(tokens) for tokens in batches(world)), world)
        kinds = {gradient.dtype for gradient in seen.gradients.values()}
        rows.append(states(f"fsdp {name}: gradients are", {torch.float32}, kinds))
        rows += [*near(f"fsdp {name}", seen, expected, world), *seen.shards]
    return rows


def sequence_parallel(world: World) -> list[Row]:
    """Norms see runs of the rows, everything else all of them: one process's bits, all the way."""
    rows = []
    for name in MODELS:
        tokens = list(batches(world, sequences=1))
        expected = Run(made(name, world.device), by_autocast, tokens)
        mesh = init_device_mesh(world.device.type, (world.ranks,))
        model = made(name, world.device, ShardedRows(mesh))
        for norm in norms(model).values():
            distribute_module(norm, mesh)
        seen = Run(model, by_autocast, tokens, world, mesh)
        what = f"sequence parallel {name}"
        rows.append(equal(f"{what}: losses of {STEPS} steps", seen.losses, expected.losses))
        rows.append(equal(f"{what}: gradients", seen.gradients.values(), expected.gradients.values()))
        rows.append(equal(f"{what}: parameters in the end", seen.parameters, expected.parameters))
        off = max(distance(seen.summed[norm], expected.gradients[f"{norm}.weight"]) for norm in seen.summed)
        rows.append(within(f"{what}: dw as DTensor sums it", off, 2**-18))
        rows += seen.shards
    return rows


def by_autocast(model: nn.Module, tokens: Tensor) -> Tensor:
    with torch.autocast(tokens.device.type, torch.bfloat16):
        return model(tokens)


def by_bf16_parameters(model: nn.Module, tokens: Tensor) -> Tensor:
    """What FSDP2 computes with its policy of mixed precision."""
    return functional_call(model, {name: p.bfloat16() for name, p in model.named_parameters()}, (tokens,))


def batches(world: World, sequences: int | None = None) -> Iterator[Tensor]:
    """Tokens of each step. Every rank's rows are 8 times a power of two."""
    tokens = 2048 if world.is_gpu else 64 * world.ranks
    sequences = sequences or 2 * world.ranks
    return (text(sequences, tokens // sequences, step, world.device) for step in range(STEPS))


class Run:
    """A training run: its losses, its first gradients, its last parameters."""

    def __init__(
        self, model: nn.Module, loss_of: Loss, tokens: Any, world: World | None = None, mesh: Any = None
    ) -> None:
        self.losses: list[Tensor] = []
        self.gradients: dict[str, Tensor] = {}
        self.summed: dict[str, Tensor] = {}
        self.shards: list[Row] = []
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=False)
        taps = Taps(inner)
        for step, some in enumerate(tokens):
            loss = loss_of(model, some)
            loss.backward()
            if world is not None and mesh is not None:
                summed = join(taps.norms, mesh, world)
                self.summed = self.summed or summed
            if step == 0:
                self.gradients = {name: gathered(p.grad).clone() for name, p in inner.named_parameters()}
            if world is not None and step in (0, STEPS - 1):
                self.shards.append(taps.judge(world, f"step {step + 1}"))
            optimizer.step()
            optimizer.zero_grad()
            self.losses.append(loss.detach())
        self.parameters = [gathered(p).detach() for p in inner.parameters()]


class Taps:
    """What goes into the gradient of each norm's weight in a step: `x` (or `h`), `z`, `dy`."""

    def __init__(self, model: nn.Module) -> None:
        self.norms = norms(model)
        self.seen: dict[str, dict[str, Tensor]] = {}
        for name, norm in self.norms.items():
            norm.register_forward_hook(lambda norm, inputs, output, name=name: self.record(name, norm, inputs, output))

    def record(self, name: str, norm: nn.Module, inputs: Any, output: Any) -> None:
        y, x = output if isinstance(output, tuple) else (output, inputs[0])
        tensors = {"x": x, "weight": norm.weight.clone()}
        if isinstance(norm, cake.RMSNormGated):
            tensors["z"] = inputs[1]
        self.seen[name] = {key: local(tensor) for key, tensor in tensors.items()}
        y.register_hook(lambda dy: self.seen[name].update(dy=local(dy)))

    def partial(self, name: str) -> Tensor:
        return weight_gradient(**self.seen[name])

    def judge(self, world: World, when: str) -> Row:
        """Whether the joined sums of the ranks are those of one call on all rows."""
        joined, alone = [], []
        for name, tensors in self.seen.items():
            joined.append(cake.combine_dw(world.stack(self.partial(name))))
            rows = {key: world.stack(t).flatten(0, -2) for key, t in tensors.items() if key != "weight"}
            alone.append(weight_gradient(weight=tensors["weight"], **rows))
        return equal(f"  {when}: dw of {len(joined)} norms by combine_dw", joined, alone)


def join(norms: dict[str, nn.Module], mesh: Any, world: World) -> dict[str, Tensor]:
    """Joins the sums of the ranks, in place of what DTensor adds up in an order of its own, which is returned."""
    summed = {}
    for name, norm in norms.items():
        summed[name] = norm.weight.grad.full_tensor()
        dw = cake.combine_dw(world.stack(norm.weight.grad.to_local()))
        norm.weight.grad = DTensor.from_local(dw, mesh, [Replicate()])
    return summed


@torch.no_grad()
def weight_gradient(x: Tensor, weight: Tensor, dy: Tensor, z: Tensor | None = None) -> Tensor:
    if z is None:
        return cake.partial_dw(dy, x, weight, None, eps=EPS)
    return cake.rms_norm_silu_gate_backward(dy, x, z, weight, EPS)[2]


def near(what: str, seen: Run, expected: Run, world: World) -> list[Row]:
    losses = torch.stack(seen.losses)
    dist.all_reduce(losses)
    losses = losses / world.ranks
    alone = torch.stack(expected.losses)
    worst = max(distance(seen.gradients[name], gradient) for name, gradient in expected.gradients.items())
    return [
        within(f"{what}: gradients of the first step", worst, GRADIENTS),
        within(f"{what}: losses of {STEPS} steps", (losses - alone).abs().max().item(), LOSSES),
        within(f"{what}: the last loss in parts of the first", (losses[-1] / losses[0]).item(), 0.7),
    ]


def local(tensor: Tensor) -> Tensor:
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
