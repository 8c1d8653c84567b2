"""Whatever a case uses is changed, one thing at a time: the case runs again, and its neighbours do not."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.conftest import CommandLine
from tests.samples import IS_WHOLE

pytestmark = pytest.mark.slow

SUITE = """\
name   = "planted"
python = "venv/bin/python"
[parameters]
mode = ["sim", "npu"]

[[testcase]]
name = "program"
run  = { argv = ["tool", "{suite}/data.txt"], env = ["MODE", "LEVEL=1"] }
[[testcase]]
name = "link"
run  = ["link", "{suite}/other.txt"]
[[testcase]]
name = "shell"
run  = { argv = ["sh", "-c", "script {suite}/other.txt"], runs = ["script", "inner"] }
[[testcase]]
name = "launcher"
run  = { argv = ["launcher"], runs = [] }
[[testcase]]
name = "named"
run  = { argv = ["sh", "-c", '"$NAMED" {suite}/other.txt'], env = ["NAMED"], runs = [] }
[[testcase]]
name = "library"
run  = ["main"]
[[testcase]]
name = "simulator"
run  = { argv = ["sim", "x"], version = ["sim", "--version"] }
[[testcase]]
name = "sdk"
run  = { argv = ["link", "{suite}/other.txt"], version = ["sdk", "--version"] }
[[testcase]]
name = "files"
run  = { argv = ["link", "{suite}/argument.txt"], env = { DATA = "{suite}/variable.txt" } }
[[testcase]]
name = "python"
run  = ["{python}", "{suite}/script.py"]
[[testcase]]
name   = "golden"
golden = { argv = ["{python}", "golden.py", "{out}/want.bin"], inputs = ["seeds/*"] }
run    = ["{python}", "{suite}/copy.py", "want.bin", "got.bin"]
output = { file = "got.bin", golden = "want.bin", dtype = "uint8", shape = "4x1" }
[[testcase]]
name  = "build"
build = { argv = ["compiler", "built.c", "-o", "{out}/built"], inputs = ["built.c", "*.h"], runs = ["gcc"] }
run   = ["{build}/built"]
check = ["judge", "{suite}/other.txt"]
"""
FILES = {
    "data.txt": "1\n",
    "one.txt": "1\n",
    "other.txt": "1\n",
    "argument.txt": "1\n",
    "variable.txt": "1\n",
    "seeds/one": "1\n",
    "script.py": "import helper\nimport inner.deep\nimport pack\n",
    "copy.py": "import shutil\nimport sys\nshutil.copy(sys.argv[1], sys.argv[2])\n",
    "golden.py": "import sys\nimport numbers_of\nopen(sys.argv[1], 'wb').write(numbers_of.DATA)\n",
    "numbers_of.py": "DATA = b'1234'\n",
    "inner/deep.py": "from . import deeper\n",
    "inner/deeper.py": "NUMBER = 1\n",
    "modules/helper.py": "NUMBER = 1\n",
    "built.c": '#include "built.h"\nint main(void) { return ENDS; }\n',
    "built.h": "#define ENDS 0\n",
    "unused.py": "NUMBER = 1\n",
    "main.c": "int it(void);\nint main(void) { return it(); }\n",
    "packages/pack.py": "NUMBER = 1\n",
    "packages/pack-1.0.dist-info/METADATA": "Name: pack\nVersion: 1\n",
    "packages/pack-1.0.dist-info/RECORD": "pack.py,,\n",
    "suite.toml": SUITE,
}
PROGRAMS = {
    "script": "#!/bin/sh\ninner $1\n",
    "launcher": "#!/usr/bin/env reader\n",
    "sim": "#!/bin/sh\necho 1.0\n",
    "sdk": "#!/bin/sh\necho 1.0\n",
    "compiler": '#!/bin/sh\nexec gcc "$@"\n',
    "unused": "#!/bin/sh\n",
}
LIBRARY = "int it(void) { return %d; }\n"


FALSE = Path("/usr/bin/false")
ALL = frozenset(re.findall(r'^name +?= "(.+)"', SUITE.partition("[[")[2], re.MULTILINE))
IN_PYTHON = {"python", "golden"}
SAMPLE = ("a program on PATH", "a library", "the locale", "what a simulator says")
"""The changes that are planted where not all are asked for."""
CORE = min(os.sched_getaffinity(0))
SLOTS = ("--slots", "2")


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A change, and the testcases that it concerns. ``files`` have another content, a text or that of a file;
    None for a file that is gone. ``edits`` are replaced in the suite file, ``link`` is where ``bin/link``
    leads. In variables ``ROOT`` is the host.
    """

    concerns: Collection[str] = ALL
    files: Mapping[str, str | Path | None] = field(default_factory=dict)
    edits: Mapping[str, str] = field(default_factory=dict)
    link: str = "linked"
    variables: Mapping[str, str | None] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    @contextmanager
    def in_folder(self, root: Path) -> Iterator[None]:
        """Make the change, with times as they were; and undo it."""
        suite = SUITE
        for old, new in self.edits.items():
            assert old in suite
            suite = suite.replace(old, new)
        with ExitStack() as undone:
            for name, content in {**self.files, "suite.toml": suite}.items():
                undone.enter_context(replaced(root / name, root, content))
            relink(root, self.link)
            undone.callback(relink, root, "linked")
            yield


