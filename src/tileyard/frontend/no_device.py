"""Letting TileLang elaborate kernels on a machine that has no GPU."""

import contextlib
import os
from collections.abc import Iterator

TARGET_VARIABLE = "TILELANG_DEFAULT_TARGET"
ASSUMED_TARGET = '{"kind":"cuda","arch":"sm_90a"}'


@contextlib.contextmanager
def assume_target() -> Iterator[None]:
    """Names a GPU for TileLang to elaborate for, unless the environment names one already.

    The environment is as before afterwards. What is elaborated depends on the GPU only where the
    kernel's own code asks for it.
    """
    if os.environ.get(TARGET_VARIABLE):
        yield
        return
    os.environ[TARGET_VARIABLE] = ASSUMED_TARGET
    try:
        yield
    finally:
        os.environ.pop(TARGET_VARIABLE, None)
