"""Hostile or broken input: one line that names it and exit status 2, never a traceback or a hang."""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.conftest import CommandLine
from tests.endings import has_ended

from tileyard.artifacts.bundle_file import Kind
from tileyard.artifacts.bundles import Packing, write_bundle
from tileyard.artifacts.copying import remove_folder
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.cli.entry import run

pytestmark = pytest.mark.slow

GOOD = """
name = "s"
run = ["sh", "-c", "true"]
[[testcase]]
name = "t"
case = [{ name = "a" }]
"""
DEEP = 20_000
"""More levels than any decoder follows."""


def write(path: Path, text: str) -> Path:
    """A file with a text."""
    path.write_text(text, encoding="utf-8")
    return path


def refuse(cli: CommandLine, *arguments: str) -> str:
    """The one line that a command says of what it refuses."""
    done = cli.run(*arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    return done.stderr.replace(f"{cli.cwd}/", "")


def refuse_here(cli: CommandLine, *arguments: str) -> str:
    """The one line that a command says of what it refuses, in this process, without an engine."""
    done = cli.run_here(*arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    return done.stderr.replace(f"{cli.cwd}/", "")


def refuse_suite(cli: CommandLine, expected: str, *options: str, is_first: bool = True) -> None:
    """Hold the suite to be refused by its planner and by the engine, which reads it likewise: the first."""
    assert expected in refuse_here(cli, "plan", "suite.toml", *options)
    if is_first:
        assert expected in refuse(cli, "test", "suite.toml", *options)


# ---- nesting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (
            "x = " + "[" * DEEP + "]" * DEEP,
            "suite.toml: is not valid TOML: it is nested too deeply",
        ),
        ("vars" + ".a" * 1000 + " = 1", "suite.toml: is not valid TOML: it is nested too deeply"),
        ("vars.x = " + "1" * 5000, "suite.toml: is not valid TOML: Exceeds the limit"),
        (
            'list = ["cat", "deep.json"]',
            "suite.toml:1: list: line 1 of what it printed: is not JSON",
        ),
    ],
    ids=["lists", "keys", "digits", "list"],
)
def test_a_suite_that_is_nested_too_deeply(cli: CommandLine, extra: str, expected: str) -> None:
    """It is refused by the line that says so, by all who read it."""
    write(cli.cwd / "suite.toml", f"{extra}\n{GOOD}")
    write(cli.cwd / "deep.json", '{"name":' * DEEP)
    refuse_suite(cli, expected, is_first=extra.startswith(("x", "list")))


@pytest.mark.parametrize("text", ["[" * DEEP, '{"a":' * DEEP, '{"t::a": ' + "1" * 5000 + "}"])
def test_a_file_of_durations_that_is_nested_too_deeply(cli: CommandLine, text: str) -> None:
    """It is refused by its name."""
    write(cli.cwd / "suite.toml", GOOD)
    write(cli.cwd / "times.json", text)
    options = ("--durations", "times.json")
    refuse_suite(cli, "times.json:1: is", *options, is_first=text.startswith("["))


def test_declarations_that_are_nested_too_deeply(cli: CommandLine) -> None:
    """A file of devices is refused by its name, also by a lease, which has a code of its own."""
    write(cli.cwd / "tileyard.toml", "x = " + "[" * DEEP + "]" * DEEP)
    expected = "tileyard.toml: is not valid TOML: it is nested too deeply"
    assert expected in refuse_here(cli, "devices")
    leased = cli.run_here("lease", "--", "true")
    assert expected in leased.stderr
    assert "Traceback" not in leased.stderr


def test_memory_of_a_suite_that_is_nested_too_deeply(cli: CommandLine) -> None:
    """What a run remembers of a suite is passed over where it cannot be read."""
    write(cli.cwd / "suite.toml", GOOD)
    assert cli.run("test", "suite.toml").returncode == 0
    (remembered,) = (cli.home / "suites").iterdir()
    write(remembered, "[" * DEEP)
    done = cli.run("test", "suite.toml")
    assert done.returncode == 0, done.stderr


# ---- durations ----------------------------------------------------------------------------------

ENDLESS = "9" * 309
"""Seconds that no float holds."""


