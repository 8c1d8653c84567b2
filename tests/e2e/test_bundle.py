"""``tileyard bundle`` as CI uses it: one job packs a toolchain, another one, elsewhere, runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.conftest import KERNELS, CommandLine
from tests.run_records import remember_run

import tileyard
from tileyard.artifacts.bundle_file import Expected
from tileyard.artifacts.bundles import (
    Packing,
    check_bundle,
    open_bundle,
    read_manifest,
    write_bundle,
)
from tileyard.artifacts.compat import read_host
from tileyard.artifacts.libraries import CXX_RUNTIME, GLIBC_FAMILY, LibraryFinder, read_needs
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.toolchains import Layout, Toolchain, open_toolchain
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import BundleError, IncompatibleError
from tileyard.base.model import RunKey
from tileyard.workers.run_records import RunRecord, find_run

pytestmark = pytest.mark.slow

COMMIT = "c0ffee" * 6 + "c0ff"
MACHINE = os.uname().machine
BARE = {"PATH": "/usr/bin:/bin"}

SOURCES = {
    "far.c": "int far(void) { return 42; }",
    "near.c": "int far(void); int near(void) { return far(); }",
    "tool.cpp": """
        #include <iostream>
        #include <string>
        extern "C" int near(void);
        int main() { std::string is = "the answer is "; std::cout << is << near() << std::endl; }
    """,
}
BUILD = """
cc -shared -fPIC far.c -o far/libfar.so.1 -Wl,-soname,libfar.so.1
cc -shared -fPIC near.c -o inst/lib/libnear.so -Wl,-soname,libnear.so far/libfar.so.1 -Wl,-rpath,$PWD/far
c++ tool.cpp -o inst/bin/tool inst/lib/libnear.so -Wl,-rpath-link,far -Wl,-rpath,$PWD/inst/lib
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A build job's directory, without binaries."""
    return fill_job(tmp_path / "job")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of an installed toolchain and a library of the build machine; the job's folder is gone."""
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    cli = CommandLine(tmp_path_factory.mktemp("packed"))
    job, output = fill_job(cli.cwd / "job"), cli.cwd / "toolchain.tyb"
    for name, text in SOURCES.items():
        (job / name).write_text(text)
    subprocess.run(["sh", "-e", "-c", BUILD], cwd=job, check=True)
    done = cli.run("bundle", "--tree", f"{job}/inst", "--commit", COMMIT, "-o", str(output))
    assert done.returncode == 0, done.stderr
    shutil.rmtree(job)
    return output


def fill_job(job: Path) -> Path:
    """Make the directory and all files that need no compiler."""
    for folder in ("inst/bin", "inst/lib/python3/site-packages/pack", "inst/share", "far"):
        (job / folder).mkdir(parents=True)
    (job / "inst/bin/wrapper").write_text(f"#!/bin/sh\nexec {job}/inst/bin/tool\n")
    (job / "inst/bin/wrapper").chmod(0o755)
    (job / "inst/bin/latest").symlink_to(job / "inst/bin/tool")
    (job / "inst/share/tool.cmake").write_text(f"set(LIB {job}/inst/lib)\nset(X {job}/inst2)\n")
    (job / "inst/lib/python3/site-packages/pack/__init__.py").write_text("ANSWER = 42\n")
    return job


def run(toolchain: Toolchain, *argv: str) -> str:
    """What a program says in the toolchain's environment, and nothing else in it."""
    environment = toolchain.environment(BARE)
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_toolchain_runs_at_another_place(packed: Path, cli: CommandLine) -> None:
    """Programs find their libraries, scripts and texts the new place, Python its packages."""
    toolchain = open_toolchain(packed, COMMIT, cli.home)
    layout = toolchain.layout
    expected = "the answer is 42\n"

    assert run(toolchain, "tool") == expected
    assert run(toolchain, "wrapper") == expected
    assert run(toolchain, "latest") == expected
    text = (toolchain.folder / "share/tool.cmake").read_text().splitlines()
    assert text[0] == f"set(LIB {toolchain.folder}/lib)"
    assert text[1].endswith("/job/inst2)")
    assert run(toolchain, sys.executable, "-c", "import pack; print(pack.ANSWER)") == "42\n"
    assert layout.relocated == ("bin/wrapper", "share/tool.cmake")
    assert layout.stale == ("bin/tool",)
    assert (toolchain.folder / "../lib/libfar.so.1").is_file()
    assert not list(toolchain.folder.rglob("__pycache__"))


