"""Time and memory of a training step before and after `cake.patch`, of a model with random weights; no download."""

import argparse
import statistics
import sysconfig
import time
from pathlib import Path

import torch
import transformers

import cake_py as cake


def build(family: str, layers: int, hidden: int) -> torch.nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=256,
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 128,
        num_key_value_heads=hidden // 128,
        head_dim=128,
        pad_token_id=0,
        use_cache=False,
    )
    return getattr(transformers, f"{family}ForCausalLM")(config).bfloat16()


def tokens(batch: int, length: int) -> torch.Tensor:
    """Bytes of the text that every Python has, again and again."""
    licence = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")
    text = (licence if licence.exists() else Path(__file__)).read_bytes()
    text *= 1 + batch * length // len(text)
    return torch.tensor(list(text[: batch * length])).view(batch, length)


def measure(model: torch.nn.Module, batch: torch.Tensor, steps: int) -> tuple[float, float, float]:
    """The median step in milliseconds, the most memory in MiB (0 on the host), and the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    wait = torch.cuda.synchronize if batch.is_cuda else lambda: None
    times = []
    if batch.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(steps + 3):
        wait()
        start = time.perf_counter()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    memory = torch.cuda.max_memory_allocated() / 2**20 if batch.is_cuda else 0.0
    return statistics.median(times[3:]), memory, loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default="Llama")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    batch = tokens(options.batch, options.length).to(options.device)
    print(f"{options.family}, {options.layers} layers of {options.hidden}, {options.batch} x {options.length} tokens, BF16")
    print(f"{'':<10}{'ms a step':>12}{'MiB':>10}{'loss':>10}")
    for name in ("as it is", "patched"):
        model = build(options.family, options.layers, options.hidden).to(options.device)
        if name == "patched":
            replaced = len(cake.patch(model).replaced)
        milliseconds, memory, loss = measure(model, batch, options.steps)
        print(f"{name:<10}{milliseconds:>12.2f}{memory:>10.0f}{loss:>10.4f}")
        del model
    print(f"{replaced} norms were patched")


if __name__ == "__main__":
    main()
