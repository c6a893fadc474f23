"""`python -m cake_py doctor` and `python -m cake_py bench`."""

from __future__ import annotations

import argparse
import platform
import sys
from array import array
from hashlib import sha256
from importlib.util import find_spec

from . import __version__, _cake


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cake_py", description="Cake for Python")
    tasks = parser.add_subparsers(dest="task", required=True)
    tasks.add_parser("doctor", help="says what this machine has and lacks, and whether it computes the bits of every machine")
    bench = tasks.add_parser("bench", help="times the norms on a CUDA GPU, beside the peers that are installed")
    bench.add_argument("--plot", metavar="FILE.png", help="GB/s over the number of rows; needs matplotlib")
    bench.add_argument("--ops", nargs="+", choices=["rms", "rms+res", "gated"], default=["rms", "rms+res", "gated"])
    bench.add_argument("--rows", type=int, nargs="+", default=[256, 1024, 4096, 16384, 65536])
    bench.add_argument("--widths", type=int, nargs="+", default=[2048, 6144])
    arguments = parser.parse_args()
    if arguments.task == "doctor":
        return doctor()
    from ._bench import bench as run

    return run(arguments.ops, arguments.widths, arguments.rows, arguments.plot)


def doctor() -> int:
    """Prints a line for each fact; 1 if something that is there does not work."""
    print(f"cake_py {__version__}, Python {platform.python_version()}, {platform.machine()}")
    try:
        version = _cake.driver_version()
        lines = _cake.devices()
        print(f"driver: serves CUDA {version // 1000}.{version % 1000 // 10}")
        print("\n".join(lines) or "no GPU")
    except RuntimeError as error:
        lines = []
        print(f"GPU: {error}")
    if find_spec("torch") is None:
        print("PyTorch: not installed; the functional calls take other tensors")
        return 0
    import torch

    try:
        from . import _torch  # noqa: F401
    except ImportError as error:
        print(f"PyTorch: {error}")
        return 1
    print(f"PyTorch: {torch.__version__}, CUDA {torch.version.cuda}, GPUs visible: {torch.cuda.device_count()}")
    failures = [place for place in _places(len(lines)) if not _works(place)]
    return 1 if failures else 0


def _places(gpus: int) -> list[str]:
    import torch

    return ["cpu", *(f"cuda:{ordinal}" for ordinal in range(min(gpus, torch.cuda.device_count())))]


# SHA-256 of what a step computes, on every machine.
DIGEST = "9f6391b56ad0f79b9702252d14554cbb905ce5bc246b420f1724bbbaa1cdf0ce"


def _works(place: str) -> bool:
    """Whether a step on a device has the bits that it has everywhere."""
    import torch

    from ._gate import rms_norm_silu_gate
    from ._torch import rms_norm

    def tensor(seed: int, *shape: int) -> torch.Tensor:
        numbers = torch.arange(torch.Size(shape).numel()) * 7919 + seed
        return (numbers % 4093 - 2046).div(1024).bfloat16().view(shape).to(place).requires_grad_()

    try:
        x, z, weight, dy = tensor(0, 100, 2048), tensor(1, 100, 2048), tensor(2, 2048), tensor(3, 100, 2048)
        y = rms_norm_silu_gate(rms_norm(x, weight, 1e-6), z, weight, 1e-6)
        results = y, *torch.autograd.grad(y, (x, z, weight), dy.detach())
        halves = torch.cat([result.detach().cpu().flatten() for result in results]).view(torch.int16)
        digest = sha256(array("h", halves.tolist()).tobytes()).hexdigest()
    except (RuntimeError, ValueError) as error:
        print(f"{place}: {error}")
        return False
    good = digest == DIGEST
    print(f"{place}: a step gives {'the bits of every machine' if good else f'digest {digest}, expected {DIGEST}'}")
    return good


if __name__ == "__main__":
    sys.exit(main())
