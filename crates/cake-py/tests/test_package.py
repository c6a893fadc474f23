"""The package as such: what it imports, its command, its types."""

import subprocess
import sys
from pathlib import Path

import pytest

import cake_py as cake

HERE = Path(__file__).parent


def python(*arguments, **options):
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_import_needs_no_torch_and_no_numpy():
    code = """
import sys
sys.modules["torch"] = sys.modules["numpy"] = None  # importing either fails
import cake_py
assert cake_py.is_supported("cpu") and cake_py.routes(2048, "sm_90a")
cake_py.is_supported("cuda")
try:
    cake_py.rms_norm
except ImportError:
    print("ok")
"""
    done = python("-c", code, env={"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)})
    assert done.stdout == "ok\n", done.stderr


def test_import_loads_neither():
    done = python("-c", "import sys, cake_py; print('torch' in sys.modules, 'numpy' in sys.modules)")
    assert done.stdout == "False False\n", done.stderr


def test_every_public_name_is_there():
    assert all(hasattr(cake, name) for name in cake.__all__)
    with pytest.raises(AttributeError, match="no attribute 'rmsnorm'"):
        cake.rmsnorm


def test_doctor():
    done = python("-m", "cake_py", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu: a step gives the bits of every machine" in done.stdout


def test_bench_without_a_gpu_says_so():
    done = python("-m", "cake_py", "bench", env={"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == 1 and "no CUDA GPU" in done.stdout


@pytest.mark.parametrize("file", ["typed_example.py"])
def test_types(file):
    done = python("-m", "mypy", "--strict", str(HERE / file))
    assert done.returncode == 0, done.stdout
    assert python(str(HERE / file)).returncode == 0