@contextmanager
def replaced(path: Path, root: Path, content: str | Path | None) -> Iterator[None]:
    """Have a file hold something else meanwhile."""
    before = (path.read_bytes(), path.stat()) if path.exists() else None
    if content is None:
        path.unlink()
    else:
        data = (root / content).read_bytes() if isinstance(content, Path) else content.encode()
        path.write_bytes(data)
        path.chmod(before[1].st_mode if before else 0o755)
        if before:
            os.utime(path, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
    yield
    path.unlink(missing_ok=True)
    if before:
        path.write_bytes(before[0])
        path.chmod(before[1].st_mode)


def relink(root: Path, to: str) -> None:
    """Have the link among the programs lead there."""
    (root / "bin/link").unlink(missing_ok=True)
    (root / "bin/link").symlink_to(to)


@dataclass(frozen=True)
class Host:
    """A host in small: a suite, programs and libraries, and the variables with which Tileyard is started."""

    cli: CommandLine
    variables: dict[str, str]

    def find_rerun(self, planted: Planted) -> set[str]:
        """The testcases that a run does not skip as proven while something is changed."""
        asked = ("test", "suite.toml", "--changed", "any", "--json")
        named = {**self.variables, **planted.variables}
        given = {n: t.replace("ROOT", str(self.cli.cwd)) for n, t in named.items() if t is not None}
        with planted.in_folder(self.cli.cwd):
            done = self.cli.run(*asked, *(planted.options or SLOTS), **given)
        assert done.returncode in (0, 1), done.stderr
        outcomes = {v["case"]: v["outcome"] for v in json.loads(done.stdout)["verdicts"]}
        assert len(outcomes) == len(ALL)
        return {case.partition("/")[0] for case, end in outcomes.items() if end != "skipped"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """All cases have passed once, and the next run skips them as proven."""
    root = tmp_path_factory.mktemp("host")
    for name in ("bin", "later", "empty", "lib", "first", "modules", "inner", "seeds"):
        (root / name).mkdir()
    venv.create(root / "venv", symlinks=True)
    (packages,) = (root / "venv/lib").glob("python*/site-packages")
    (root / "packages").symlink_to(packages)
    (packages / "pack-1.0.dist-info").mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    for name in ("tool", "reader", "inner", "named", "judge", "linked"):
        shutil.copy("/usr/bin/cat", root / "bin" / name)
    shutil.copy("/usr/bin/head", root / "later/tool")
    for name, text in PROGRAMS.items():
        (root / "bin" / name).write_text(text)
        (root / "bin" / name).chmod(0o755)
    relink(root, "linked")
    for number, made in enumerate(("lib/libit.so", "later/libit.so")):
        (root / "it.c").write_text(LIBRARY % number)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", root / made, root / "it.c"], check=True)
    found = (f"-L{root / 'lib'}", "-lit", f"-Wl,-rpath,{root / 'first'}:{root / 'lib'}")
    subprocess.run(["gcc", "-o", root / "bin/main", root / "main.c", *found], check=True)
    modules = filter(None, [str(root / "modules"), os.environ.get("PYTHONPATH")])
    made = Host(
        CommandLine(root),
        {
            "PATH": f"{root}/empty:{root}/bin:{root}/later:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(modules),
            "LANG": "C.UTF-8",
            "MODE": "plain",
            "NAMED": "named",
            "SETTING": "ignored",
        },
    )
    assert made.find_rerun(Planted()) == ALL
    assert made.find_rerun(Planted()) == set()
    return made


PLANTED = {
    "a program on PATH": Planted(concerns={"program"}, files={"bin/tool": FALSE}),
    "a program that is found first": Planted(concerns={"program"}, files={"empty/tool": FALSE}),
    "the order of PATH": Planted(
        concerns={"program"}, variables={"PATH": f"ROOT/later:ROOT/bin:{os.environ['PATH']}"}
    ),
    "where a link leads": Planted(concerns={"link", "sdk", "files"}, link="/usr/bin/head"),
    "what a link leads to": Planted(concerns={"link", "sdk", "files"}, files={"bin/linked": FALSE}),
    "a script that a shell runs": Planted(
        concerns={"shell"}, files={"bin/script": "#!/bin/sh\nfalse\n"}
    ),
    "a program that a script runs": Planted(concerns={"shell"}, files={"bin/inner": FALSE}),
    "a script": Planted(
        concerns={"launcher"}, files={"bin/launcher": "#!/usr/bin/env reader\n#\n"}
    ),
    "the interpreter of a script": Planted(concerns={"launcher"}, files={"bin/reader": FALSE}),
    "a declared variable": Planted(concerns={"program"}, variables={"MODE": "other"}),
    "a declared variable that is gone": Planted(concerns={"program"}, variables={"MODE": None}),
    "a variable that is set in the file": Planted(
        concerns={"program"}, edits={"LEVEL=1": "LEVEL=2"}
    ),
    "which program a variable names": Planted(concerns={"named"}, variables={"NAMED": "inner"}),
    "the program that a variable names": Planted(concerns={"named"}, files={"bin/named": FALSE}),
    "the locale": Planted(variables={"LANG": "C.utf8"}),  # no name that Python would replace
    "a locale that was not set": Planted(variables={"LC_ALL": "C"}),
    "the time zone": Planted(variables={"TZ": "Asia/Tokyo"}),
    "the home": Planted(variables={"HOME": "ROOT"}),
    "where libraries are looked for": Planted(variables={"LD_LIBRARY_PATH": "ROOT/empty"}),
    "the hash seed of Python": Planted(variables={"PYTHONHASHSEED": "7"}),
    "a library": Planted(concerns={"library"}, files={"lib/libit.so": Path("later/libit.so")}),
    "a library that is found first": Planted(
        concerns={"library"}, files={"first/libit.so": Path("later/libit.so")}
    ),
    "a library that is gone": Planted(concerns={"library"}, files={"lib/libit.so": None}),
    "what a simulator says": Planted(
        concerns={"simulator"}, files={"bin/sim": "#!/bin/sh\necho 2.0\n"}
    ),
    "what an SDK says": Planted(concerns={"sdk"}, files={"bin/sdk": "#!/bin/sh\necho 2.0\n"}),
    "a file within an argument": Planted(concerns={"files"}, files={"argument.txt": "2\n"}),
    "a file that a variable names": Planted(concerns={"files"}, files={"variable.txt": "2\n"}),
    "a script in Python": Planted(concerns={"python"}, files={"script.py": "import helper\n"}),
    "a module": Planted(concerns={"python"}, files={"modules/helper.py": "1 / 0\n"}),
    "a module of a module": Planted(concerns={"python"}, files={"inner/deeper.py": "1 / 0\n"}),
    "a module that is found first": Planted(concerns={"python"}, files={"helper.py": "1 / 0\n"}),
    "a module of a name of Python's own": Planted(
        concerns={"golden"}, files={"shutil.py": "1 / 0\n"}
    ),
    "a module that Python starts with": Planted(
        concerns=IN_PYTHON, files={"modules/sitecustomize.py": "NUMBER = 1\n"}
    ),
    "an installed package": Planted(concerns={"python"}, files={"packages/pack.py": "1 / 0\n"}),
    "another version of a package": Planted(
        concerns={"python"},
        files={"packages/pack-1.0.dist-info/METADATA": "Name: pack\nVersion: 2\n"},
    ),
    "a file that Python starts with": Planted(
        concerns=IN_PYTHON, files={"packages/late.pth": "import pack\n"}
    ),
    "the interpreter": Planted(
        concerns=IN_PYTHON, edits={'"venv/bin/python"': f'"{sys.executable}"'}
    ),
    "a golden script": Planted(
        concerns={"golden"},
        files={"golden.py": "import sys\nopen(sys.argv[1], 'wb').write(b'5678')\n"},
    ),
    "a module of a golden script": Planted(
        concerns={"golden"}, files={"numbers_of.py": "DATA = b'5678'\n"}
    ),
    "an input of a golden script": Planted(concerns={"golden"}, files={"seeds/one": "2\n"}),
    "one more input": Planted(concerns={"golden"}, files={"seeds/two": "2\n"}),
    "a comparison": Planted(concerns={"golden"}, edits={'"uint8"': '"int8"'}),
    "a source": Planted(concerns={"build"}, files={"built.c": "int main(void) { return 1; }\n"}),
    "a header": Planted(concerns={"build"}, files={"built.h": "#define ENDS 1\n"}),
    "a compiler on PATH": Planted(
        concerns={"build"}, files={"bin/compiler": '#!/bin/sh\nexec gcc -O2 "$@"\n'}
    ),
    "the option of a compiler": Planted(
        concerns={"build"}, edits={'"built.c", "-o"': '"built.c", "-O2", "-o"'}
    ),
    "a program that checks": Planted(concerns={"build"}, files={"bin/judge": FALSE}),
    "an argument": Planted(concerns={"program"}, edits={"{suite}/data.txt": "{suite}/one.txt"}),
    "a parameter": Planted(options=(*SLOTS, "--set", "mode=npu")),
    "a device in place of a slot": Planted(options=("--devices", f"cpu:cores={CORE}")),
}
UNRELATED = Planted(
    concerns=(),
    files={
        "unused.py": "NUMBER = 2\n",
        "new.py": "",
        "bin/unused": FALSE,
        "bin/new": FALSE,
        **FILES,
    },
    edits={"[[testcase]]": "# changed\n[[testcase]]"},
    variables={"SETTING": "other", "NEW": "1", "PATH": f"ROOT/bin:ROOT/later:{os.environ['PATH']}"},
)
"""What no case uses; and every file written anew, with what it held."""


@pytest.mark.parametrize("name", PLANTED if IS_WHOLE else SAMPLE)
def test_a_planted_change_is_never_proven(name: str, host: Host) -> None:
    """The cases that it concerns run again, all others are skipped as proven."""
    assert host.find_rerun(PLANTED[name]) == set(PLANTED[name].concerns)


def test_what_no_case_uses_proves_all_of_them(host: Host) -> None:
    """Files, programs and variables that are not theirs, times of files, comments."""
    assert host.find_rerun(UNRELATED) == set()
