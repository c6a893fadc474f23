"""Runs everything and prints a table: what, expected, seen. Exits with 1 if anything differs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import torch

from . import devices, overlap, placements, ranks, training
from .compare import Row

WORKS = [
    placements.placements,
    placements.modules,
    placements.a_rank_without_rows,
    training.ddp,
    training.fsdp,
    training.sequence_parallel,
    overlap.overlap,
    overlap.many_steps,
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m two_gpus", description="Cake on two GPUs, or on what there is")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tensors of the host")
    parser.add_argument("--shared-gpu", action="store_true", help="two processes on one GPU")
    parser.add_argument("--backend", choices=["nccl", "gloo"], help="by default nccl, where each process has a GPU")
    parser.add_argument("--ranks", type=int, choices=[2, 4, 8], default=2, help="processes, one on each GPU")
    parser.add_argument("--only", metavar="NAME", help="parts whose name contains this")
    options = parser.parse_args()
    gpus = torch.cuda.device_count() if options.device == "cuda" else 0
    wanted = 0 if options.device == "cpu" else 1 if options.shared_gpu else options.ranks
    if gpus < wanted:
        parser.error(f"{gpus} GPUs are here, expected {wanted}: see --shared-gpu and --device cpu")
    backend = options.backend or ("nccl" if wanted > 1 else "gloo")
    place = ranks.Place(options.device, backend, options.ranks, options.shared_gpu)

    print(Row("what", "expected", "seen"), flush=True)
    start, seen = time.perf_counter(), []
    for row in rows(place, options.only or ""):
        print(row, flush=True)
        seen.append(row)
    verdicts = [row.good for row in seen]
    print(
        f"{verdicts.count(True)} as expected, {verdicts.count(False)} differ, {verdicts.count(None)} not judged, "
        f"{time.perf_counter() - start:.0f} s, PyTorch {torch.__version__}, {place.ranks} ranks, {backend}"
    )
    return 1 if False in verdicts or True not in verdicts else 0


def rows(place: ranks.Place, only: str) -> Iterator[Row]:
    if only in "devices":
        # The devices of the ranks, or the one that they share beside the host.
        yield from devices.devices(place.of(0), torch.device("cpu") if place.shared else place.of(1))
    yield from ranks.run([work for work in WORKS if only in work.__name__], place)


if __name__ == "__main__":
    sys.exit(main())
