"""What is needed against what is there: each refusal says which, what and what was found."""

from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.compat import (
    CPU_LEVELS,
    Host,
    Prerequisites,
    Requirements,
    VersionNeed,
    find_level,
    find_missing,
    find_refusals,
    higher_level,
    is_in_range,
    python_tag,
    read_driver,
    read_features,
    read_host,
    require_fit,
    sum_needs,
)
from tileyard.artifacts.libraries import (
    LibraryFinder,
    Needs,
    highest_versions,
    is_newer,
    variable_folders,
)
from tileyard.base.errors import IncompatibleError

HOST = Host(
    machine="x86_64",
    cpu_features=tuple(CPU_LEVELS["x86-64-v3"]),
    glibc="2.36",
    glibcxx="3.4.30",
    cxxabi="1.3.13",
    python="cp311",
    libraries=("libgomp.so.1",),
    driver="550.54.15",
)
MET = Requirements(
    machine="x86_64",
    cpu_level="x86-64-v3",
    cpu_features=("avx2",),
    glibc="2.36",
    glibcxx="3.4.9",
    cxxabi="1.3.13",
    python="cp311",
    libraries=("libgomp.so.1",),
    driver=">=535,<600",
)


def test_host_that_has_everything_is_not_refused() -> None:
    """Equal and higher versions do; versions are compared by number and not as text."""
    expected = ()

    assert tuple(find_refusals(MET, HOST)) == expected
    assert tuple(find_refusals(Requirements(), Host(machine="riscv64"))) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"machine": "aarch64"}, "architecture: aarch64 is needed, found x86_64"),
        ({"cpu_level": "x86-64-v4"}, "cpu level: x86-64-v4 is needed, found x86-64-v3"),
        (
            {"cpu_features": ("avx2", "avx512f")},
            "cpu features: avx512f is needed, found a CPU without them",
        ),
        ({"glibc": "2.38"}, "glibc: 2.38 is needed, found 2.36"),
        ({"glibcxx": "3.4.31"}, "libstdc++ (GLIBCXX): 3.4.31 is needed, found 3.4.30"),
        ({"cxxabi": "1.3.14"}, "libstdc++ (CXXABI): 1.3.14 is needed, found 1.3.13"),
        ({"python": "cp312"}, "python: cp312 is needed, found cp311"),
        ({"libraries": ("libfoo.so.2",)}, "library: libfoo.so.2 is needed, found none"),
        ({"driver": ">=560"}, "driver: >=560 is needed, found 550.54.15"),
    ],
)
def test_each_requirement_that_is_not_met_is_one_line(
    change: dict[str, object], expected: str
) -> None:
    """The line names the requirement, what is needed and what was found."""
    refusals = tuple(find_refusals(msgspec.structs.replace(MET, **change), HOST))

    assert refusals == (expected,)
    with pytest.raises(IncompatibleError) as caught:
        require_fit("x.tyb", refusals)
    assert caught.value.refusals == (expected,)
    assert "\n" not in str(caught.value)


def test_all_that_is_missing_is_said_at_once() -> None:
    """Nobody has to come back for the second reason; of another architecture nothing more is said."""
    bare = Host(machine="x86_64")
    expected = 9 - 1

    assert len(tuple(find_refusals(MET, bare))) == expected
    assert len(tuple(find_refusals(MET, Host(machine="aarch64")))) == 1


def test_packed_cxx_runtime_serves_an_older_host() -> None:
    """A bundle that brings libstdc++ asks for the C library's version alone."""
    needed = msgspec.structs.replace(MET, glibcxx="3.4.99", cxxabi="1.9", has_cxx=True)
    expected = ()

    assert tuple(find_refusals(needed, HOST)) == expected
    assert len(tuple(find_refusals(msgspec.structs.replace(needed, glibc="2.99"), HOST))) == 1


def test_levels_build_on_each_other() -> None:
    """Each level has all of the one before; what is missing below cannot be made up for above."""
    levels = list(CPU_LEVELS)
    expected = levels

    assert [find_level(CPU_LEVELS[level]) for level in levels] == expected
    assert find_level(CPU_LEVELS["x86-64-v4"] - CPU_LEVELS["x86-64-v1"]) == ""
    assert tuple(find_refusals(Requirements(cpu_level="z16"), HOST)) != ()


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("550.54.15", ">=535", True),
        ("550.54.15", ">=535,<550", False),
        ("", ">=535", False),
        ("550", "about 535", False),
    ],
)
def test_driver_range(version: str, wanted: str, expected: bool) -> None:
    """A range is as Python packages write it; one that cannot be read has nothing in it."""
    assert is_in_range(version, wanted) is expected


def test_needs_of_several_files_add_up() -> None:
    """The highest version counts; what is packed and what glibc stands for is not asked for."""
    needs = [
        Needs(machine="x86_64", libraries=("libc.so.6", "liba.so"), versions={"GLIBC": "2.4"}),
        Needs(machine="x86_64", libraries=("libb.so",), versions={"GLIBC": "2.34", "CXXABI": "1"}),
    ]
    expected = Requirements(machine="x86_64", glibc="2.34", cxxabi="1", libraries=("libb.so",))

    assert sum_needs(needs, ["liba.so"]) == expected


def test_highest_level_counts() -> None:
    """The level that one file is marked with is what all of them need; an unknown one is kept."""
    needs = [Needs(machine="x86_64", cpu_level=level) for level in ("x86-64-v3", "", "x86-64-v2")]
    expected = "x86-64-v3"

    assert sum_needs(needs, []).cpu_level == expected
    assert higher_level("x86-64-v2", "x86-64-v3") == expected
    assert higher_level("", "x86-64-v3") == expected
    assert higher_level("z16", "x86-64-v3") == "z16"


