"""Calls that name several devices, as far as that needs no GPU; the rest is in `two_gpus` and `test_gpu.py`."""

import sys
from types import SimpleNamespace

import pytest
import torch
from conftest import same

import cake_py as cake
from cake_py import _arrays

EPS = 1e-6


class Elsewhere:
    """Memory that claims to be that of cuda:1. A call that is not refused at once would read the tensor's own."""

    def __init__(self, tensor):
        self.shape, self.dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        self.nbytes, self.tensor = tensor.nbytes, tensor

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.tensor.data_ptr(), False), "shape": self.shape, "typestr": "|V2", "version": 3}

    def __dlpack_device__(self):
        return 2, 1


def tensors():
    x, z, dy, out = (torch.randn(4, 128).bfloat16() for _ in range(4))
    return {"x": x, "z": z, "dy": dy, "out": out, "w": torch.rand(128), "rstd": torch.rand(4), "dw": torch.rand(128)}


FORWARD = lambda t: cake.rms_norm_forward(t["x"], t["w"], EPS, residual=t["z"], out=t["out"], rstd=t["rstd"], h=t["dy"])  # noqa: E731
BACKWARD = lambda t: cake.rms_norm_backward(t["dy"], t["x"], t["w"], t["rstd"], dh=t["z"], dx=t["out"], dw=t["dw"])  # noqa: E731
GATE = lambda t: cake.rms_norm_silu_gate_forward(t["x"], t["z"], t["w"], EPS, out=t["out"], rstd=t["rstd"])  # noqa: E731
GATE_BACKWARD = lambda t: cake.rms_norm_silu_gate_backward(  # noqa: E731
    t["dy"], t["x"], t["z"], t["w"], EPS, rstd=t["rstd"], dx=t["out"], dz=torch.empty(4, 128).bfloat16(), dw=t["dw"]
)
NAMES = [
    (FORWARD, {"w": "weight", "z": "residual", "out": "out", "rstd": "rstd", "dy": "h"}),
    (BACKWARD, {"dy": "dy", "w": "weight", "rstd": "rstd", "z": "dh", "out": "dx", "dw": "dw"}),
    (GATE, {"z": "z", "w": "weight", "out": "out", "rstd": "rstd"}),
    (GATE_BACKWARD, {"dy": "dy", "z": "z", "w": "weight", "rstd": "rstd", "out": "dx", "dw": "dw"}),
]


@pytest.mark.parametrize(("call", "key", "name"), [(call, *pair) for call, names in NAMES for pair in names.items()])
def test_an_argument_of_another_device_is_named(call, key, name):
    given = tensors()
    before = {key: tensor.clone() for key, tensor in given.items()}
    with pytest.raises(ValueError, match=f"^{name}: lives on cuda:1, expected host$"):
        call({**given, key: Elsewhere(given[key])})
    assert same(given.values(), before.values()), "a refused call has written something"


def test_an_output_is_named_as_in_python():
    x = torch.randn(4, 128).bfloat16()
    wide = torch.empty(2, 128).bfloat16()
    with pytest.raises(ValueError, match=r"^out: shape \[2, 128\]"):
        cake.rms_norm_forward(x, None, EPS, out=wide)
    residual, both = x.clone(), torch.empty_like(x)
    with pytest.raises(ValueError, match=r"^out \(bytes .* overlaps residual"):
        cake.rms_norm_forward(x, None, EPS, residual=residual, out=residual)
    with pytest.raises(ValueError, match=r"^h \(bytes .* overlaps out \(bytes"):
        cake.rms_norm_forward(x, None, EPS, residual=residual, out=both, h=both)


@pytest.fixture
def cupy(monkeypatch):
    """What is asked of CuPy, and on which device; it is not installed here."""
    current = [0]

    class Device:
        def __init__(self, index):
            self.id = index

        def __enter__(self):
            current.append(self.id)

        def __exit__(self, *_):
            current.pop()

    class Array:
        dtype = "bfloat16"

        def __init__(self, shape, dtype):
            self.device, self.nbytes = Device(current[-1]), shape if isinstance(shape, int) else 0

    Array.__module__ = "cupy"
    stream = lambda: SimpleNamespace(ptr=100 + current[-1])  # noqa: E731
    module = SimpleNamespace(empty=Array, zeros=Array, uint8="uint8", float32="float32")
    module.cuda = SimpleNamespace(get_current_stream=stream)
    module.on = lambda index: setattr(array := Array(1, "bfloat16"), "device", Device(index)) or array
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(_arrays, "_workspaces", {})
    return module


def test_new_arrays_of_cupy_are_beside_the_argument(cupy):
    like = cupy.on(1)
    assert _arrays.empty(like, (4, 8), "float32", "rstd").device.id == 1
    scratch = _arrays.workspace(like, 5000)
    assert (scratch.device.id, scratch.nbytes) == (1, 5000) and list(_arrays._workspaces) == [("cupy", 1, 101)]
    assert _arrays.workspace(like, 4000) is scratch and _arrays.workspace(like, 6000).nbytes == 6000
    assert _arrays.workspace(cupy.on(0), 10).device.id == 0
