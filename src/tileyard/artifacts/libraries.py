"""Reads what ELF files need of a host, where the loader finds it, what every host has. Loads nothing."""

import os
import platform
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from packaging.version import InvalidVersion, Version

from tileyard.base.model import Record

MACHINES = {
    "EM_X86_64": "x86_64",
    "EM_386": "i686",
    "EM_AARCH64": "aarch64",
    "EM_ARM": "arm",
    "EM_PPC64": "ppc64le",
    "EM_RISCV": "riscv64",
    "EM_LOONGARCH": "loongarch64",
    "EM_S390": "s390x",
}
"""ELF's names of machines, and the kernel's (``uname -m``)."""

OF_DEVICES = frozenset({"EM_CUDA"})
"""Machines of code that a driver loads, and no host runs: such code needs nothing of a host."""

LEVELS = ("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4")
"""The bits of the mark that states the required CPU level, the lowest first."""

_ISA_NEEDED = "GNU_PROPERTY_X86_ISA_1_NEEDED"
_TAGS = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}
"""Entries of the dynamic section, and the library's names for their texts."""
_VERSIONED = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)*)")
T = TypeVar("T")

CACHE = Path("/etc/ld.so.cache")
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_HEAD, _ENTRY = struct.Struct("<20sII"), struct.Struct("<iIIIQ")
_HEAD_SIZE = 48

NUMBERS = {"x86_64": 62, "aarch64": 183, "ppc64le": 21, "riscv64": 243, "loongarch64": 258}
"""The numbers of machines in 64-bit little-endian files."""
_WIDE_LITTLE, _RUNNING = b"\x7fELF\2\1", (2, 3)
"""The start of 64-bit little-endian ELF files, and the kinds that are programs and shared libraries."""

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
"""Parts of the loader itself: two different versions in one process do not work."""

DRIVER = re.compile(
    r"(libcuda|libcudadebugger|libnvidia-.*|libnvcuvid|libnvoptix|libGL|libEGL|libGLX.*|libGLdispatch"
    r"|libOpenCL|libvulkan|libdrm.*|libascend_hal|libdrvdsmi_host|libdcmi|libmetax.*|libamdhip64"
    r"|libhsa-runtime64|libze_loader|linux-vdso|linux-gate)\.so(\..*)?"
)
"""Libraries that must match the kernel's driver on the host that uses them."""

CXX_RUNTIME = re.compile(r"(libstdc\+\+|libgcc_s)\.so(\..*)?")
"""Newer versions serve older programs, so the newer one of the host's and a packed one is right."""


class Needs(Record):
    """The needs that one ELF file states: the highest ``versions`` of GLIBC, GLIBCXX and CXXABI,
    ``libraries`` by soname. ``is_rpath``: ``search`` precedes LD_LIBRARY_PATH. ``cpu_level``: its
    linker's mark, if any.
    """

    machine: str
    soname: str = ""
    libraries: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    is_rpath: bool = False
    versions: dict[str, str] = {}
    cpu_level: str = ""


def is_elf(path: Path) -> bool:
    """Whether a file begins like an ELF file. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def read_needs(path: Path) -> Needs | None:
    """The needs of a program or shared library; None for any other file, including a damaged one."""
    return _parse(path, _read, None)


def read_offered(path: Path) -> dict[str, str]:
    """The highest version of each of GLIBC, GLIBCXX and CXXABI that a library defines."""
    return _parse(path, lambda elf: _versions_in(elf, ".gnu.version_d"), {})


def highest_versions(names: list[str]) -> dict[str, str]:
    """The highest version of each family among names such as ``GLIBC_2.34``."""
    found: dict[str, str] = {}
    for match in filter(None, map(_VERSIONED.fullmatch, names)):
        family, version = match.groups()
        if is_newer(version, found.get(family, "")):
            found[family] = version
    return found


def is_newer(version: str, than: str) -> bool:
    """Whether a version is higher than another one; any version is higher than none."""
    if not version or not than:
        return bool(version) and not than
    try:
        return Version(version) > Version(than)
    except InvalidVersion:
        return version > than


def is_base(soname: str) -> bool:
    """Whether a library is never packed: it belongs to the glibc family, or to a driver."""
    return bool(GLIBC_FAMILY.fullmatch(soname) or DRIVER.fullmatch(soname))


class LibraryFinder:
    """Finds libraries in the loader's order: RPATH, LD_LIBRARY_PATH (``variable``), RUNPATH, cache, rest."""

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
        """The library that the loader gives to the file ``user``, with these needs; None for none."""
        own = expand_search(needs.search, user)
        before, after = (own, ()) if needs.is_rpath else ((), own)
        places = (
            *(folder / soname for folder in (*before, *self._variable, *after)),
            *self._cached.get(soname, ()),
            *(folder / soname for folder in self._defaults),
        )
        return next((path for path in places if _fits(path, needs.machine)), None)

    def find_for(self, soname: str, machine: str) -> Path | None:
        """The library that the loader gives to a program without a search path of its own."""
        return self.find(soname, Needs(machine=machine), Path("/"))