def test_toolchain_is_unpacked_once_and_healed(packed: Path, cli: CommandLine) -> None:
    """Opening it again finds it in place; a toolchain that was tampered with is made anew."""
    first = open_toolchain(packed, COMMIT[:10], cli.home)
    inode = first.folder.resolve().stat().st_ino
    link = first.folder.parent.lstat()
    expected = first

    assert open_toolchain(packed, "", cli.home) == expected
    assert first.folder.resolve().stat().st_ino == inode
    assert first.folder.parent.lstat() == link

    tool = first.folder / "bin" / "tool"
    tool.parent.chmod(0o755)
    tool.unlink()
    again = open_toolchain(packed, COMMIT, cli.home)
    assert run(again, "tool") == "the answer is 42\n"


@pytest.mark.parametrize(
    ("details", "line"),
    [
        ({"programs": ("../../../etc",)}, "'../../../etc' is not a path within it"),
        ({"libraries": ("/etc",)}, "'/etc' is not a path within it"),
        ({"relocated": ("a/../../../x",)}, "is not a path within it"),
        ({"relocated": ("nothing",)}, "it has no file 'nothing'"),
        ({"python": ("content/nothing",)}, "it has no directory 'content/nothing'"),
        (None, "its manifest is invalid"),
    ],
)
def test_hostile_toolchain_is_refused(
    cli: CommandLine, details: dict[str, tuple[str, ...]] | None, line: str
) -> None:
    """What a maker says of a toolchain leads nowhere else: nothing is read or written there."""
    objects = ObjectStore(cli.cwd / "made")
    (cli.cwd / "tree" / "content").mkdir(parents=True)
    tree = Trees(objects).put(cli.cwd / "tree")
    layout = msgspec.structs.replace(
        Layout(programs=(), python=(), libraries=()), **(details or {})
    )
    packing = Packing(
        kind="toolchain",
        trees=(tree,),
        details=msgspec.json.encode(layout).decode() if details else "[]",
    )
    write_bundle(packing, objects, cli.cwd / "x.tyb")
    expected = line

    with pytest.raises(BundleError, match=re.escape(expected)):
        open_toolchain(cli.cwd / "x.tyb", "", cli.home)
    assert not (cli.home / "toolchains").exists()


def test_what_the_packer_states_is_checked(tree: Path, cli: CommandLine) -> None:
    """A CPU and a driver that no file tells of are stated on the command line, and refused there."""
    (tree / "inst/bin/latest").unlink()
    shutil.copy(shutil.which("true") or "", tree / "inst/bin/tool")
    stated = ("--cpu-arch", "x86-64-v2", "--driver", ">=9999")
    output = ("-o", str(cli.cwd / "x.tyb"), "--commit", COMMIT)
    assert cli.run_here("bundle", "--tree", f"{tree}/inst", *output, *stated).returncode == 0
    expected = "driver: >=9999 is needed, found"

    done = cli.run_here("bundle", "--inspect", str(cli.cwd / "x.tyb"))

    assert f"needs {MACHINE} x86-64-v2" in done.stdout
    assert done.returncode == 2
    assert expected in done.stderr


OPENER = """
import sys
from pathlib import Path
from tileyard.artifacts.toolchains import open_toolchain
for _ in range(3):
    toolchain = open_toolchain(Path(sys.argv[1]), "", Path(sys.argv[2]))
    assert (toolchain.folder / "bin" / "wrapper").read_text().endswith(f"{toolchain.folder}/bin/tool\\n")
"""


def test_toolchain_is_opened_by_several_at_once(packed: Path, cli: CommandLine) -> None:
    """Processes that open one bundle in one home at the same time all get it whole."""
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, packed, cli.home], stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    expected = ["", "", ""]

    assert [opener.communicate()[1] for opener in openers] == expected
    assert not list((cli.home / "objects" / "tmp").iterdir())
    assert not list((cli.home / "toolchains").glob(".*"))


