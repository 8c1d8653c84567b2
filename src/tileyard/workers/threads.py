"""Limits the number of threads of numeric libraries that are already loaded."""

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_LIBRARY = re.compile(r"(/\S*(?:openblas|libmkl_rt)[^/\s]*\.so[.\d]*)\s*$", re.MULTILINE)
_PAIRS = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
)


@contextlib.contextmanager
def cap_threads(threads: int) -> Iterator[None]:
    """Limit NumPy's and torch's operations in the block to ``threads``; not libraries loaded later."""
    with contextlib.ExitStack() as stack:
        if importlib.util.find_spec("threadpoolctl") is not None:
            limits = importlib.import_module("threadpoolctl").threadpool_limits
            stack.enter_context(limits(threads))
        else:
            for get, put in find_controls():
                before = get()
                stack.callback(put, before)
                put(min(threads, before))
        torch = sys.modules.get("torch")
        if torch is not None:
            before = torch.get_num_threads()
            stack.callback(torch.set_num_threads, before)
            torch.set_num_threads(min(threads, before))
        yield


def find_controls() -> Iterator[tuple["ctypes._NamedFuncPointer", "ctypes._NamedFuncPointer"]]:
    """Functions that read and set the number of threads, for every such library in this process."""
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return
    for file in sorted(set(_LIBRARY.findall(mapped))):
        library = _open(file)
        for get, put in _PAIRS:
            if library is not None and hasattr(library, get) and hasattr(library, put):
                yield getattr(library, get), getattr(library, put)
                break


@functools.cache
def _open(file: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(file, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
