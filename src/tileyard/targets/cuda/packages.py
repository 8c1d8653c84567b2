"""What this target takes from Python packages: TileLang of one version, and the headers that NVRTC reads."""

import importlib.metadata
import importlib.util
import os
import re
from functools import cache
from pathlib import Path

from tileyard.errors import ToolMissingError
from tileyard.wording import install_extra

# ---- headers --------------------------------------------------------------------------------------


INSTALL = install_extra("tilelang,cuda")
CUDA_MAJOR = 13
"""The CUDA that what is built here is compiled by; a driver must know it."""
CUDA_PACKAGE = f"nvidia.cu{CUDA_MAJOR}"

_VERSION = re.compile(r"^#define\s+CUDA_VERSION\s+(?P<number>\d+)", re.MULTILINE)


@cache
def include_folders() -> tuple[Path, ...]:
    """The folders, in the order in which they are searched. Raises ToolMissingError."""
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
    """Where CUDA's own headers lie. Raises ToolMissingError."""
    return package_folder(CUDA_PACKAGE) / "include"


def headers_version() -> tuple[int, int]:
    """The release of CUDA's headers. Raises ToolMissingError where they do not say it."""
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
    """The folder of an installed package, which is not imported. Raises ToolMissingError."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ToolMissingError(f"the target cuda needs the package {name}", INSTALL)
    return Path(next(iter(spec.submodule_search_locations)))


# ---- TileLang -------------------------------------------------------------------------------------


TILELANG = "0.1.15"
"""The TileLang whose passes and headers this target knows."""

ANY_TILELANG = "TILEYARD_ANY_TILELANG"
"""The variable that allows others. A comparison of two TileLangs sets it: what they build is looked at and
thrown away, and neither kept nor run."""


def find_tilelang() -> str:
    """The version that is installed. Raises ToolMissingError where there is none, or another one."""
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
