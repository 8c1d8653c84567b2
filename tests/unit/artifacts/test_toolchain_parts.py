"""Parts of packing a toolchain: old places in files, libraries in the loader's order."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileyard.artifacts.libraries import (
    CXX_RUNTIME,
    LibraryFinder,
    Needs,
    expand_search,
    is_base,
    is_elf,
    read_cache,
    read_needs,
    read_offered,
)
from tileyard.artifacts.toolchains import PLACEHOLDER, gather, settle, stage
from tileyard.base.errors import UsageError

PYTHON = Path(sys.executable).resolve()
MACHINE = os.uname().machine
FUZZ = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


# ---- old places -----------------------------------------------------------------------------------


def staged(tmp_path: Path, files: dict[str, bytes]) -> tuple[Path, Path]:
    """A folder with these files and an empty one."""
    folder, target = tmp_path / "old", tmp_path / "new"
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    target.mkdir()
    return folder, target


def test_old_place_is_replaced_in_text_alone(tmp_path: Path) -> None:
    """Texts get the new place wherever the old one stood as such; binaries are only listed."""
    old = str(tmp_path / "old").encode()
    files = {
        "a.cmake": b"set(P " + old + b"/lib)\nset(Q " + old + b"er/lib)\n",
        "run": b"#!" + old + b"/bin/python\n",
        "lib.so": b"\x7fELF\0" + old + b"\0",
        "other": b"nothing",
        "tool.pl": b"#!/opt/perl/bin/perl -w\n",
        "tool.sh": b"#!/usr/bin/env bash\n",
        "empty": b"",
    }
    folder, target = staged(tmp_path, files)
    expected = b"set(P /there/lib)\nset(Q " + old + b"er/lib)\n"

    found = stage(folder, target, [str(folder)])
    settle(target, found.relocated, "/there")

    assert found.relocated == ("a.cmake", "run")
    assert found.stale == ("lib.so",)
    assert found.interpreters == ("tool.pl: /opt/perl/bin/perl",)
    assert (target / "a.cmake").read_bytes() == expected
    assert (target / "run").read_bytes() == b"#!/there/bin/python\n"
    assert (target / "lib.so").read_bytes() == files["lib.so"]
    assert (folder / "run").read_bytes() == files["run"]


def test_longest_of_several_places_counts(tmp_path: Path) -> None:
    """A place within another one is taken for itself."""
    folder, target = staged(tmp_path, {"a": b"/opt/a/b/x /opt/a/c"})
    expected = PLACEHOLDER + b"/x " + PLACEHOLDER + b"/c"

    stage(folder, target, ["/opt/a", "/opt/a/b"])

    assert (target / "a").read_bytes() == expected


def test_links_and_compiled_python(tmp_path: Path) -> None:
    """A link to an absolute place within becomes relative; what Python compiled is left out."""
    folder, target = staged(tmp_path, {"lib/x": b"x", "p/__pycache__/m.pyc": b"1", "p/m.py": b""})
    (folder / "lib" / "y").symlink_to(folder / "lib" / "x")
    (folder / "bin").symlink_to("lib")
    expected = {"lib", "lib/x", "lib/y", "bin", "p", "p/m.py"}

    stage(folder, target, [str(folder)])

    assert {path.relative_to(target).as_posix() for path in target.rglob("*")} >= expected
    assert not (target / "p/__pycache__").exists()
    assert (target / "lib" / "y").readlink() == Path("x")


def test_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """What lies elsewhere would not come along."""
    folder, target = staged(tmp_path, {"x": b""})
    (folder / "y").symlink_to("/usr/bin/env")

    with pytest.raises(UsageError, match="the link 'y' leaves the tree"):
        stage(folder, target, [str(folder)])


# ---- libraries ------------------------------------------------------------------------------------


def test_programs_say_what_they_need() -> None:
    """This Python is a program for this machine that needs the C library."""
    needs = read_needs(PYTHON)
    expected = MACHINE

    assert needs is not None
    assert needs.machine == expected
    assert "libc.so.6" in needs.libraries
    assert needs.versions["GLIBC"].startswith("2.")


@pytest.mark.slow
@given(data=st.data())
@FUZZ
def test_damaged_program_is_none(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever is wrong with a file that looks like a program, it is read or it is none."""
    content = bytearray(PYTHON.read_bytes()[:4096])
    for _ in range(data.draw(st.integers(0, 8))):
        content[data.draw(st.integers(4, 1023))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("elf") / "program"
    path.write_bytes(content[: data.draw(st.integers(0, 4096))])

    needs = read_needs(path)

    assert needs is None or isinstance(needs, Needs)
    assert isinstance(read_offered(path), dict)


def test_text_is_no_program(tmp_path: Path) -> None:
    """A file that does not begin as programs do needs nothing."""
    (tmp_path / "text").write_text("#!/bin/sh\n")

    expected = None
    assert read_needs(tmp_path / "text") is expected
    assert read_needs(tmp_path / "nothing") is expected
    assert not is_elf(tmp_path / "text")


@pytest.mark.parametrize(
    ("soname", "expected"),
    [
        ("libc.so.6", True),
        ("ld-linux-x86-64.so.2", True),
        ("libm.so.6", True),
        ("libcuda.so.1", True),
        ("libstdc++.so.6", False),
        ("libgcc_s.so.1", False),
        ("libcublas.so.12", False),
        ("libcrypt.so.1", False),
        ("libz.so.1", False),
    ],
)
def test_rule_of_what_every_host_has(soname: str, expected: bool) -> None:
    """The glibc family and drivers stay behind, all else comes along; C++ lies apart."""
    assert is_base(soname) is expected
    is_cxx = soname.startswith(("libstdc++", "libgcc_s"))
    assert bool(CXX_RUNTIME.fullmatch(soname)) is is_cxx


def test_cache_of_the_loader_is_read(tmp_path: Path) -> None:
    """The C library is in this host's own cache; a cache that is cut short or garbage is none."""
    cache = Path("/etc/ld.so.cache")
    if cache.is_file():
        assert any(path.is_file() for path in read_cache(cache).get("libc.so.6", ()))
        content = cache.read_bytes()
        for size in range(0, min(len(content), 400), 7):
            (tmp_path / "cut").write_bytes(content[:size])
            read_cache(tmp_path / "cut")
    (tmp_path / "odd").write_bytes(
        b"glibc-ld.so.cache1.1"
        + struct.pack("<II", 2**31, 0)
        + bytes(20)
        + struct.pack("<iIIIQ", 3, 10**6, 0, 0, 0)
    )
    expected: dict[str, object] = {}
    assert read_cache(tmp_path / "odd") == expected
    assert read_cache(tmp_path / "none") == expected


def make_library(path: Path, *options: str) -> None:
    """A small shared library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(f"int f_{path.name.replace('.', '_')}(void) {{ return 1; }}\n")
    soname = f"-Wl,-soname,{path.name}"
    subprocess.run(
        ["cc", "-shared", "-fPIC", source, "-o", path, soname, "-Wl,--no-as-needed", *options],
        check=True,
    )
    source.unlink()


@needs_cc
def test_libraries_are_looked_for_in_the_loaders_order(tmp_path: Path) -> None:
    """RPATH before LD_LIBRARY_PATH before RUNPATH before the rest; other machines' are passed over."""
    for name in ("rpath", "variable", "default"):
        make_library(tmp_path / name / "libx.so.1")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "libx.so.1").write_bytes(b"\x7fELF not really")
    user = tmp_path / "bin" / "user"
    user.parent.mkdir()
    search = (str(tmp_path / "odd"), "$ORIGIN/../rpath")
    finder = LibraryFinder([tmp_path / "variable"], tmp_path / "none", [tmp_path / "default"])
    plain = LibraryFinder([], tmp_path / "none", [tmp_path / "default"])

    def found(finder: LibraryFinder, **needs: object) -> str:
        asking = Needs(machine=MACHINE, **needs)  # type: ignore[arg-type]
        path = finder.find("libx.so.1", asking, user)
        return path.resolve().parent.name if path else ""

    expected = ["rpath", "variable", "rpath", "default"]
    assert [
        found(finder, search=search, is_rpath=True),
        found(finder, search=search),
        found(plain, search=search),
        found(plain),
    ] == expected
    assert plain.find("libx.so.1", Needs(machine="other"), user) is None
    (tmp_path / "variable" / "libx.so.1").unlink()
    (tmp_path / "variable" / "libx.so.1").write_bytes(b"\x7fELF\2\1cut")
    assert found(finder) == "default"
    assert expand_search(["${ORIGIN}/a", "/$LIB/b"], user) == (user.parent.resolve() / "a",)


