"""Where NVRTC finds headers: TileLang's templates, CUTLASS, and CUDA's own, all from Python packages."""

import importlib.util
from functools import cache
from pathlib import Path

from tileyard.errors import ToolMissingError

INSTALL = "pip install 'tileyard[tilelang,cuda]'"


@cache
def include_folders() -> tuple[Path, ...]:
    """The folders, in the order in which they are searched. Raises ToolMissingError."""
    tilelang = package_folder("tilelang")
    cuda = package_folder("nvidia.cu13") / "include"
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


def package_folder(name: str) -> Path:
    """The folder of an installed package, which is not imported. Raises ToolMissingError."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ToolMissingError(f"the target cuda needs the package {name}", INSTALL)
    return Path(next(iter(spec.submodule_search_locations)))
