"""Interpreter, kernel language and compiler, as they are and as they can fail to be."""

import importlib.metadata
import stat
from pathlib import Path

import msgspec
import pytest

from tileyard.base.settings import Settings
from tileyard.verbs.doctor.plan import checks
from tileyard.verbs.doctor.plan.checks import check_compiler, check_python, check_tilelang
from tileyard.verbs.doctor.plan.findings import Level, run_checks


def test_this_interpreter_will_do(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs the tests is new enough, and an older one would fail."""
    expected = [Level.OK, Level.FAIL]
    found = [next(check_python(settings)).level]
    monkeypatch.setattr(checks, "OLDEST_PYTHON", (99, 0))
    found.append(next(check_python(settings)).level)
    assert found == expected


def test_tilelang_is_there_in_the_pinned_version(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version and none at all are warnings that say what to install."""
    levels = [next(check_tilelang(settings)).level]
    monkeypatch.setattr(checks, "find_version", lambda _: "0.0.1")
    other = next(check_tilelang(settings))
    monkeypatch.setattr(checks, "find_version", lambda _: "")
    none = next(check_tilelang(settings))
    expected = [Level.OK, Level.WARN, Level.WARN]
    assert [*levels, other.level, none.level] == expected
    assert other.todo == f"pip install tilelang=={importlib.metadata.version('tilelang')}"
    assert none.todo == "pip install './tileyard[tilelang]' beside the checkout"


@pytest.mark.slow
def test_the_compiler_builds_something(settings: Settings) -> None:
    """Its name and version are told."""
    finding = next(check_compiler(settings))
    expected = Level.OK
    assert finding.level is expected, finding.message


@pytest.mark.slow
def test_a_compiler_that_cannot_link_fails(settings: Settings, tmp_path: Path) -> None:
    """Its last line is shown: preprocessing alone is not enough."""
    script = tmp_path / "half-cc"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *-shared*) echo "no crti.o" >&2; exit 1;; esac\nexec cc "$@"\n',
        encoding="ascii",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    finding = next(check_compiler(msgspec.structs.replace(settings, cc=str(script))))
    expected = "cannot build a shared object: no crti.o"
    assert finding.level is Level.FAIL
    assert finding.message.endswith(expected)


def test_a_compiler_that_is_not_there_fails(settings: Settings) -> None:
    """The message names what was asked for."""
    asked = msgspec.structs.replace(settings, cc="no-such-cc")
    (finding,) = run_checks([("C compiler", check_compiler)], asked).findings
    expected = (Level.FAIL, "the C compiler 'no-such-cc' is not on this machine")
    assert (finding.level, finding.message) == expected