def test_same_content_at_two_places_is_the_same_bundle(tree: Path, cli: CommandLine) -> None:
    """Where a toolchain was built takes no part, but for what binaries hold of it."""
    (tree / "inst/bin/latest").unlink()
    other = tree.with_name("other")
    shutil.copytree(tree, other, symlinks=True)
    for path in (other / "inst/bin/wrapper", other / "inst/share/tool.cmake"):
        path.write_text(path.read_text().replace(f"{tree}/inst/", f"{other}/inst/"))
    bundles = []
    for job in (tree, other):
        output = cli.cwd / f"{job.name}.tyb"
        arguments = ("--tree", f"{job}/inst", "--commit", COMMIT, "-o", str(output))
        assert cli.run_here("bundle", *arguments).returncode == 0
        bundles.append(output.read_bytes())
    expected = bundles[0]

    assert bundles[1] == expected


def test_other_commit_is_refused(packed: Path, cli: CommandLine) -> None:
    """The toolchain of another commit is not used, and nothing of it is unpacked."""
    expected = "commit: deadbeef is needed, found c0ffee"

    with pytest.raises(IncompatibleError, match=expected):
        open_toolchain(packed, "deadbeef", cli.home)
    assert not cli.home.exists()
    done = cli.run_here("bundle", "--inspect", str(packed), "--commit", "deadbeef")
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_bundle_says_what_it_is(packed: Path, cli: CommandLine) -> None:
    """People read what it needs and what may surprise them, machines the manifest."""
    shown = cli.run_here("bundle", "--inspect", str(packed))
    manifest = json.loads(cli.run_here("bundle", "--inspect", str(packed), "--json").stdout)
    layout = msgspec.json.decode(manifest["details"], type=Layout)
    expected = {"kind": "toolchain", "commit": COMMIT}

    assert shown.returncode == 0
    assert "needs glibc 2." in shown.stdout
    assert "hold the place where they were built" in shown.stdout
    assert {name: manifest[name] for name in expected} == expected
    assert manifest["requires"]["machine"] == os.uname().machine
    assert manifest["requires"]["has_cxx"]
    assert manifest["requires"]["glibcxx"].startswith("3.4")
    assert layout.libraries == ("content/lib", "lib")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "--tree"),
        (("--tree", "empty", "-o", "x.tyb", "--commit", "c"), "'empty' is not a directory with"),
        (("--tree", "full", "-o", "x.tyb"), "--commit"),
        (("--tree", "full", "-o", "no/x.tyb", "--commit", "c"), "cannot write no/x.tyb"),
        (("--tree", "out", "-o", "x.tyb", "--commit", "c"), "the link 'a' leaves the tree"),
        (("--tree", "full", "-o", "x.tyb", "--commit", "c", "--bin", "b"), "'b' is not a dir"),
        (("--tree", "full", "-o", "x", "--commit", "c", "--cpu-arch", "v9"), "no CPU level 'v9'"),
        (("--tree", "full", "-o", "x", "--commit", "c", "--driver", "5"), "'5' is not a range"),
        (("--inspect", "full/file"), "is not a sound bundle"),
        (("--inspect", "nothing"), "cannot read the bundle"),
        (("--inspect", "x", "--tree", "full"), "--tree has no effect with --inspect"),
    ],
)
def test_bad_request_is_one_line(cli: CommandLine, arguments: tuple[str, ...], line: str) -> None:
    """What cannot be packed or read is named, with exit status 2 and no file left."""
    for name in ("empty", "full", "out"):
        (cli.cwd / name).mkdir()
    (cli.cwd / "full" / "file").write_bytes(b"x" * 1000)
    (cli.cwd / "out" / "a").symlink_to("../full")
    before = sorted(cli.cwd.iterdir())
    expected = 2

    done = cli.run_here("bundle", *arguments)

    assert done.returncode == expected
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(cli.cwd.iterdir()) == before


# ---- another root ---------------------------------------------------------------------------------

ENTER = """
set -e
for place in $PLACES; do mkdir -p "$ROOT$place"; mount --rbind "$place" "$ROOT$place"; done
mkdir -p "$ROOT/proc"; mount -t proc none "$ROOT/proc"
exec chroot "$ROOT" /bin/sh -c "cd / && exec $INSIDE"
"""
SCRIPT = """
import subprocess, sys
from pathlib import Path
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.toolchains import open_toolchain
toolchain = open_toolchain(Path("/bundle/toolchain.tyb"), sys.argv[1], Path("/home/run"))
environment = toolchain.environment({"PATH": "/bin"})
for program in ("tool", "wrapper"):
    done = subprocess.run([program], env=environment, capture_output=True, text=True)
    print(program, done.returncode, done.stdout, done.stderr, sep="|", end="")
"""


