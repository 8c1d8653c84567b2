"""Prints machine code as text, with NVIDIA's nvdisasm."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tileyard.base.errors import DamagedError, ToolMissingError
from tileyard.targets.cpu.toolchain import find_program
from tileyard.targets.cuda.packages import CUDA_PACKAGE, package_folder

_TITLE = "//-----"
_ENTRY = "STO_CUDA_ENTRY"
LIMIT_S = 120.0


def find_nvdisasm() -> Path:
    """The path of nvdisasm: in its wheel, otherwise on PATH. Raises ToolMissingError."""
    with contextlib.suppress(ToolMissingError):
        program = package_folder(CUDA_PACKAGE) / "bin" / "nvdisasm"
        if os.access(program, os.X_OK):
            return program
    found = find_program("nvdisasm")
    if found is None:
        raise ToolMissingError(
            "nvdisasm is not on this machine", "pip install nvidia-cuda-nvdisasm"
        )
    return Path(found)


def disassemble(cubin: Path, symbols: Sequence[str]) -> str:
    """The code of these device functions and their callees, without a cubin's other kernels. Raises
    ToolMissingError, or DamagedError if nvdisasm cannot read it.
    """
    argv = [str(find_nvdisasm()), "--print-code", str(cubin)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise DamagedError(f"nvdisasm: {lines[0] if lines else f'status {done.returncode}'}")
    return "".join(keep_functions(done.stdout, symbols))


def keep_functions(text: str, symbols: Sequence[str]) -> Iterator[str]:
    """The output of nvdisasm without kernels other than these."""
    head, *sections = text.split(_TITLE)
    yield head
    wanted = {f".text.{symbol}" for symbol in symbols}
    for section in sections:
        title = section.strip("-").split(maxsplit=1)[0]
        if title in wanted or _ENTRY not in section:
            yield _TITLE + section
