"""TIR to CUDA source through TileLang's own passes, on a machine that has neither driver nor toolkit."""

import difflib
import re
import traceback
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from tilelang import tvm
from tilelang.backend.module import create_backend_context
from tilelang.engine.lower import device_codegen_without_compile, lower_to_host_device_ir
from tilelang.transform.pass_config import normalize_pass_configs

from tileyard.errors import UnsupportedError, UsageError
from tileyard.frontend.tilelang import OUTPUTS_MARK, read_interface
from tileyard.model import Diagnostic, Elaborated, Record, SourceLine
from tileyard.processes.outcomes import tells_of_memory
from tileyard.targets.cuda.host_module import read_launch
from tileyard.targets.cuda.overhearing import overhear
from tileyard.targets.cuda.records import LaunchRecord

_DEVICE_ONLY = "cython"
"""TileLang's execution backend for which neither host code nor a binary is made."""


_PLACE = re.compile(r"\n\s*-->\s+(?P<file>.+?):(?P<line>\d+)(?::\d+)?\s*$", re.MULTILINE)
"""How TileLang's passes end a message with the line of the user's file."""


class Lowered(Record):
    """CUDA source, how it is launched, and what TileLang said; ``host`` is the host module as text."""

    source: str
    launch: LaunchRecord
    host: str
    log: str


class LoweringError(Exception):
    """TileLang refused a kernel, or lowered it to what cannot be launched from data."""

    def __init__(self, diagnostic: Diagnostic, log: str) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.log = log


def lower(elaborated: Elaborated, architecture: str) -> Lowered:
    """Lower one kernel. Raises LoweringError with everything that was said, MemoryError for want of memory."""
    kernel = elaborated.kernel
    with overhear() as said:
        try:
            func = tvm.ir.load_json(elaborated.tir)
            signature = read_interface(func, kernel.name)
            # TileLang 0.1.14 would have its host code make the outputs.
            func = func.without_attr(OUTPUTS_MARK)
            context = _context_for(architecture)
            config = normalize_pass_configs(dict(kernel.pass_options))
            _require_known(config)
            with tvm.transform.PassContext(opt_level=3, config=config), context.target:
                host, device, *_ = lower_to_host_device_ir(func, context, runtime_only=True)
                code = device_codegen_without_compile(device, context)
            lowered = Lowered(
                source=str(code.inspect_source()),
                launch=read_launch(host, device, signature),
                host=str(host),
                log="",
            )
            failure: Exception | None = None
        except MemoryError:
            raise
        except UsageError as error:
            raise LoweringError(Diagnostic(message=str(error)), "") from None
        except Exception as error:  # noqa: BLE001 - another's compiler: all it raises is its verdict
            failure, trace = error, traceback.format_exc()
    if failure is not None and tells_of_memory(str(failure)):
        raise MemoryError(str(failure)) from failure
    if failure is not None:
        raise LoweringError(_diagnose(failure), said[0] + trace) from failure
    return msgspec.structs.replace(lowered, log=said[0])


def _require_known(options: Iterable[str]) -> None:
    """Raises UsageError for pass options that TileLang does not have; its own error lists all that it has."""
    known = list(map(str, tvm.transform.PassContext.list_configs()))
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known)
            raise UsageError(
                f"TileLang has no pass option {option!r}",
                f"near to it: {', '.join(near)}" if near else "",
            )


def _diagnose(error: Exception) -> Diagnostic:
    """One line of what TileLang raised, with the user's line where it tells it."""
    message = str(error)
    found = _PLACE.search(message)
    where = SourceLine(file=found["file"], line=int(found["line"])) if found else None
    lines = [line.strip() for line in _PLACE.sub("", message).splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith("File ")), type(error).__name__)
    operation = error.operation if isinstance(error, UnsupportedError) else ""
    return Diagnostic(
        message=first if isinstance(error, UnsupportedError) else f"TileLang: {first}",
        operation=operation,
        where=where,
    )


@cache
def _context_for(architecture: str) -> Any:  # noqa: ANN401 (TileLang is untyped)
    return create_backend_context(
        tvm.target.Target({"kind": "cuda", "arch": architecture}), None, _DEVICE_ONLY
    )