def fill_root(root: Path) -> None:
    """A root with a shell, the C library and what this Python is linked to; no compiler, no C++."""
    for folder in ("bin", "bundle", "home", "tmp", "etc"):
        (root / folder).mkdir(parents=True)
    finder = LibraryFinder()
    waiting = [Path("/bin/sh"), Path(sys.executable).resolve()]
    shutil.copy(Path("/bin/sh").resolve(), root / "bin" / "sh")
    libc = finder.find_for("libc.so.6", "x86_64")
    assert libc is not None
    copied = {path for path in libc.parent.iterdir() if GLIBC_FAMILY.fullmatch(path.name)}
    waiting += Path(os.__file__).parent.glob("lib-dynload/*.so")
    while waiting:
        user = waiting.pop()
        needs = read_needs(user)
        for soname in needs.libraries if needs else ():
            path = finder.find(soname, needs, user) if needs else None
            if path is not None and path not in copied and not CXX_RUNTIME.fullmatch(soname):
                copied.add(path)
                waiting.append(path)
    for path in copied:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.resolve(), target)
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    (root / "lib64").mkdir(exist_ok=True)
    shutil.copy(loader.resolve(), root / "lib64" / loader.name)
    shutil.copy("/etc/ld.so.cache", root / "etc")


def can_enter() -> bool:
    """Whether this user may have mounts of its own."""
    done = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


def test_toolchain_runs_in_another_root(packed: Path, tmp_path: Path) -> None:
    """A root with a PATH of its own, no compiler and no C++ runtime uses what another one built."""
    if os.geteuid() or not shutil.which("unshare") or os.uname().machine != "x86_64":
        pytest.skip("needs root, unshare and x86-64")
    if not can_enter():
        pytest.skip("needs the right to mount")
    root = tmp_path / "root"
    fill_root(root)
    shutil.copy(packed, root / "bundle" / "toolchain.tyb")
    (root / "bundle" / "run.py").write_text(SCRIPT)
    places = {sys.prefix, sys.base_prefix, str(Path(tileyard.__file__).parent.parent)}
    environment = {
        **BARE,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "ROOT": str(root),
        "PLACES": " ".join(sorted(places)),
        "INSIDE": f"{sys.executable} /bundle/run.py {COMMIT}",
    }
    expected = "tool|0|the answer is 42\n|wrapper|0|the answer is 42\n|"

    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", ENTER],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == expected, done.stderr
    assert not (root / "usr/bin").exists()
    assert read_manifest(packed).requires.has_cxx


# ---- kernels --------------------------------------------------------------------------------------


def test_kernels_run_where_there_is_no_compiler(cli: CommandLine, tmp_path: Path) -> None:
    """A case list names artifacts and golden results by digest; what it names is all it takes."""
    kernel = f"{KERNELS / 'elementwise.py'}::gelu"
    tuned = cli.run(
        "tune", kernel, "--arg", "N=256", "--config", "block=32,64", "--reference", "gelu_reference"
    )
    assert "2 passed" in tuned.stdout, (
        tuned.stderr
    )  # a busy machine may leave them without an order
    made = ObjectStore(cli.home / "objects")
    keys = [line.split()[0] for line in (made.root / "runs.jsonl").read_text().split("\n") if line]
    runs = {key: find_run(made, key) for key in keys}
    cases = msgspec.json.encode(runs)
    manifest = write_bundle(Packing(target="cpu"), made, tmp_path / "x.tyb", cases)

    other = CommandLine(tmp_path / "other", {"CC": "/nowhere/cc", "PATH": "/nowhere"})
    other.cwd.mkdir()
    there = ObjectStore(other.home / "objects")
    opened = open_bundle(tmp_path / "x.tyb", there, Expected(target="cpu"))
    for key, record in msgspec.json.decode(opened.cases, type=dict[str, RunRecord]).items():
        remember_run(there, RunKey(key), record)
    done = other.run("run-artifact", *keys)
    expected = len(keys)

    assert expected >= 2
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count(": passed on cpu:0 in") == expected
    assert "avx" in " ".join(manifest.requires.cpu_features) or MACHINE != "x86_64"
    assert manifest.requires.machine == MACHINE
    bare = msgspec.structs.replace(read_host(manifest.requires.libraries), cpu_features=("fpu",))
    with pytest.raises(IncompatibleError, match="cpu features: "):
        check_bundle(tmp_path / "x.tyb", host=bare)
