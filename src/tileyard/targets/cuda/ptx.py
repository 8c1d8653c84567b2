"""PTX of a kernel whose source was kept: cubins hold none, so NVRTC is asked once more."""

from collections.abc import Callable, Sequence
from typing import Any

from tileyard.errors import ToolMissingError, UsageError
from tileyard.targets.cuda.nvrtc import PREAMBLE, base_flags, nvrtc_version


def compile_ptx(source: str, architecture: str, flags: Sequence[str]) -> str:
    """The PTX of a source, compiled with the flags that its cubin was compiled with.

    Raises ToolMissingError, or UsageError where the NVRTC or the headers that are installed here
    refuse the source.
    """
    nvrtc_version()  # loads the library, or says why that cannot be done
    from cuda.bindings import nvrtc  # an optional dependency

    virtual = architecture.replace("sm_", "compute_")
    options = [flag.encode() for flag in (*base_flags(virtual), *flags)]
    status, program = nvrtc.nvrtcCreateProgram(
        (PREAMBLE + source).encode(), b"kernel.cu", 0, [], []
    )
    _check(status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            said = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            first = next((line for line in said.splitlines() if "error" in line), str(status))
            raise UsageError(
                f"NVRTC refuses the kept source: {first}", "were CUDA or TileLang changed since?"
            )
        return _read(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(program: object, size: Callable[..., Any], get: Callable[..., Any]) -> str:
    status, length = size(program)
    _check(status)
    data = bytes(length)
    _check(get(program, data)[0])
    return data.rstrip(b"\0").decode(errors="replace")


def _check(status: Any) -> None:  # noqa: ANN401 (an optional dependency)
    if int(status) != 0:
        raise ToolMissingError(f"NVRTC does not work here: {status}")
