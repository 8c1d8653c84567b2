"""What a suite or toolchain requires of a host, and what of that is missing."""

from pathlib import Path

import pytest

from tileyard.artifacts.prerequisites import Prerequisites, VersionNeed, find_missing


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
