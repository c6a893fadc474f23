"""Training on several ranks: what `two_gpus` says of two processes on the host, on a GPU that they share, on two."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from two_gpus import ranks
from two_gpus.compare import Row, refused, states, within

ONE = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
TWO = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
WAYS = [["--device", "cpu"], pytest.param(["--shared-gpu"], marks=ONE), pytest.param([], marks=TWO)]
PARTS = [
    "20 results of",
    "rms_norm_silu_gate_backward on",
    "gated norm, S(1): y, dx",
    "SequenceParallel: y",
    "only rank 0 has rows",
    "ddp llama: losses",
    "fsdp gated: losses",
    "sequence parallel gated: parameters in the end",
    "step 20: dw of 7 norms by combine_dw",
    "the last dx, dw",
    "ddp gated, one batch",
]


@pytest.mark.parametrize("options", WAYS, ids=" ".join)
def test_everything_is_as_expected(options):
    command = [sys.executable, "-m", "two_gpus", *options]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    *rows, summary = done.stdout.strip().splitlines()
    assert " as expected, 0 differ, " in summary
    for part in PARTS:
        found = [row for row in rows if part in row]
        assert found and not any("not run" in row or "not judged" in row for row in found), part


def good(world):
    return [states("ranks", 2, world.ranks)]


def differs_on_one_rank(world):
    return [states("a rank", 0, world.rank)]


def fails_on_one_rank(world):
    assert world.rank == 0, "rank 1 is late"
    return good(world)


def hangs_on_one_rank(world):
    time.sleep(1000 * world.rank)
    return good(world)


def test_a_rank_that_differs_fails_or_hangs_is_a_row():
    works = [differs_on_one_rank, fails_on_one_rank, hangs_on_one_rank, good]
    rows = list(ranks.run(works, ranks.Place("cpu", "gloo", 2), seconds=5))
    assert [row.good for row in rows] == [False, False, False, True]
    assert rows[0].seen == "1" and "rank 1 is late" in rows[1].seen
    assert rows[2].what == "hangs on one rank" and "no result within 5 s" in rows[2].seen


def test_rows_say_what_differs():
    assert within("", 0.5, 1.0).good and not within("", 2.0, 1.0).good and not within("", float("nan"), 1.0).good
    assert not refused("", "x: lives on", lambda: None).good
    assert str(Row("what", "1", "2", False)).endswith("2 DIFFERS")
