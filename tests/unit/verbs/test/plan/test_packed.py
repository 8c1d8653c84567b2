"""A suite as it travels: other folders, other Pythons, the files of late steps, and no others."""

import sys
from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.errors import BundleError, DamagedError
from tileyard.base.model import BuildKey, Case, CommandWork, Digest, GoldenKey, HotRun, Step
from tileyard.engine.hosting import StepHost
from tileyard.engine.programs import Programs, ProgramSite
from tileyard.targets.command.given import StepSite
from tileyard.verbs.test.plan.packed import PackedSuite, find_packed, pack_suite, unpack_suite
from tileyard.verbs.test.result.result import Rule, Suite, SuiteCase
from tileyard.workers.protocol import CommandRun, Golden, RunEntry

TREE = Digest("ab" * 20)


def make_suite(folder: Path) -> Suite:
    """Two cases whose steps name files; the folder and the Python stand in their texts."""
    for name in (
        "build.sh",
        "golden.py",
        "check.py",
        "hot.py",
        "rules.txt",
        "data/a.txt",
        "data/deep/b.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"this is {name}")
    work = CommandWork(
        build=Step(argv=("sh", f"{folder}/build.sh")),
        golden=Step(argv=(sys.executable, f"{folder}/golden.py")),
        run=Step(argv=("{build}/rows", f"{folder}/data/a.txt"), inputs=(f"{folder}/data",)),
        check=Step(
            argv=(sys.executable, f"{folder}/check.py", f"--rules={folder}/rules.txt"),
            inputs=("/etc/hostname",),
        ),
        hot=HotRun(step=Step(argv=(f"{folder}/hot.py",)), began="b", ended="e", verdicts={}),
    )
    cases = tuple(SuiteCase(testcase="t", name=name, work=work) for name in ("a", "b"))
    other = CommandWork(run=Step(argv=("sh", f"{folder}/build.sh")))
    cases = (*cases, SuiteCase(testcase="t", name="other", work=other))
    path = str(folder / "suite.toml")
    skip = tuple(Rule(cases=f"t/{glob}", reason="r") for glob in ("a", "b*", "gone"))
    return Suite(name="s", path=path, folder=str(folder), cases=cases, skip=skip)


def entry(case: str, folder: Path) -> RunEntry:
    """What a runner would have been given."""
    run = Step(argv=("{build}/rows", f"{folder}/data/a.txt"))
    return RunEntry(
        case=case,
        build=BuildKey("b" * 40),
        golden=Golden(key=GoldenKey("c" * 40), inputs=(), outputs=(), tree=TREE),
        specs=(),
        scalars=(),
        log="logs/r/t/a.log",
        command=CommandRun(name="a", run=run, folder="/gone/work/r/t/a"),
    )


def pack(folder: Path, objects: ObjectStore, *cases: str) -> bytes:
    """The text of the suite with these cases built."""
    entries = {case: entry(case, folder) for case in cases}
    return pack_suite(make_suite(folder), entries, dict.fromkeys(cases, "command"), objects)


def test_only_what_was_built_is_packed(tmp_path: Path, objects: ObjectStore) -> None:
    """With its entry and the target that it was built for."""
    packed = unpack_suite(pack(tmp_path / "suite", objects, "t/b"), objects)
    expected = ["t/b"]
    assert [case.id for case in packed.suite.cases] == expected
    assert list(packed.entries) == expected
    assert packed.targets == {"t/b": "command"}
    assert [rule.cases for rule in packed.suite.skip] == ["t/b*"], "others would seem mistaken"


def test_files_of_run_and_check_steps_travel(tmp_path: Path, objects: ObjectStore) -> None:
    """Not those of build and golden steps, whose results do, nor any from outside, nor of other cases."""
    packed = unpack_suite(pack(tmp_path / "suite", objects, "t/a"), objects)
    root = Trees(objects).path(packed.files)
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert found == {"check.py", "rules.txt", "hot.py", "data/a.txt", "data/deep/b.txt"}
    assert (root / "check.py").read_text() == "this is check.py"


def test_paths_are_those_of_the_machine_that_opens_it(
    tmp_path: Path, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text names neither the folder nor the Python of the one that packed it."""
    folder = tmp_path / 'a "quoted" folder'
    data = pack(folder, objects, "t/a")
    before = sys.executable
    monkeypatch.setattr(sys, "executable", "/other/python")
    packed = unpack_suite(data, objects)
    root = Trees(objects).path(packed.files)
    work = packed.suite.cases[0].work
    assert isinstance(work, CommandWork)
    assert work.check is not None
    assert before not in data.decode()
    assert str(folder.name) not in data.decode()
    assert work.check.argv == ("/other/python", f"{root}/check.py", f"--rules={root}/rules.txt")
    assert packed.suite.folder == str(root)
    run = packed.entries["t/a"].command
    assert run is not None
    assert run.run.argv == ("{build}/rows", f"{root}/data/a.txt")


def test_what_only_begins_like_the_folder_or_the_python_stays(
    tmp_path: Path, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/bin/python3.11 is not /bin/python3, nor suite-2 the suite; a Python in the suite is one."""
    folder = tmp_path / "suite"
    python = f"{folder}/bin/python3"
    monkeypatch.setattr(sys, "executable", python)
    argv = (python, f"{python}.11", f"--with={python}:x", f"{folder}-2/a", f"{folder}/b")
    (case, *_) = make_suite(folder).cases
    assert isinstance(case.work, CommandWork)
    work = msgspec.structs.replace(case.work, run=Step(argv=argv))
    suite = msgspec.structs.replace(
        make_suite(folder), cases=(msgspec.structs.replace(case, work=work),)
    )
    data = pack_suite(suite, {"t/a": entry("t/a", folder)}, {"t/a": "command"}, objects)
    monkeypatch.setattr(sys, "executable", "/other")
    packed = unpack_suite(data, objects)
    there = packed.suite.cases[0].work
    assert isinstance(there, CommandWork)
    root = packed.suite.folder
    beside = f"{root}/bin/python3.11"
    assert there.run.argv == ("/other", beside, "--with=/other:x", f"{folder}-2/a", f"{root}/b")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"files": 3}', b"\xff{"])
def test_a_text_that_is_no_suite_is_refused(data: bytes, objects: ObjectStore) -> None:
    """Whoever wrote the bundle is told; nothing is unpacked."""
    with pytest.raises(BundleError):
        unpack_suite(data, objects)


def test_a_digest_that_is_none_is_refused(objects: ObjectStore) -> None:
    """It would be a path."""
    with pytest.raises(DamagedError, match="cannot be the name"):
        unpack_suite(b'{"files": "../../etc"}', objects)


def test_each_attempt_finds_its_entry_and_gets_a_folder(
    tmp_path: Path, objects: ObjectStore
) -> None:
    """The folder is of this run, whatever the one was in which the case was built."""
    folder = tmp_path / "suite"
    suite = make_suite(folder)
    packed = PackedSuite(
        suite=suite,
        entries={"t/a": entry("t/a", folder)},
        targets={"t/a": "command"},
        files=TREE,
    )
    site = ProgramSite(sites={"": StepSite(suite=str(folder))}, lanes=1, threads=1)
    programs = Programs(site, Path("/home-of-it"), "now", StepHost(tmp_path, ()))
    work = suite.cases[0].work
    first = Case(id="t/a", testcase="t", work=work)
    second = Case(id="t/a", testcase="t", work=work, attempt=2)
    found = [find_packed(packed, programs, case) for case in (first, second)]
    expected = [(first.key, "/home-of-it/work/now/t/a"), (second.key, "/home-of-it/work/now.2/t/a")]
    assert [(e.case, e.command.folder) for e in found if e.command is not None] == expected
    assert msgspec.structs.replace(found[1], case="t/a", command=None) == msgspec.structs.replace(
        packed.entries["t/a"], command=None
    )
