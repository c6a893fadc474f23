"""Tensors that describe themselves wrongly. Their memory is that of ctypes, and no library stands behind them."""

import ctypes

import pytest

from cake_py import _cake

ROWS, WIDTH = 2, 8


class DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Exporter:
    """BF16 rows on the host, but for what is said otherwise."""

    def __init__(self, **changes):
        self.memory = (ctypes.c_uint16 * (ROWS * WIDTH))(*[0x3F80] * (ROWS * WIDTH))
        self.shape = (ctypes.c_int64 * 2)(ROWS, WIDTH)
        data = ctypes.addressof(self.memory)
        fields = dict(data=data, device_type=1, rank=2, code=4, bits=16, lanes=1, shape=self.shape)
        self.tensor = DlTensor(**(fields | changes))

    def __dlpack__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


class Interface:
    """Likewise by the array interface."""

    def __init__(self, **changes):
        self.memory = (ctypes.c_uint16 * (ROWS * WIDTH))(*[0x3F80] * (ROWS * WIDTH))
        fields = dict(data=(ctypes.addressof(self.memory), False), shape=(ROWS, WIDTH), typestr="<V2", version=3)
        self.dtype = changes.pop("dtype", "bfloat16")
        self.__array_interface__ = fields | changes


def norm(x, y):
    _cake.forward(x, None, 0.0, False, None, y, None, None, None)


@pytest.mark.parametrize("kind", [Exporter, Interface])
def test_a_right_description_is_served(kind):
    y = kind()
    y.memory[:] = [0] * len(y.memory)
    norm(kind(), y)
    assert list(y.memory) == [0x3F80] * len(y.memory)


@pytest.mark.parametrize(
    "changes, refusal",
    [
        (dict(bits=8, lanes=2), "x: elements of 2 lanes"),
        (dict(lanes=0), "x: elements of 0 lanes"),
        (dict(code=2, bits=32), "x: dtype f32, expected bf16"),
        (dict(code=77), "x: dtype of code 77"),
        (dict(device_type=9), "x: lives on a device of type 9"),
        (dict(rank=9, shape=(ctypes.c_int64 * 9)(*[1] * 9)), "x: 9 dimensions"),
        (dict(rank=-1), "x: 0 dimensions"),
        (dict(data=None), "x: null pointer"),
        (dict(byte_offset=1), "x: address .* is not a multiple"),
        (dict(byte_offset=2**64 - 1), "x: address .* is not a multiple"),
        (dict(strides=(ctypes.c_int64 * 2)(-8, 1)), "x: stride -8 of dimension 0 is negative"),
        (dict(strides=(ctypes.c_int64 * 2)(2**63 - 1, 1)), "x: shape .* needs"),
        (dict(shape=(ctypes.c_int64 * 2)(2**62, WIDTH)), "x: shape .* needs"),
        (dict(shape=(ctypes.c_int64 * 2)(-3, WIDTH)), "out: shape"),
    ],
)
def test_a_wrong_dlpack_tensor_is_refused(changes, refusal):
    with pytest.raises(ValueError, match=refusal):
        norm(Exporter(**changes), Exporter())


@pytest.mark.parametrize(
    "changes, refusal",
    [
        (dict(strides=(16,)), "x: 1 strides, expected 2"),
        (dict(strides=(16, 2, 2)), "x: 3 strides, expected 2"),
        (dict(strides=(16, 3)), "x: stride of 3 bytes"),
        (dict(shape=(1,) * 9), "x: 9 dimensions"),
        (dict(shape=()), "x: 0 dimensions"),
        (dict(dtype="float9"), "x: dtype f9, expected bf16"),
        (dict(dtype="float999"), "x: dtype float999, expected a type of number"),
        (dict(dtype="über"), "x: dtype über, expected a type of number"),
    ],
)
def test_a_wrong_array_interface_is_refused(changes, refusal):
    with pytest.raises(ValueError, match=refusal):
        norm(Interface(**changes), Interface())
