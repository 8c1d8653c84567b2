"""What a step uses outside of its suite: what is identified, and what leaves a doubt."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tileyard.artifacts.digests import FileDigests
from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Step
from tileyard.workers.step_identity import StepIdentities, Surroundings

SCRIPT = "import helper\nprint(helper.NUMBER)\n"
TOOL = "/usr/bin/cat"
"""A program that starts no other and loads nothing."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A host in small: a suite, two folders of programs, a library, and the variables of a run's start."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def look(self, step: Step) -> Footprint:
        """What the step uses, looked at by a process that knows nothing yet."""
        suite = str(self / "suite")
        around = Surroundings(
            places={"suite": suite, "python": sys.executable}, cwd=suite, suite=suite, env={}
        )
        objects = ObjectStore(self / "objects")
        return StepIdentities(FileDigests(), objects).identify(step, around, self.environ)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """With programs ``tool``, ``script`` and ``sim``, and modules beside the suite's own."""
    for name in ("suite/inner", "bin", "later", "modules", "lib", "package"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(TOOL, tmp_path / "bin" / "tool")
    shutil.copy("/usr/bin/head", tmp_path / "later" / "tool")
    for name, text in {
        "bin/script": "#!/bin/sh\ntool\n",
        "bin/sim": "#!/bin/sh\necho 1.0\n",
        "later/launcher": "#!/usr/bin/env tool\n",
    }.items():
        write_program(tmp_path / name, text)
    (tmp_path / "bin" / "link").symlink_to("tool")
    (tmp_path / "suite" / "check.py").write_text(SCRIPT)
    (tmp_path / "suite" / "other.py").write_text("import inner.deep\n")
    (tmp_path / "suite" / "inner" / "deep.py").write_text("from . import deeper\n")
    (tmp_path / "suite" / "inner" / "deeper.py").write_text("NUMBER = 1\n")
    (tmp_path / "suite" / "data.txt").write_text("one\n")
    (tmp_path / "modules" / "helper.py").write_text("NUMBER = 1\n")
    environ = {
        "PATH": f"{tmp_path}/bin:{tmp_path}/later:/usr/bin:/bin",
        "PYTHONPATH": str(tmp_path / "modules"),
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "MODE": "sim",
        "SETTING": "ignored",
    }
    return Place(root=tmp_path, environ=environ)


def write_program(path: Path, text: str) -> None:
    """A script that can be run."""
    path.write_text(text)
    path.chmod(0o755)


def with_variable(place: Place, name: str, value: str | None) -> Place:
    """The same place, with a variable that has another value, or none."""
    rest = {key: text for key, text in place.environ.items() if key != name}
    return replace(place, environ=rest if value is None else {**rest, name: value})


def change_file(name: str) -> Callable[[Place], Place]:
    """Write something at the end of a file, and leave its times as they were."""

    def change(place: Place) -> Place:
        path, status = place / name, (place / name).stat()
        with path.open("ab") as file:
            file.write(b"\n# changed\n")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return place

    return change


def retarget(place: Place) -> Place:
    """Have a link lead to another program."""
    (place / "bin/link").unlink()
    (place / "bin/link").symlink_to("/usr/bin/head")
    return place


def put_in_front(place: Place) -> Place:
    """Have the other folder of programs be looked into first."""
    return with_variable(place, "PATH", f"{place.root}/later:{place.environ['PATH']}")


def add_module(place: Place) -> Place:
    """Put a module where it is found before another one of that name."""
    (place / "suite/helper.py").write_text("NUMBER = 2\n")
    return place


def new_version(place: Place) -> Place:
    """Have the simulator say that it is another one."""
    write_program(place / "bin/sim", "#!/bin/sh\necho 2.0\n")
    return place


def variable(name: str, value: str | None) -> Callable[[Place], Place]:
    """Give a variable another value, or none."""
    return lambda place: with_variable(place, name, value)


PYTHON = sys.executable
CHECK = Step(argv=(PYTHON, "check.py"))
VOUCHED = Step(argv=("sh", "-c", "script"), runs=("script", "tool"))
PLANTED = {
    "a program on PATH": (Step(argv=("tool",)), change_file("bin/tool")),
    "a program that a script runs": (VOUCHED, change_file("bin/tool")),
    "a script that a shell runs": (VOUCHED, change_file("bin/script")),
    "a script among the arguments": (
        Step(argv=("sh", "inner/deep.py"), runs=()),
        change_file("suite/inner/deep.py"),
    ),
    "the order of PATH": (Step(argv=("tool",)), put_in_front),
    "the interpreter of a script": (
        Step(argv=("launcher",), runs=()),
        change_file("bin/tool"),
    ),
    "where a link leads": (Step(argv=("link",)), retarget),
    "a declared variable": (Step(argv=("tool",), inherits=("MODE",)), variable("MODE", "npu")),
    "a declared variable that is gone": (
        Step(argv=("tool",), inherits=("MODE",)),
        variable("MODE", None),
    ),
    "a program that a variable names": (
        Step(argv=("cat",), inherits=("MODE",), env={}),
        variable("MODE", "tool"),
    ),
    "the locale": (Step(argv=("tool",)), variable("LANG", "de_DE.UTF-8")),
    "a locale that was not set": (Step(argv=("tool",)), variable("LC_ALL", "C")),
    "the time zone": (Step(argv=("tool",)), variable("TZ", "Asia/Tokyo")),
    "where libraries are looked for": (
        Step(argv=("tool",)),
        variable("LD_LIBRARY_PATH", "/usr/lib"),
    ),
    "the hash seed of Python": (CHECK, variable("PYTHONHASHSEED", "7")),
    "a module that a script imports": (CHECK, change_file("modules/helper.py")),
    "a module that a module imports": (
        Step(argv=(PYTHON, "other.py")),
        change_file("suite/inner/deeper.py"),
    ),
    "a module that is found first": (CHECK, add_module),
    "a file within an argument": (
        Step(argv=("tool", "--data={suite}/data.txt")),
        change_file("suite/data.txt"),
    ),
    "a file that a variable of the step names": (
        Step(argv=("tool",), env={"DATA": "{suite}/data.txt"}),
        change_file("suite/data.txt"),
    ),
    "the version that a simulator says": (
        Step(argv=("tool",), versions=(("sim", "--version"),)),
        new_version,
    ),
    "a simulator that says its version": (
        Step(argv=("sim", "x"), versions=(("sim", "--version"),)),
        new_version,
    ),
}


def mark(names: Mapping[str, tuple[Step, object]]) -> list[ParameterSet]:
    """Steps by their names; an interpreter that is asked takes a while."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if step.argv[0] == PYTHON else [])
        for name, (step, _) in names.items()
    ]


@pytest.mark.parametrize("name", mark(PLANTED))
def test_a_planted_change_is_seen(name: str, place: Place) -> None:
    """Before and after it the step is identified for certain, as something else; without one, the same."""
    step, change = PLANTED[name]
    before, same = place.look(step), place.look(step)
    after = change(place).look(step)
    assert before.doubts == same.doubts == after.doubts == []
    assert before.parts == same.parts
    assert before.parts != after.parts


def compile_program(place: Place, name: str, source: str, *options: str) -> None:
    """Compile a program, or a library, from C."""
    (place / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-o", str(place / name), str(place / f"{name}.c"), *options], check=True)


@pytest.mark.slow
def test_a_library_is_part_of_a_program(place: Place) -> None:
    """Where RUNPATH leads, also past another one in front; one that starts programs leaves a doubt."""
    compile_program(place, "lib/libit.so", "int it(void) { return 1; }", "-shared", "-fPIC")
    linked = (f"-L{place / 'lib'}", "-lit", f"-Wl,-rpath,{place / 'package'}:{place / 'lib'}")
    compile_program(place, "bin/main", "int it(void); int main(void) { return it(); }", *linked)
    step = Step(argv=("main",))
    before = place.look(step)
    shutil.copy(place / "lib/libit.so", place / "package/libit.so")
    change_file("package/libit.so")(place)
    shadowed = place.look(step)
    starting = '#include <stdlib.h>\nint it(void) { return system("tool"); }'
    compile_program(place, "package/libit.so", starting, "-shared", "-fPIC")
    assert before.doubts == shadowed.doubts == []
    assert before.parts != shadowed.parts
    assert "libit.so can start other programs (system)" in place.look(step).doubts[0]


DOUBTFUL = {
    "sh": (Step(argv=("sh", "-c", "tool")), "sh can start other programs"),
    "a script of sh": (Step(argv=("script",)), "sh can start other programs"),
    "env": (Step(argv=("env", "tool")), "env can start other programs"),
    "all variables": (Step(argv=("tool",), inherits_all=True, runs=()), "`inherit = true`"),
    "no program": (Step(argv=("gone",), runs=()), "there is no program gone"),
    "a version that is none": (
        Step(argv=("tool",), versions=(("false",),)),
        "`false` ended with exit code 1",
    ),
    "no version": (Step(argv=("tool",), versions=(("true",),)), "`true` prints nothing"),
    "a shell that says its version": (
        Step(argv=("sh", "-c", "tool"), versions=(("sh", "-c", "echo 1"),)),
        "sh can start other programs",
    ),
    "code from a pipe": (Step(argv=(PYTHON, "-")), "which code Python runs"),
}


@pytest.mark.parametrize("name", mark(DOUBTFUL))
def test_what_cannot_be_seen_leaves_a_doubt(name: str, place: Place) -> None:
    """The message names it, and how a step may vouch for it where it can."""
    step, said = DOUBTFUL[name]
    doubts = place.look(step).doubts
    assert len(doubts) == 1
    assert said in doubts[0]


@pytest.mark.slow
def test_what_a_step_does_not_get_decides_nothing(place: Place) -> None:
    """A variable neither declared nor usual, a program that it does not run, a module of that kind."""
    before = place.look(CHECK)
    changed = with_variable(place, "SETTING", "other")
    change_file("bin/sim")(place)
    change_file("suite/other.py")(place)
    assert changed.look(CHECK) == before