def test_versions_of_symbols() -> None:
    """Families are told apart, private ones left out, and numbers compared as numbers."""
    names = ["GLIBC_2.9", "GLIBC_2.34", "GLIBC_PRIVATE", "GLIBCXX_3.4.9", "CXXABI_1.3", "FOO_9"]
    expected = {"GLIBC": "2.34", "GLIBCXX": "3.4.9", "CXXABI": "1.3"}

    assert highest_versions(names) == expected
    assert is_newer("2.10", "2.9")
    assert is_newer("1", "")
    assert not is_newer("", "")
    assert not is_newer("2.9", "2.9")


def test_this_host_is_described(tmp_path: Path) -> None:
    """The C library, Python and libraries of the running process are found."""
    host = read_host(libraries=("libc.so.6", "libnothere.so.9"))
    expected = ("libc.so.6",)

    assert host.libraries == expected
    assert host.glibc.startswith("2.")
    assert host.python == python_tag()
    assert python_tag().startswith("cp3")
    assert read_features(tmp_path / "none") == ()
    assert read_host(driver="1.2").driver == "1.2"


def test_host_without_a_loader_cache_has_its_libraries(tmp_path: Path) -> None:
    """Where nobody ran ldconfig, as in a small container, the default folders are looked through."""
    expected = ("libc.so.6",)

    host = read_host(("libc.so.6",), finder=LibraryFinder(cache=tmp_path / "none"))

    assert host.libraries == expected


def test_folders_of_the_variable_count(tmp_path: Path) -> None:
    """LD_LIBRARY_PATH is taken apart as the loader does, empty parts left out."""
    expected = (Path("/a"), Path("/b"))

    assert variable_folders({"LD_LIBRARY_PATH": "/a::/b:"}) == expected
    assert variable_folders({}) == ()


def test_driver_and_features_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    """The numbers in the text are found; where there is no file there is no driver."""
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\nGCC version: 12.2.0\n"
    )
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: avx fma\n\nflags: other\n")
    expected = "550.54.15"

    assert read_driver(tmp_path / "version") == expected
    assert read_driver(tmp_path / "none") == ""
    assert read_features(tmp_path / "cpuinfo") == ("avx", "fma")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Variables of a host with one program."""
    program = tmp_path / "pto-sim"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return {"PATH": str(tmp_path), "SIM_HOME": "/opt/sim", "EMPTY": ""}


def ask(argv: tuple[str, ...]) -> tuple[str, str]:
    """What the programs of that host say."""
    said = {"pto-sim": "PTO simulator, release 3.4.1\n", "odd": "no number\n"}
    return (said[argv[0]], "") if argv[0] in said else ("", "ended with exit code 3")


def missing(env: dict[str, str], needed: Prerequisites) -> list[str]:
    """The lines on what is missing where there are two devices of the class npu."""
    return list(find_missing(needed, env, ask, {"cpu": 1, "npu": 2}))


def version(*argv: str, **fields: str) -> Prerequisites:
    """A version that a command has to say."""
    return Prerequisites(versions=(VersionNeed(argv=argv, **fields),))


def test_a_host_that_has_all_of_it_lacks_nothing(env: dict[str, str]) -> None:
    """Programs, versions, variables and devices."""
    needed = Prerequisites(
        programs=("pto-sim",),
        versions=(VersionNeed(argv=("pto-sim", "-v"), range=">=3.1,<4"),),
        variables=("SIM_HOME",),
        devices={"npu": 2},
    )
    assert missing(env, needed) == []


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (
            Prerequisites(programs=("pto_sim",)),
            "program pto_sim is required and was not found on PATH (did you mean 'pto-sim'?)",
        ),
        (Prerequisites(programs=("x",)), "program x is required and was not found on PATH"),
        (version("pto-sim", "-v", range=">=4"), "`pto-sim -v`: >=4 is needed, found 3.4.1"),
        (
            version("odd"),
            r"`odd`: a version is needed, found nothing like '(\\d+(?:\\.\\d+)+)' in 'no number'",
        ),
        (version("bad"), "`bad`: a version is needed, found that it ended with exit code 3"),
        (
            version("pto-sim", pattern="(PTO)", range=">1"),
            "`pto-sim`: >1 is needed, found PTO",
        ),
        (
            Prerequisites(variables=("SIM_HOM",)),
            "variable SIM_HOM: it is needed, found none, the nearest is SIM_HOME",
        ),
        (Prerequisites(variables=("EMPTY",)), "variable EMPTY: a value is needed, found none"),
        (Prerequisites(devices={"npu": 3}), "devices npu: 3 is needed, found 2"),
        (
            Prerequisites(devices={"npus": 1}),
            "devices npus: 1 is needed, found none, the nearest is npu",
        ),
    ],
)
def test_what_is_missing_is_named(env: dict[str, str], needed: Prerequisites, said: str) -> None:
    """With what was found in its place, and what is called much like it."""
    assert missing(env, needed) == [said]


def test_a_program_that_is_missing_is_not_asked_for_its_version(env: dict[str, str]) -> None:
    """It is named once."""
    needed = Prerequisites(programs=("bad",), versions=(VersionNeed(argv=("bad",)),))
    assert missing(env, needed) == ["program bad is required and was not found on PATH"]


def test_two_requirements_become_one() -> None:
    """Each once, of devices the larger number."""
    one = Prerequisites(programs=("a", "b"), devices={"npu": 1, "gpu": 3})
    other = Prerequisites(programs=("b", "c"), devices={"npu": 2}, variables=("V",))
    expected = Prerequisites(
        programs=("a", "b", "c"), devices={"npu": 2, "gpu": 3}, variables=("V",)
    )
    assert one.joined(other) == expected