@pytest.mark.parametrize("time", [ENDLESS, f"{ENDLESS}h", "1e308", "1e400", "inf", "nan", "-1"])
def test_an_endless_duration_on_the_command_line(cli: CommandLine, time: str) -> None:
    """Every option that takes a time refuses it."""
    write(cli.cwd / "suite.toml", GOOD)
    for arguments in (
        ("test", "suite.toml", f"--budget={time}"),
        ("test", "suite.toml", f"--split={time}"),
        ("plan", "suite.toml", f"--startup={time}"),
        ("ci", "matrix", "suite.toml", f"--max-time={time}"),
        ("devices", f"--window={time}"),
        ("lease", f"--run-limit={time}", "--", "true"),
        ("lease", f"--queue-limit={time}", "--", "true"),
        ("history", f"--since={time}"),
    ):
        assert time[:40] in refuse_here(cli, *arguments)


@pytest.mark.parametrize("time", ["1e308", "inf", "nan", "-1", "1e400"])
def test_an_endless_duration_in_a_file(cli: CommandLine, time: str) -> None:
    """Suites, declarations and tables of durations are refused by file and line."""
    for text, expected in (
        (f"limits.run_s = {time}\n{GOOD}", "suite.toml:1: limits.run_s: must be a number"),
        (f"{GOOD}\n[policies.p]\nbudget_s = {time}", "suite.toml:9: policies.p.budget_s: must be"),
        (
            GOOD.replace(
                'run = ["sh", "-c", "true"]', f'run = {{ argv = ["true"], limit_s = {time} }}'
            ),
            "run.limit_s: must be",
        ),
    ):
        write(cli.cwd / "suite.toml", text)
        refuse_suite(cli, expected, is_first=time == "nan")
    write(cli.cwd / "suite.toml", GOOD)
    write(cli.cwd / "times.csv", f"testcase,seconds\nt,{time}\n")
    expected = f"times.csv:2: seconds: '{time}' is not a number of seconds"
    refuse_suite(cli, expected, "--durations", "times.csv", is_first=time == "nan")
    queue = (
        f'[[queue]]\nname = "q"\nsubmit = ["{{command}}"]\ndevice = "cpu:0"\nidentity = "x"\n'
        f"queue_limit_s = {time}"
    )
    write(cli.cwd / "tileyard.toml", queue)
    assert "tileyard.toml: queue 'q': `queue_limit_s` is not above 0" in refuse_here(cli, "devices")


# ---- the working directory ----------------------------------------------------------------------


