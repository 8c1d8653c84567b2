"""Shared by tests that build for NVIDIA's GPUs: a small kernel, its headers, other environments."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.conftest import CommandLine

KERNEL = '''
"""One kernel that is compiled in no time."""

import tilelang.language as T

import tileyard


@tileyard.kernel(
    space={"block": [128, 256]},
    shapes={"default": {"N": 1024}, "large": {"N": 4096}},
    reference=lambda A: A / 3,
)
def third(N, block=128):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] / T.float32(3)

    return main
'''


def make_place(folder: Path, caches: Path) -> CommandLine:
    """A folder with ``third.py``, and a home whose precompiled headers lie where others find them."""
    (folder / "third.py").write_text(KERNEL)
    share_headers(folder / "home", caches)
    return CommandLine(folder)


def share_headers(home: Path, caches: Path) -> None:
    """Make a home whose precompiled headers lie where others find them."""
    home.mkdir()
    (home / "caches").symlink_to(caches)


def make_environment(folder: Path) -> Path:
    """A virtual environment that has what is installed here, and no Tileyard of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    here = sysconfig.get_path("purelib")
    (packages / "here.pth").write_text(f"{here}\n")
    (packages / "nvidia").symlink_to(
        f"{here}/nvidia"
    )  # libraries are looked for in the folder itself
    return folder
