"""What a fresh process does for `devices`: the first use of devices, at the same time or of one alone."""

from __future__ import annotations

import sys
import threading

import torch

from .compare import equal
from .devices import LARGE, results, tensors


def together(devices: list[str]) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    start = threading.Barrier(len(devices))

    def work(device: str) -> None:
        given = tensors(300, 2048, device)
        start.wait()
        seen.append(results(**given))

    threads = [threading.Thread(target=work, args=(device,)) for device in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = results(**tensors(300, 2048, "cpu"))
    good = len(seen) == len(devices) and all(equal("", one.values(), expected.values()).good for one in seen)
    print("the bits of the host, twice" if good else f"other bits, or {len(seen)} results of {len(devices)}")


def alone(device: str) -> None:
    """Prints which GPUs have a context after calls on one of them, and waits to be looked at."""
    x = torch.ones(8, device=device, requires_grad=True)
    x.square().sum().backward()
    before = contexts()
    results(**tensors(*LARGE, device))
    torch.cuda.synchronize(device)
    print(before, contexts(), flush=True)
    sys.stdin.read()


def contexts() -> list[int]:
    return [index for index in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(index)]


if __name__ == "__main__":
    if sys.argv[1] == "--alone":
        alone(sys.argv[2])
    else:
        together(sys.argv[1:])