def run_nowhere(cli: CommandLine, *arguments: str) -> tuple[int, list[str]]:
    """Exit status and lines on standard error of a command whose working directory is removed."""
    (cli.cwd / "gone").mkdir()
    done = subprocess.run(
        [
            "sh",
            "-c",
            'rmdir "$PWD" && exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "tileyard",
            *arguments,
        ],
        cwd=cli.cwd / "gone",
        env=cli.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def run_nowhere_here(
    cli: CommandLine, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[str]]:
    """The same in this process."""
    gone = cli.cwd / "gone"
    gone.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        for name, text in cli.environment().items():
            patched.setenv(name, text)
        patched.setattr(sys, "argv", ["tileyard", *arguments])
        patched.chdir(gone)
        gone.rmdir()
        with pytest.raises(SystemExit) as ended:
            run()
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err.splitlines()


def test_a_working_directory_that_is_gone(
    cli: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command says so in one line; help is still given."""
    suite = str(write(cli.cwd / "suite.toml", GOOD))
    expected = ["tileyard: the working directory no longer exists (change to one that does)"]
    for arguments in (
        ("test", suite),
        ("plan", suite),
        ("trials",),
        ("devices",),
        ("doctor",),
        ("lease", "--", "true", "--help"),
        ("exec", suite, "--help"),
        ("ci", "matrix", suite, "--jobs", "2"),
        ("cache", "gc", "--keep-days", "1"),
    ):
        assert run_nowhere_here(cli, capsys, *arguments) == (2, expected), arguments
    for arguments in (("--help",), ("test", "--help"), ("lease", "--help"), ("exec", "--help")):
        assert run_nowhere_here(cli, capsys, *arguments) == (0, []), arguments
    assert run_nowhere(cli, "test", suite) == (2, expected)
    assert run_nowhere(cli, "test", "--help") == (0, [])


# ---- names of inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/**/", "it covers the whole file system: name a folder"),
        ("/*/*", "it covers the whole file system: name a folder"),
        ("/", "it covers the whole file system: name a folder"),
        ("../../../../../../../../../../**", "it covers the whole file system: name a folder"),
        ("a/**b", "** matches folders, and must be a part of its own"),
        ("*/../..", "there must be no .. behind a *, ? or ["),
        ("/proc/*/mem", "nothing is stored in /proc"),
    ],
)
def test_inputs_that_name_too_much(cli: CommandLine, pattern: str, expected: str) -> None:
    """A pattern that would walk the whole file system, or that means nothing, is refused by its line."""
    build = f'build = {{ argv = ["true"], inputs = ["{pattern}"] }}'
    write(cli.cwd / "suite.toml", f"{build}\n{GOOD}")
    said = f"suite.toml:1: build.inputs[0]: {expected}"
    refuse_suite(cli, said, is_first=pattern == "/**/")


# ---- what steps leave, and what inputs hold -----------------------------------------------------

LEAVE = """
import os, sys
kind, folder = sys.argv[1:]
os.chdir(folder)
match kind:
    case "fifo": os.mkfifo("left")
    case "circle": os.symlink("b", "a"), os.symlink("a", "b")
    case "sparse": open("left", "wb").truncate(4 << 40)
    case "deep" | "long":
        for _ in range(1500):
            name = "d" if kind == "deep" else "d" * 200
            os.mkdir(name), os.chdir(name)
"""
KINDS = ("fifo", "circle", "sparse", "deep", "long")
WHY = {
    "fifo": "'left' is neither a file, a directory nor a link",
    "circle": "the link 'a' leads in a circle",
    "sparse": "'left' has 4,398,046,511,104 bytes, nearly all of them holes",
    "deep": "the path 'd/d/d/",
    "long": "the path 'dddd",
}
"""The message for each of these."""


def run_cases(cli: CommandLine, steps: Mapping[str, str]) -> dict[str, dict[str, tuple[str, str]]]:
    """Outcome and message of each case of a suite that has one for each of these, by step."""
    write(cli.cwd / "leave.py", LEAVE)
    testcases = "".join(
        f'[[testcase]]\nname = "{step}_{kind}"\nvars.kind = "{kind}"\n'
        f'{lines}\ncase = [{{ name = "c" }}]\n'
        for step, lines in steps.items()
        for kind in KINDS
    )
    limits = "limits = { golden_s = 20, run_s = 20 }"
    write(cli.cwd / "suite.toml", f'name = "s"\n{limits}\nvars.kind = ""\n{testcases}')
    verdicts = cli.run_json("test", "suite.toml")["verdicts"]
    assert not list((cli.home / "tmp").glob("*"))
    assert cli.run_here("cache", "gc", "--max-size", "0").returncode == 0
    ends = {v["case"].split("/")[0]: (v["outcome"], v["message"]) for v in verdicts}
    return {step: {kind: ends[f"{step}_{kind}"] for kind in KINDS} for step in steps}


def leave(place: str) -> str:
    """A step that leaves one of these in a place, in TOML."""
    return f'["{{python}}", "{{suite}}/leave.py", "{{kind}}", "{{{place}}}"]'


def test_what_steps_leave(cli: CommandLine) -> None:
    """What a golden or build step leaves and cannot be kept fails its case, which says so, and nothing stays.
    A run or check step may leave what it likes: its folder is not kept, and can be collected.
    """
    run = 'run = ["true"]\n'
    steps = {
        "golden": f"{run}golden = {leave('out')}",
        "build": f"{run}build = {leave('out')}",
        "run": f"run = {leave('work')}",
        "check": f"{run}check = {leave('work')}",
    }
    found = run_cases(cli, steps)
    for step, outcome in (("golden", "runtime_error"), ("build", "compile_error")):
        for kind, (ended, message) in found[step].items():
            assert ended == outcome
            assert message.startswith(f"{step} step: left what cannot be kept: {WHY[kind]}")
    for step in ("run", "check"):
        assert {outcome for outcome, _ in found[step].values()} == {"passed"}


def test_an_output_that_is_a_pipe(cli: CommandLine) -> None:
    """It is not a file, also where nothing was expected in it: nobody waits for a writer."""
    write(
        cli.cwd / "suite.toml",
        """
        name = "s"
        dtype = "float32"
        golden = ["sh", "-c", "touch {out}/g"]
        run = ["mkfifo", "o"]
        output = { file = "o", golden = "g", shape = "0" }
        [[testcase]]
        name = "t"
        case = [{ name = "a" }]
        """,
    )
    (verdict,) = cli.run_json("test", "suite.toml")["verdicts"]
    assert (verdict["outcome"], verdict["message"]) == (
        "mismatch",
        "output o is not a file, 0 were expected (0 float32)",
    )


def test_inputs_that_hold_such_things(cli: CommandLine) -> None:
    """Files that are too large to be read fail the case; what is not a file counts for nothing."""
    write(cli.cwd / "leave.py", LEAVE)
    for kind in KINDS:
        (cli.cwd / kind).mkdir()
        subprocess.run([sys.executable, cli.cwd / "leave.py", kind, cli.cwd / kind], check=True)
    lines = 'run = { argv = ["true"], inputs = ["{kind}"] }'
    found = run_cases(cli, {"inputs": lines})["inputs"]
    remove_folder(cli.cwd / "long")  # pytest could not
    remove_folder(cli.cwd / "deep")
    outcomes = {kind: outcome for kind, (outcome, _) in found.items()}
    assert outcomes == {
        "fifo": "passed",
        "circle": "passed",
        "sparse": "runtime_error",
        "deep": "runtime_error",
        "long": "runtime_error",
    }
    assert "nearly all of them holes" in found["sparse"][1]
    assert "its folders are nested too deeply" in found["deep"][1]
    assert "File name too long" in found["long"][1]


# ---- programs that list cases -------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "; sleep 600"])
def test_a_daemon_of_the_program_that_lists_cases(cli: CommandLine, ending: str) -> None:
    """What it leaves with its output open delays nobody, and is ended, also without session and variables."""
    script = f'env -i setsid sleep 600 & echo $! > daemon; echo "{{\\"name\\": \\"b\\"}}"{ending}'
    write(cli.cwd / "list.sh", script)
    listed = GOOD.replace("case = ", 'list = { argv = ["sh", "list.sh"], limit_s = 2 }\ncase = ')
    write(cli.cwd / "suite.toml", listed)
    for run_it in (cli.run, cli.run_here):
        done = run_it("test" if run_it == cli.run else "plan", "suite.toml")
        assert done.returncode == (2 if ending else 0), done.stderr
        assert ("list: ran past its limit of 2 s" in done.stderr) == bool(ending)
        assert has_ended(int((cli.cwd / "daemon").read_text()), 10.0)


def test_a_program_that_lists_without_end(cli: CommandLine) -> None:
    """It is ended long before its limit, and nothing of what it printed is read."""
    write(cli.cwd / "suite.toml", f'list = ["yes"]\n{GOOD}')
    assert "suite.toml:1: list: printed more than 256 MiB: yes" in refuse(cli, "plan", "suite.toml")


# ---- the store ----------------------------------------------------------------------------------


RECORDS = ("x'ff00'", "'text'", "7", "'[' || zeroblob(9)")
"""What no record is, in SQL."""
COLUMNS = (
    "run_s = 'soon'",
    "run_s = 9e999",
    "case_id = x'2f00'",
    "case_id = cast(x'2fff' as text)",
)
"""What no attempt has, in SQL."""


def write_cases(cli: CommandLine, count: int) -> None:
    """A suite of so many cases that pass."""
    cases = ", ".join(f'{{ name = "{number}" }}' for number in range(count))
    write(cli.cwd / "suite.toml", GOOD.replace('{ name = "a" }', cases))


def change_store(cli: CommandLine, *statements: str) -> None:
    """Carry out some SQL on the store of a home."""
    with contextlib.closing(sqlite3.connect(cli.home / "store.db")) as database, database:
        for statement in statements:
            database.execute(statement)


def test_records_that_cannot_be_read(cli: CommandLine) -> None:
    """They are passed over, and the commands that would have shown them say so."""
    write_cases(cli, len(RECORDS) + 1)
    assert cli.run("test", "suite.toml").returncode == 0
    (whole, *broken) = json.loads(cli.run_here("trials", "--json").stdout)
    changes = zip(RECORDS, broken, strict=True)
    change_store(
        cli, *(f"update trials set record = {r} where id = '{t['id']}'" for r, t in changes)
    )
    row = f"tileyard: skipped what cannot be read: 1 row of {cli.home}/store.db"
    rows = row.replace("1 row", f"{len(RECORDS)} rows")
    listed = cli.run_here("trials", "--json")
    assert [trial["id"] for trial in json.loads(listed.stdout)] == [whole["id"]]
    assert listed.stderr.splitlines() == [rows]
    for trial in broken:
        shown = cli.run_here("show", trial["id"])
        assert (shown.returncode, shown.stderr.splitlines()[0]) == (2, row)
    for command in ("history", "plan suite.toml"):
        done = cli.run_here(*command.split())
        assert done.returncode == 0, done.stderr
    for changed in ((), ("--changed", "any")):
        done = cli.run("test", "suite.toml", *changed)
        assert done.returncode == 0, done.stderr


def test_columns_that_make_no_sense(cli: CommandLine) -> None:
    """The commands that expect times of rows pass these over, and say so."""
    write_cases(cli, len(COLUMNS) + 1)
    assert cli.run("test", "suite.toml").returncode == 0
    change_store(
        cli,
        *(
            f"update suite_trials set {column} where case_id = 't/{number}'"
            for number, column in enumerate(COLUMNS)
        ),
    )
    said = f"skipped what cannot be read: {len(COLUMNS)} rows of {cli.home}/store.db"
    ended = [cli.run_here(*command.split()) for command in ("history", "plan suite.toml")]
    for done in (*ended, cli.run("test", "suite.toml")):
        assert done.returncode == 0, done.stderr
        assert said in done.stdout + done.stderr


@pytest.mark.parametrize("is_empty", [False, True], ids=["missing", "empty"])
def test_a_store_is_rebuilt_from_its_streams(cli: CommandLine, is_empty: bool) -> None:
    """Whatever command comes first rebuilds it, and says how many lines could not be read."""
    write(cli.cwd / "suite.toml", GOOD)
    assert cli.run("test", "suite.toml").returncode == 0
    before = json.loads(cli.run_here("trials", "--json").stdout)
    for file in cli.home.glob("store.db*"):
        file.unlink()
    if is_empty:
        write(cli.home / "store.db", "")
    (stream,) = (cli.home / "runs").iterdir()
    with stream.open("ab") as file:
        file.write(b"nonsense\n\xff\n" + b"[" * DEEP + b"\n")
    os.mkfifo(cli.home / "runs" / "pipe.jsonl")
    listed = cli.run_here("trials", "--json")
    assert json.loads(listed.stdout) == before
    said = f"tileyard: skipped what cannot be read: 3 lines of {cli.home}/runs"
    assert listed.stderr.splitlines() == [said]
    assert cli.run_here("trials").stderr == ""
    assert cli.run_here("cache", "gc", "--keep-days", "0", "--dry-run").returncode == 0


# ---- bundles ------------------------------------------------------------------------------------


def pack(folder: Path, kind: Kind, details: str, cases: bytes, name: str = "bad.tyb") -> Path:
    """A bundle that is whole, of a tree with one file."""
    objects = ObjectStore(folder / "elsewhere" / "objects")
    content = folder / "content"
    content.mkdir(exist_ok=True)
    write(content / "file", "text")
    tree = Trees(objects).put(content)
    path = folder / name
    packing = Packing(kind=kind, commit="abc", trees=(tree,), details=details)
    write_bundle(packing, objects, path, cases)
    return path


LAYOUT = '{"programs": ["bin"], "python": [], "libraries": []}'


@pytest.mark.parametrize(
    ("kind", "command", "bad"),
    [
        (
            "selection",
            ("test", "--from"),
            (
                ("", b"{}", "the bundle holds no suite"),
                ("", b'{"x":' * DEEP, "the bundle holds no suite: it is nested too deeply"),
            ),
        ),
        (
            "toolchain",
            ("test", "suite.toml", "--toolchain"),
            (
                (LAYOUT, b"", "is not a sound toolchain"),
                ("{}", b"", "is not a sound toolchain: its manifest is invalid"),
            ),
        ),
    ],
    ids=["selection", "toolchain"],
)
def test_a_refused_bundle_leaves_nothing(
    cli: CommandLine,
    kind: Kind,
    command: tuple[str, ...],
    bad: tuple[tuple[str, bytes, str], ...],
) -> None:
    """Whatever is wrong with it, and however late that shows: nothing of it is in the data directory."""
    write(cli.cwd / "suite.toml", GOOD)
    cut = "cut.tyb is not a sound bundle: it is cut off"
    asked = [((*command, "cut.tyb"), cut)]
    for number, (details, cases, expected) in enumerate(bad):
        path = pack(cli.cwd, kind, details, cases, f"bad{number}.tyb")
        asked.append(((*command, path.name), expected))
    write(cli.cwd / "cut.tyb", "").write_bytes(path.read_bytes()[:-20])
    asked.append(((*command, path.name, "--commit", "fff"), "commit: fff is needed, found abc"))
    for arguments, reason in asked:
        assert reason in refuse(cli, *arguments)
        assert {path.name for path in cli.home.rglob("*")} <= {".gitignore"}, arguments
    assert cut in refuse_here(cli, "bundle", "--inspect", "cut.tyb")
    assert {path.name for path in cli.home.rglob("*")} <= {".gitignore"}


def test_a_toolchain_that_does_not_say_what_it_is(cli: CommandLine) -> None:
    """To look at it is refused in one line."""
    pack(cli.cwd, "toolchain", "{}", b"")
    done = cli.run_here("bundle", "--inspect", "bad.tyb")
    expected = "tileyard: bad.tyb is not a sound toolchain: its manifest is invalid"
    assert (done.returncode, done.stderr.splitlines()) == (2, [expected])


# ---- what is shown ------------------------------------------------------------------------------

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202egnp\x7f"
"""What a terminal would obey: an escape sequence, a C1 control, a change of direction, DEL."""
SEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_nothing_that_is_shown_is_obeyed(cli: CommandLine) -> None:
    """No command passes on what a terminal obeys: of logs, of messages, of names, of what a user wrote."""
    write(cli.cwd / "hostile", f"{HOSTILE}\tand\nmore\n")
    failing = GOOD.replace('"true"]', '"cat {suite}/hostile; cat {suite}/hostile >&2; exit 3"]')
    write(cli.cwd / "suite.toml", failing)
    write(cli.cwd / "bad.toml", f'name = "s"\n"{HOSTILE!a}\\u001b[31m" = 1\n'.replace("'", ""))
    write(cli.cwd / f"{HOSTILE}.toml", 'name = "s"\nnonsense = 1\n')
    reports = ("--junit", "junit.xml", "--json")
    told = cli.run("test", "suite.toml", *reports)
    run = json.loads(told.stdout)["run"]
    ElementTree.parse(cli.cwd / "junit.xml")
    of_processes = (
        ("test", "suite.toml"),
        ("test", "bad.toml"),
        ("test", f"{HOSTILE}.toml"),
        ("test", HOSTILE),
        ("run-artifact", HOSTILE),
        ("tune", f"{HOSTILE}.toml"),
        ("exec", HOSTILE),
        ("doctor",),
    )
    of_ours = (
        ("plan", f"{HOSTILE}.toml"),
        ("plan", "suite.toml", "--select", HOSTILE),
        ("trials",),
        ("trials", "--json"),
        ("trials", "--outcome", HOSTILE),
        ("show", f"{run}.1"),
        ("show", f"{run}.1", "--json"),
        ("show", HOSTILE),
        ("history", "--tail"),
        ("inspect", HOSTILE),
        ("bundle", "--inspect", f"{HOSTILE}.toml"),
        ("lease", f"--{HOSTILE}", "--", "true"),
        ("devices", "--window", HOSTILE),
        (HOSTILE,),
    )
    ended = [told, *(cli.run(*arguments) for arguments in of_processes)]
    for done in (*ended, *(cli.run_here(*arguments) for arguments in of_ours)):
        assert "Traceback" not in done.stderr, done.stderr
        assert not SEEN.search(done.stdout + done.stderr), (done.args, done.stdout, done.stderr)
    shown = cli.run_here("show", f"{run}.1").stdout
    assert "\\x1b]0;owned\\x07\\x9b31m\\u202egnp\\x7f" in shown
    assert "and\nmore\n" in shown


def test_a_name_that_looks_like_markup(cli: CommandLine) -> None:
    """Names of cases are shown as they are, also where they look like styles of a terminal."""
    write(cli.cwd / "suite.toml", GOOD.replace('"a"', '"a[/b][red]"'))
    assert cli.run("test", "suite.toml").returncode == 0
    for command in ("trials", "plan suite.toml", "history --tail"):
        done = cli.run_here(*command.split())
        assert done.returncode == 0, done.stderr
    assert "t/a[/b][red]" in cli.run_here("trials").stdout