@needs_cc
@pytest.mark.skipif(MACHINE != "x86_64", reason="a mark of x86-64")
def test_marked_cpu_level_is_read(tmp_path: Path) -> None:
    """What a linker was told about the CPU is known before the program meets another one."""
    make_library(tmp_path / "plain.so")
    make_library(tmp_path / "marked.so", "-Wl,-z,x86-64-v3")
    expected = "x86-64-v3"

    marked, plain = read_needs(tmp_path / "marked.so"), read_needs(tmp_path / "plain.so")
    assert marked is not None
    assert marked.cpu_level == expected
    assert plain is not None
    assert plain.cpu_level == ""


@needs_cc
def test_what_a_folder_needs_is_gathered(tmp_path: Path) -> None:
    """Libraries from outside with theirs, folders whose own are not found, and what nobody has."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    link = [f"-L{outside}", f"-Wl,-rpath-link,{outside}"]
    make_library(outside / "libdeep.so")
    make_library(outside / "libnear.so", *link, "-ldeep", f"-Wl,-rpath,{outside}")
    make_library(outside / "libgone.so")
    make_library(folder / "own" / "libown.so")
    make_library(folder / "rel" / "librel.so")
    own = [f"-L{folder}/own", f"-L{folder}/rel", "-lown", "-lrel", "-Wl,-rpath,$ORIGIN/../rel"]
    make_library(folder / "use" / "libuse.so", *link, "-lnear", "-lgone", *own)
    (outside / "libgone.so").unlink()
    finder = LibraryFinder([outside], tmp_path / "none")

    found = gather(folder, MACHINE, finder)

    expected = {"libdeep.so", "libnear.so"}
    assert set(found.libraries) == expected
    assert found.folders == {"own"}
    assert found.missing == {"libgone.so"}
    assert found.cxx == {}
    assert gather(folder, "other", finder).needs == []


def test_code_of_a_device_asks_nothing_of_a_host(tmp_path: Path) -> None:
    """A cubin is an ELF file for a machine that is not a host: it needs neither a CPU nor libraries."""
    content = bytearray(PYTHON.read_bytes())
    content[18:20] = (190).to_bytes(2, "little")  # EM_CUDA
    (tmp_path / "kernel.cubin").write_bytes(content)

    expected = None
    assert read_needs(tmp_path / "kernel.cubin") is expected
