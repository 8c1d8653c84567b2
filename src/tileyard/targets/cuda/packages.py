"""Finds what this target uses of Python packages: TileLang of one version, and the headers for NVRTC."""

import importlib.metadata
import importlib.util
import os
import re
from functools import cache
from pathlib import Path

from tileyard.base.errors import ToolMissingError
from tileyard.base.wording import install_extra

# ---- headers --------------------------------------------------------------------------------------


INSTALL = install_extra("tilelang,cuda")
CUDA_MAJOR = 13
"""The major version of the CUDA that compiles here; a driver must support it."""
CUDA_PACKAGE = f"nvidia.cu{CUDA_MAJOR}"

_VERSION = re.compile(r"^#define\s+CUDA_VERSION\s+(?P<number>\d+)", re.MULTILINE)


@cache
def include_folders() -> tuple[Path, ...]:
    """The include folders in search order. Raises ToolMissingError."""
    tilelang = package_folder("tilelang")
    cuda = cuda_include()
    folders = (
        tilelang / "src",
        tilelang / "3rdparty" / "cutlass" / "include",
        cuda,
        cuda / "cccl",
    )
    for folder in folders:
        if not folder.is_dir():
            raise ToolMissingError(f"CUDA's headers are not complete: {folder} is missing", INSTALL)
    return folders


def cuda_include() -> Path:
    """The folder of CUDA's own headers. Raises ToolMissingError."""
    return package_folder(CUDA_PACKAGE) / "include"


def headers_version() -> tuple[int, int]:
    """The release of CUDA's headers. Raises ToolMissingError if they do not state it."""
    header = cuda_include() / "cuda.h"
    try:
        found = _VERSION.search(header.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ToolMissingError(
            f"CUDA's headers are not complete: {header} is missing", INSTALL
        ) from error
    if found is None:
        raise ToolMissingError(f"{header} does not say which CUDA it is of", INSTALL)
    number = int(found["number"])
    return number // 1000, number % 1000 // 10


def package_folder(name: str) -> Path:
    """The folder of an installed package, without importing it. Raises ToolMissingError."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ToolMissingError(f"the target cuda needs the package {name}", INSTALL)
    return Path(next(iter(spec.submodule_search_locations)))


# ---- TileLang -------------------------------------------------------------------------------------


TILELANG = "0.1.15"
"""The TileLang version whose passes and headers this target supports."""

ANY_TILELANG = "TILEYARD_ANY_TILELANG"
"""The variable that allows other versions. A comparison of two TileLangs sets it: what they build is
inspected and deleted, and neither kept nor run."""


def find_tilelang() -> str:
    """The installed version. Raises ToolMissingError if there is none, or an unsupported one."""
    package_folder("tilelang")
    try:
        found = importlib.metadata.version("tilelang")
    except importlib.metadata.PackageNotFoundError:
        raise ToolMissingError("the target cuda needs the package tilelang", INSTALL) from None
    if found != TILELANG and not os.environ.get(ANY_TILELANG):
        raise ToolMissingError(
            f"the target cuda works with TileLang {TILELANG}, found {found}", INSTALL
        )
    return found
