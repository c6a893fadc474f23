"""The extension module: every argument by position, outputs allocated by the caller."""

from typing import Any

__version__: str

def forward(
    x: Any,
    weight: Any | None,
    eps: float,
    offset: bool,
    residual: Any | None,
    y: Any,
    h: Any | None,
    rstd: Any | None,
    stream: int | None = None,
    /,
) -> None: ...
def backward(
    dy: Any,
    x: Any,
    weight: Any | None,
    rstd: Any | None,
    eps: float,
    offset: bool,
    dh: Any | None,
    dx: Any | None,
    dw: Any | None,
    accumulate: bool,
    deterministic: bool,
    max_sms: int | None,
    workspace: Any | None,
    stream: int | None = None,
    /,
) -> int: ...
def gate_forward(
    x: Any,
    z: Any,
    weight: Any,
    eps: float,
    activation: str,
    gate_first: bool,
    y: Any,
    rstd: Any | None,
    stream: int | None = None,
    /,
) -> None: ...
def gate_backward(
    dy: Any,
    x: Any,
    z: Any,
    weight: Any,
    rstd: Any | None,
    eps: float,
    activation: str,
    gate_first: bool,
    dx: Any,
    dz: Any,
    dw: Any | None,
    accumulate: bool,
    deterministic: bool,
    max_sms: int | None,
    workspace: Any | None,
    stream: int | None = None,
    /,
) -> int: ...
def gate_workspace_bytes(rows: int, width: int, ordinal: int, /) -> int: ...
def gate_warm_up(width: int, ordinal: int, /) -> None: ...
def combine(shards: Any, dw: Any, accumulate: bool, stream: int | None = None, /) -> None: ...
def workspace_bytes(rows: int, width: int, ordinal: int, /) -> int: ...
def warm_up(width: int, ordinal: int, /) -> None: ...
def is_supported(ordinal: int, /) -> bool: ...
def is_capturing(tensor: Any, /) -> bool: ...
def forked() -> None: ...
def devices() -> list[str]: ...
def driver_version() -> int: ...
def routes(
    width: int, arch: str, weight: str | None, offset: bool, residual: bool, gated: bool, backward: bool, /
) -> list[tuple[int, str, str]]: ...