def variable_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of LD_LIBRARY_PATH."""
    names = environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return tuple(Path(name) for name in names if name)


def expand_search(search: Iterable[str], user: Path) -> tuple[Path, ...]:
    """The folders of an RPATH or RUNPATH, ``$ORIGIN`` is the real folder of the file."""
    origin = str(user.resolve().parent)
    return tuple(
        Path(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
        for folder in search
        if "$LIB" not in folder and "$PLATFORM" not in folder
    )


def read_cache(cache: Path = CACHE) -> Mapping[str, tuple[Path, ...]]:
    """The paths by soname in the cache that ``ldconfig`` writes; nothing if it is unreadable."""
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
    if machine in NUMBERS:  # the rest of a library takes a hundred times as long to read
        try:
            with path.open("rb") as file:
                head = file.read(20)
            if head[:6] == _WIDE_LITTLE:
                kind, number = struct.unpack_from("<HH", head, 16)
                return kind in _RUNNING and number == NUMBERS[machine]
        except (OSError, struct.error):  # the loader continues its search, too
            return False
    needs = read_needs(path)
    return needs is not None and needs.machine == machine


def _parse(path: Path, read: Callable[[Any], T], otherwise: T) -> T:
    # It takes a tenth of a second, which most callers do not need.
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            return read(ELFFile(file)) if is_elf(path) else otherwise
    except (ELFError, ValueError, KeyError, TypeError, AttributeError, OSError, struct.error):
        # The reader's parsing can stumble over anything: this is the last resort.
        return otherwise


def _read(elf: Any) -> Needs | None:  # noqa: ANN401 - the library has no types
    machine = str(elf.header.e_machine)
    if elf.header.e_type not in ("ET_EXEC", "ET_DYN") or machine in OF_DEVICES:
        return None
    stated: dict[str, list[str]] = {name: [] for name in _TAGS.values()}
    for segment in elf.iter_segments(type="PT_DYNAMIC"):
        for tag in segment.iter_tags():
            if name := _TAGS.get(tag.entry.d_tag):
                stated[name].append(str(getattr(tag, name)))
    rpath, runpath = ("".join(stated[name][-1:]) for name in ("rpath", "runpath"))
    search = (runpath or rpath).split(":")
    return Needs(
        machine=MACHINES.get(machine, machine),
        soname="".join(stated["soname"][-1:]),
        libraries=tuple(stated["needed"]),
        search=tuple(folder for folder in search if folder),
        is_rpath=bool(rpath) and not runpath,
        versions=_versions_in(elf, ".gnu.version_r"),
        cpu_level=_marked_level(elf),
    )


def _versions_in(elf: Any, name: str) -> dict[str, str]:  # noqa: ANN401 - the library has no types
    section = elf.get_section_by_name(name)
    if section is None:
        return {}
    return highest_versions(
        [str(aux.name) for _, auxes in section.iter_versions() for aux in auxes]
    )


def _marked_level(elf: Any) -> str:  # noqa: ANN401 - the library has no types
    section = elf.get_section_by_name(".note.gnu.property")
    if section is None or elf.header.e_machine != "EM_X86_64":
        return ""
    bits = 0
    for note in section.iter_notes():
        if note["n_type"] == "NT_GNU_PROPERTY_TYPE_0":
            for mark in note["n_desc"]:
                if mark.pr_type == _ISA_NEEDED:
                    bits |= int(mark.pr_data)
    marked = [level for bit, level in enumerate(LEVELS) if bits >> bit & 1]
    return marked[-1] if marked else ""
