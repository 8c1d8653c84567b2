"""Where the dynamic loader would find a shared library, and which ones every host has by itself."""

import os
import platform
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from tileyard.artifacts.elf import Needs, read_needs

CACHE = Path("/etc/ld.so.cache")
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD, _ENTRY = struct.Struct("<20sII"), struct.Struct("<iIIIQ")
_HEAD_SIZE = 48

_MULTIARCH = f"{platform.machine()}-linux-gnu"
DEFAULT_FOLDERS = tuple(
    Path(folder)
    for folder in (
        f"/lib/{_MULTIARCH}",
        f"/usr/lib/{_MULTIARCH}",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    )
)

GLIBC_FAMILY = re.compile(
    r"(ld-linux.*|ld64|libc|libm|libmvec|libdl|libpthread|librt|libutil|libanl|libresolv"
    r"|libnsl|libnss_.*|libBrokenLocale|libthread_db|libc_malloc_debug)\.so(\..*)?"
)
"""Belongs to the loader itself: two of different versions in one process do not work."""

DRIVER = re.compile(
    r"(libcuda|libcudadebugger|libnvidia-.*|libnvcuvid|libnvoptix|libGL|libEGL|libGLX.*|libGLdispatch"
    r"|libOpenCL|libvulkan|libdrm.*|libascend_hal|libdrvdsmi_host|libdcmi|libmetax.*|libamdhip64"
    r"|libhsa-runtime64|libze_loader|linux-vdso|linux-gate)\.so(\..*)?"
)
"""Must be the one of the kernel's driver on the host where it is used."""

CXX_RUNTIME = re.compile(r"(libstdc\+\+|libgcc_s)\.so(\..*)?")
"""Newer ones serve older programs, so the newer of the host's and a packed one is the right one."""


def is_base(soname: str) -> bool:
    """Whether a library is never packed: of the glibc family, or of a driver."""
    return bool(GLIBC_FAMILY.fullmatch(soname) or DRIVER.fullmatch(soname))


class LibraryFinder:
    """Looks for libraries in the loader's order: RPATH, LD_LIBRARY_PATH, RUNPATH, cache, defaults.

    Only one for the right machine counts. ``variable`` are the folders of LD_LIBRARY_PATH.
    """

    def __init__(
        self,
        variable: Iterable[Path] = (),
        cache: Path = CACHE,
        defaults: Iterable[Path] = DEFAULT_FOLDERS,
    ) -> None:
        self._variable = tuple(variable)
        self._cached = read_cache(cache)
        self._defaults = tuple(defaults)

    def find(self, soname: str, needs: Needs, user: Path) -> Path | None:
        """The library that the file ``user``, with these needs, would be given; None for none."""
        own = expand_search(needs.search, user)
        before, after = (own, ()) if needs.is_rpath else ((), own)
        for folder in (*before, *self._variable, *after):
            if _fits(folder / soname, needs.machine):
                return folder / soname
        for path in self._cached.get(soname, ()):
            if _fits(path, needs.machine):
                return path
        for folder in self._defaults:
            if _fits(folder / soname, needs.machine):
                return folder / soname
        return None

    def find_for(self, soname: str, machine: str) -> Path | None:
        """The library that a program without a search path of its own would be given."""
        return self.find(soname, Needs(machine=machine), Path("/"))


def variable_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of LD_LIBRARY_PATH."""
    names = environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return tuple(Path(name) for name in names if name)


def expand_search(search: Iterable[str], user: Path) -> tuple[Path, ...]:
    """The folders of an RPATH or RUNPATH, ``$ORIGIN`` being where the file really lies."""
    origin = str(user.resolve().parent)
    return tuple(
        Path(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
        for folder in search
        if "$LIB" not in folder and "$PLATFORM" not in folder
    )


def read_cache(cache: Path = CACHE) -> Mapping[str, tuple[Path, ...]]:
    """The paths by soname in the cache that ``ldconfig`` writes; nothing where it is unreadable."""
    found: dict[str, tuple[Path, ...]] = {}
    try:
        data = cache.read_bytes()
        data = data[max(0, data.find(_CACHE_MAGIC)) :]
        magic, count, _ = _HEAD.unpack_from(data)
        if magic != _CACHE_MAGIC:
            return found
        for number in range(count):
            _, key, value, _, _ = _ENTRY.unpack_from(data, _HEAD_SIZE + number * _ENTRY.size)
            name, path = _text(data, key), Path(_text(data, value))
            found[name] = (*found.get(name, ()), path)
    except (OSError, struct.error, ValueError):
        return found
    return found


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _fits(path: Path, machine: str) -> bool:
    if not path.is_file():
        return False
    needs = read_needs(path)
    return needs is not None and needs.machine == machine
