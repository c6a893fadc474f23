"""Processes that work together, each with its rank."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from .compare import Row, failed


@dataclass(frozen=True)
class Place:
    """Where the ranks compute, and how they talk."""

    device: str
    backend: str
    ranks: int
    shared: bool = False

    def of(self, rank: int) -> torch.device:
        if self.device == "cpu":
            return torch.device("cpu")
        return torch.device("cuda", 0 if self.shared else rank)


@dataclass(frozen=True)
class World:
    """What a rank knows of itself and the others."""

    rank: int
    ranks: int
    device: torch.device

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    def own(self, tensor: Tensor) -> Tensor:
        """This rank's run of the first dimension."""
        return tensor.chunk(self.ranks)[self.rank]

    def stack(self, tensor: Tensor) -> Tensor:
        """The tensors of all ranks, in their order, along a new first dimension."""
        everyone = [torch.empty_like(tensor) for _ in range(self.ranks)]
        dist.all_gather(everyone, tensor.contiguous())
        return torch.stack(everyone)

    def synchronize(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize(self.device)


Work = Callable[[World], list[Row]]


STARTUP = 120
"""Seconds in which all processes have to be there."""


def run(works: list[Work], place: Place, seconds: float = 300) -> Iterator[Row]:
    """The rows of each work. All are done by the same processes, until one fails or takes longer than `seconds`."""
    remaining = list(works)
    while remaining:
        receive, send = mp.get_context("spawn").Pipe(duplex=False)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        ranks = mp.spawn(_rank, (remaining, place, store.port, send), nprocs=place.ranks, join=False)
        try:
            deadline = time.monotonic() + STARTUP
            while remaining:
                if receive.poll(0.05):
                    rows = receive.recv()
                    if rows:
                        yield from rows
                        remaining.pop(0)
                    deadline = time.monotonic() + seconds
                elif time.monotonic() > deadline:
                    raise TimeoutError(f"no result within {seconds} s")
                elif ranks.join(timeout=0.05) and not receive.poll():
                    raise RuntimeError("the processes ended early")
        except Exception as error:
            yield failed(remaining.pop(0).__name__.replace("_", " "), error)
        finally:
            for process in ranks.processes:
                process.join(0 if remaining else 10)
                process.kill()


def _rank(rank: int, works: list[Work], place: Place, port: int, send: object) -> None:
    device = place.of(rank)
    torch.set_num_threads(1)
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")  # all ranks are on this machine, which may have no network
    if device.type == "cuda":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what deterministic matrix products ask for
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # takes time, and there are other tests for it
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(
        place.backend,
        store=store,
        rank=rank,
        world_size=place.ranks,
        timeout=timedelta(seconds=100),
        device_id=device if place.backend == "nccl" else None,
    )
    world = World(rank, place.ranks, device)
    dist.barrier()
    if rank == 0:
        send.send([])  # everyone is there
    for work in works:
        rows = work(world)
        world.synchronize()
        # A row counts when every rank sees it so.
        everyone: list[list[Row]] = [[] for _ in range(place.ranks)]
        dist.all_gather_object(everyone, rows)
        if rank == 0:
            send.send([next((row for row in seen if row.good is False), seen[0]) for seen in zip(*everyone, strict=True)])
    dist.barrier()
    # PyTorch's own threads may outlive the group, and then abort the process while it ends as usual.
    os._exit(0)
