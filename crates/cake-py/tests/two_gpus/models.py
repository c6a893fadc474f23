"""Two small models of language: one like Llama, one whose mixer ends in a gated norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.attention import SDPBackend, sdpa_kernel

import cake_py as cake

EPS = 1e-6
HIDDEN, LAYERS, HEADS = 256, 2, 2
WORDS = 256  # bytes


def text(sequences: int, length: int, step: int, device: torch.device) -> Tensor:
    """Tokens of a step, `[sequences, length + 1]`: the last column is only to be foretold."""
    licence = Path(__file__).parents[4] / "LICENSE-APACHE"
    data = torch.frombuffer(bytearray(licence.read_bytes()), dtype=torch.uint8).long()
    starts = (torch.arange(sequences) + step * sequences) * length % (len(data) - length - 1)
    return torch.stack([data[start : start + length + 1] for start in starts]).to(device)


class Rows:
    """Every process holds all rows: nothing to do between the layers that mix rows and those that do not."""

    def split(self, x: Tensor) -> Tensor:
        return x

    def whole(self, x: Tensor) -> Tensor:
        return x


class ShardedRows(Rows):
    """Sequence parallel: norms see a run of the rows of each sequence, mixers and losses see all."""

    def __init__(self, mesh: Any) -> None:
        self.mesh = mesh

    def split(self, x: Tensor) -> Tensor:
        return DTensor.from_local(x, self.mesh, [Replicate()]).redistribute(placements=[Shard(1)])

    def whole(self, x: Tensor) -> Tensor:
        assert isinstance(x, DTensor)
        return x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Replicate()])


class Attention(nn.Module):
    """Causal, with rotated positions."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.inner = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.outer = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inner(self.rows.whole(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.rows.split(self.outer(y.transpose(1, 2).flatten(-2)))


def rotated(x: Tensor) -> Tensor:
    length, width = x.shape[-2:]
    speed = 10000.0 ** (-torch.arange(0, width, 2, device=x.device) / width)
    angle = torch.arange(length, device=x.device)[:, None] * speed
    near, far = x.float().chunk(2, -1)
    turned = near * angle.cos() - far * angle.sin(), far * angle.cos() + near * angle.sin()
    return torch.cat(turned, -1).to(x.dtype)


class Retention(nn.Module):
    """A decaying sum of the past in each head, then the gated norm."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.inner = nn.Linear(HIDDEN, 2 * HIDDEN, bias=False)
        self.norm = cake.RMSNormGated(HIDDEN // HEADS, EPS)
        self.outer = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        v, z = self.inner(self.rows.whole(x)).unflatten(-1, (2, HEADS, -1)).unbind(-3)
        ages = torch.arange(v.shape[1], device=v.device)
        ages = ages[:, None] - ages
        slowness = torch.tensor([4.0, 32.0], device=v.device)[:, None, None]
        past = torch.where(ages < 0, 0, torch.exp(-ages.clamp(min=0) / slowness)).to(v.dtype)
        v = (past @ v.transpose(1, 2)).transpose(1, 2)
        y = self.norm(self.rows.split(v), self.rows.split(z))
        return self.rows.split(self.outer(self.rows.whole(y).flatten(-2)))


class Feed(nn.Module):
    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.inner = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.outer = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)
        self.rows = rows

    def forward(self, x: Tensor) -> Tensor:
        gate, y = self.inner(self.rows.whole(x)).chunk(2, -1)
        return self.rows.split(self.outer(F.silu(gate) * y))


class Block(nn.Module):
    """Norms take the residual: `h` is the stream, `x` what is to be added to it."""

    def __init__(self, mixer: nn.Module, rows: Rows) -> None:
        super().__init__()
        self.first, self.mixer = cake.RMSNorm(HIDDEN, EPS), mixer
        self.second, self.feed = cake.RMSNorm(HIDDEN, EPS), Feed(rows)

    def forward(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        y, h = (self.first(x), x) if h is None else self.first(x, h)
        y, h = self.second(self.mixer(y), h)
        return self.feed(y), h


class Model(nn.Module):
    """Returns the loss of the tokens."""

    def __init__(self, mixer: type[nn.Module], rows: Rows | None = None) -> None:
        super().__init__()
        self.rows = rows or Rows()
        # A product, which adds up the gradient of a word that comes often in FP32, also where the weight is BF16.
        self.embedding = nn.Linear(WORDS, HIDDEN, bias=False)
        self.blocks = nn.ModuleList(Block(mixer(self.rows), self.rows) for _ in range(LAYERS))
        self.norm = cake.RMSNorm(HIDDEN, EPS)
        self.head = nn.Linear(HIDDEN, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        words = F.one_hot(tokens[:, :-1], WORDS).bfloat16()
        x, h = self.rows.split(self.embedding(words)), None
        for block in self.blocks:
            x, h = block(x, h)
        y, _ = self.norm(x, h)
        logits = self.head(self.rows.whole(y)).float()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


MODELS = {"llama": Attention, "gated": Retention}


def made(name: str, device: torch.device, rows: Rows | None = None) -> Model:
    """The same parameters for the same name."""
    torch.manual_seed(3)
    return Model(MODELS[name], rows).to(device)


def norms(model: nn.Module) -> dict[str, nn.Module]:
    known = (cake.RMSNorm, cake.RMSNormGated)
    return {name: module for name, module in model.named_modules() if isinstance(module, known)}
