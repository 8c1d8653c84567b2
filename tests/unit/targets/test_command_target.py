"""The target ``command``: builds with a program of the user's, in a cache that stays."""

import fcntl
import os
import threading
from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.manifest import Build
from tileyard.artifacts.objects import canonical_json
from tileyard.base.model import Elaborated, Kernel, Outcome
from tileyard.targets.base import Source
from tileyard.targets.command import target as command_target
from tileyard.targets.command.given import VARIABLE, StepSite
from tileyard.targets.command.target import BuildCommand, CommandTarget

pytestmark = pytest.mark.slow


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandTarget:
    """One whose caches lie in ``caches``; the suite's folder is ``tmp_path``."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    site = StepSite(suite=str(tmp_path), env={"FROM_TOOLCHAIN": "yes"})
    monkeypatch.setenv(VARIABLE, msgspec.json.encode(site).decode())
    made = CommandTarget()
    made.caches = tmp_path / "caches"
    return made


def build(target: CommandTarget, out: Path, *argv: str, **changes: object) -> Build:
    """The verdict on one build step, whose results lie in ``out/0/built``."""
    command = BuildCommand(argv=argv, cwd="{suite}")
    command = msgspec.structs.replace(command, **changes)
    kernel = Kernel(name="t", program=canonical_json(command))
    (verdict,) = target.build([Source(elaborated=Elaborated(kernel=kernel), options={})], out)
    return verdict


def shell(target: CommandTarget, out: Path, script: str, **changes: object) -> Build:
    """The verdict on a shell script, with its places as arguments."""
    return build(
        target, out, "sh", "-euc", script, "sh", "{out}", "{cache}", "{targets}", **changes
    )


def test_a_build_step_fills_a_folder(target: CommandTarget, tmp_path: Path) -> None:
    """It is told where, for what targets, and with how many threads."""
    script = 'out=$1; shift 2; echo "$*" {threads} "$PWD" $FROM_TOOLCHAIN $TMPDIR > $out/told'
    verdict = shell(target, tmp_path / "out", script, targets=("rows", "columns"))
    expected = ["rows", "columns", "3", str(tmp_path), "yes", str(tmp_path / "out/0/tmp")]
    told = (tmp_path / "out/0/built/told").read_text().split()
    assert (verdict.outcome, verdict.files, verdict.diagnostic) == (
        Outcome.PASSED,
        ("built/",),
        None,
    )
    assert told == expected
    assert not (tmp_path / "out/0/tmp").exists()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 7", "sh ended with exit code 7; no output"),
        ("echo no such file >&2; exit 1", "sh ended with exit code 1: no such file"),
        ("kill -KILL $$", "sh was killed by SIGKILL (Killed); no output"),
    ],
)
def test_a_build_that_fails_says_how(
    script: str, expected: str, target: CommandTarget, tmp_path: Path
) -> None:
    """Code or signal; arguments and folder where it said nothing. The log names them in any case."""
    verdict = shell(target, tmp_path / "out", script)
    assert verdict.outcome is Outcome.COMPILE_ERROR
    assert verdict.diagnostic is not None
    assert verdict.diagnostic.message.startswith(expected)
    assert verdict.printed.startswith("==== build: sh -euc ")
    assert f"==== in {tmp_path}\n" in verdict.printed


def test_a_place_that_means_nothing_is_a_failed_build(
    target: CommandTarget, tmp_path: Path
) -> None:
    """It names the place and the text."""
    verdict = build(target, tmp_path / "out", "echo", "{device}")
    assert verdict.outcome is Outcome.COMPILE_ERROR
    assert verdict.diagnostic is not None
    assert "{device}" in verdict.diagnostic.message


def test_a_build_that_complains_and_passes_is_flagged(
    target: CommandTarget, tmp_path: Path
) -> None:
    """What it wrote is in the log."""
    verdict = shell(target, tmp_path / "out", "echo deprecated >&2")
    assert verdict.outcome is Outcome.PASSED
    assert verdict.diagnostic is not None
    assert verdict.diagnostic.message == "build step wrote 1 line to stderr, kept in its log"
    assert "deprecated" in verdict.printed.splitlines()


def test_of_a_long_log_begin_and_end_are_kept(
    target: CommandTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log has to fit into a message."""
    monkeypatch.setattr(command_target, "LOG_BYTES", 2000)
    verdict = shell(target, tmp_path / "out", "yes | head -c 9000; echo the end")
    assert verdict.printed.startswith("==== build: ")
    assert "the end\n==== ended with exit code 0" in verdict.printed
    assert "bytes are left out here" in verdict.printed
    assert len(verdict.printed) < 2100


def test_without_a_step_nothing_is_built(target: CommandTarget, tmp_path: Path) -> None:
    """And no cache is made."""
    verdict = build(target, tmp_path / "out")
    assert (verdict.outcome, verdict.files) == (Outcome.PASSED, ())
    assert not target.caches.exists()


def test_the_cache_stays_from_build_to_build(target: CommandTarget, tmp_path: Path) -> None:
    """Whatever is selected and whatever has changed; another step has another one."""
    script = "touch $2/$3; ls $2 > $1/seen"
    for number, (targets, inputs) in enumerate([("a", "1"), ("b", "1"), ("c", "2")]):
        out = tmp_path / str(number)
        assert shell(target, out, script, targets=(targets,), inputs=inputs).printed
    other = shell(target, tmp_path / "other", f"{script}; true", targets=("d",))
    seen = [(tmp_path / n / "0/built/seen").read_text().split() for n in ("0", "1", "2", "other")]
    assert other.outcome is Outcome.PASSED
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"], ["d"]]


def test_a_cache_is_for_one_build_at_a_time(target: CommandTarget, tmp_path: Path) -> None:
    """Its lock is held for as long as the build runs, so who collects garbage waits, too."""
    for name in ("started", "go"):
        os.mkfifo(tmp_path / name)
    building = threading.Thread(
        target=shell, args=(target, tmp_path / "out", "echo > started; read line < go")
    )
    building.start()
    (tmp_path / "started").read_text()
    (path,) = target.caches.glob("*.lock")
    with path.open("w") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (tmp_path / "go").write_text("on\n")
        building.join()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert (target.caches / path.stem).is_dir()


def test_products_that_no_ninja_tells_of_are_taken_at_the_end(
    target: CommandTarget, tmp_path: Path
) -> None:
    """Those of each build that are there, under their names; of what is missing, its own build says so."""
    argv = ("sh", "-euc", "cd $1; mkdir -p bin; touch bin/a bin/b", "sh", "{cache}", "{targets}")
    commands = [
        BuildCommand(argv=argv, cwd="{suite}", targets=(name,), products=(f"bin/{name}",))
        for name in "abc"
    ]
    own, *others = map(canonical_json, commands)
    handed_over = {}
    target.hand_over = lambda program, folder: handed_over.update(
        {program: [path.name for path in folder.rglob("*")]}
    )
    source = Source(
        elaborated=Elaborated(kernel=Kernel(name="t", program=own)), together=tuple(others)
    )
    (tmp_path / "out" / "0").mkdir(parents=True)
    (verdict,) = target.build([source], tmp_path / "out")
    assert verdict.outcome is Outcome.PASSED
    assert (tmp_path / "out/0/built/bin/a").is_file()
    assert handed_over == {others[0]: ["bin", "b"]}

    missing = build(target, tmp_path / "alone", *argv, targets=("c",), products=("bin/c",))
    assert missing.outcome is Outcome.COMPILE_ERROR
    assert missing.diagnostic is not None
    assert missing.diagnostic.message == "build step: made no bin/c in {cache}"
