"""Which TileLang this target works with, and who may use another one."""

import importlib.metadata
import os

from tileyard.errors import ToolMissingError
from tileyard.targets.cuda.headers import INSTALL, package_folder

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
