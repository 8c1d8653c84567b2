"""What jobs of workflows do twice, and what only looks like it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.verbs.test.plan.planted import plant

from tileyard.base.errors import UsageError
from tileyard.verbs.ci.plan.jobs_duplicates import Duplicates, Finding, find_duplicates
from tileyard.verbs.ci.plan.workflow_duplicates import (
    InWorkflows,
    find_copies,
    find_in_workflows,
    list_unseen,
    list_workflows,
    make_jobs,
    name_keepers,
    read_step_times,
)
from tileyard.verbs.ci.plan.workflow_tests import list_files
from tileyard.verbs.ci.plan.workflow_work import StepTimes
from tileyard.verbs.test.plan.imports import ImportedTime


def look(root: Path, times: StepTimes | None = None) -> InWorkflows:
    """All that is found in a checkout."""
    return find_in_workflows([root], times or {}, ())


def find(root: Path, **jobs: str) -> Sequence[Finding]:
    """What is found in two workflows, given as the steps of their jobs; names of jobs begin with a or b."""
    for workflow in "ab":
        text = "on: push\njobs:\n"
        for name, job in jobs.items():
            text += f"  {name}: {{{job}}}\n" if name.startswith(workflow) else ""
        path = root / ".github" / "workflows" / f"{workflow}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return look(root).findings


def times_of(seconds: dict[tuple[str, str], float]) -> StepTimes:
    """The times of steps without names, each of a job of the workflow that is called like it."""
    return {
        (f".github/workflows/{job}.yml", job, f"Run {run}"): seconds[job, run]
        for job, run in seconds
    }


def decide(read: InWorkflows) -> tuple[Finding, Duplicates]:
    """The only finding, with the job that keeps it, and what the jobs can drop."""
    made = find_duplicates(make_jobs(read.jobs, read.work, read.findings))
    (named,) = name_keepers(read.findings, made.duplicates)
    return named, made


def steps(*runs: str, more: str = "") -> str:
    """The steps of a job that runs these scripts."""
    return f"{more}steps: {json.dumps([{'run': run} for run in runs])}"


def test_all_that_is_planted_is_found_and_nothing_else(tmp_path: Path) -> None:
    """Ten duplicates of all kinds; five look-alikes stay out, as their comments say why."""
    root = plant(tmp_path / "checkout")
    read = look(root)
    found = (*read.findings, *read.copies)
    marks: dict[str, set[str]] = {}
    for finding in found:
        for spot in finding.spots if finding.kind != "copies" else ():
            file, _, line = spot.where.rpartition(":")
            texts = Path(file).read_text(encoding="utf-8").splitlines()
            # The mark stands at the step, which a command of a script is below.
            above = [
                text.rpartition("# ")[2]
                for text in texts[: int(line)]
                if "# " in text and "tileyard" not in text
            ]
            marks.setdefault(finding.what, set()).add(above[-1])
    expected = {frozenset({f"P{number}"}) for number in range(1, 10)}
    assert set(map(frozenset, marks.values())) == expected
    assert len(found) == 10
    copies = next(one for one in found if one.kind == "copies")
    assert (len(copies.tests), copies.differing) == (3, 2)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("cmake -S x -B b && cmake --build b", "mkdir o; cd o; cmake ../x -DA=1; make", "x"),
        ("cmake -S x -B b; ninja -C b", "cmake -S x -B c", None),
        ("pip wheel ./x", "python -m build x", "x"),
        ("pip install torch", "pip install torch", None),
        ("pip install -e .", "pip install -e .", None),
        ("git clone https://h/o/r; make -C r", "git clone git@h:o/r.git q; cd q; make", "o/r@HEAD"),
        ("git clone -b v1 https://h/o/r; make -C r", "git clone https://h/o/r; make -C r", None),
        ("docker build -t a x", "docker buildx build --push x", "image x/Dockerfile of x"),
        ("cargo build", "cargo build --release", ". by cargo"),
        ("python a.py 1", "python3.12 a.py 1", "python a.py 1"),
        ("python a.py 1", "python a.py 2", None),
        ("M=1 tool", "M=2 tool", None),
        ("M=1 ./s.sh", "M=2 ./s.sh", None),
        ("N=1 ./s.sh", "N=2 ./s.sh", "./s.sh"),
        ("apt-get install -y cmake", "apt-get install -y cmake", None),
        ("pytest t", "python -m unittest discover -s t", "pytest t"),
        ("pytest t/test_a.py", "python -m unittest t.test_a", "pytest t/test_a.py"),
        ("pytest t/test_a.py::test_b", "pytest -v t", "pytest t/test_a.py::test_b | pytest -v t"),
        ("pytest t/test_a.py", "pytest t --ignore=t/test_a.py", None),
        ("pytest t -m slow", "pytest t -m 'not slow'", None),
        ("pytest t -m slow", "pytest t", "pytest t -m slow | pytest t"),
        ("pytest t --device=a", "pytest t --device=b", None),
        ("cmake -S x -B b; ctest --test-dir b -L fast", "python t/test_a.py", "ctest --test-dir b -L fast"),
        ("cmake -S x -B b; ctest --test-dir b -L slow", "python t/test_a.py", None),
        ("cmake -S x -B b; ninja -C b check-x", "cd x; cmake .; make check-x", "ninja -C b check-x"),
        ("bash -c 'pytest t'", "env A=1 pytest t", "pytest t"),
        ("coverage run -m pytest t x", "cd t; pytest .", "coverage run -m pytest t x | pytest ."),
        ("cargo test --release", "cargo test", "cargo test --release"),
        ("cargo test one", "cargo test two", None),
        ("npm --prefix web run build", "cd web && npm run build", None),
        ("cmake -S x -B $PWD/b; ninja -C b test", "cmake -S x -B c; ctest --test-dir c", "ninja -C b test"),
        ("make docs", "make -C . docs", ".: docs"),
    ],
)  # fmt: skip
def test_two_commands_do_the_same_or_not(
    tmp_path: Path, first: str, second: str, expected: str | None
) -> None:
    """The tree counts, not flags and folders; the tests count, not what runs them; the command as it is."""
    for name in ("x", "t"):
        (tmp_path / name).mkdir()
    (tmp_path / "x" / "CMakeLists.txt").write_text(
        'add_test(NAME a COMMAND python3 "${CMAKE_SOURCE_DIR}/../t/test_a.py")\n'
        'set_tests_properties(a PROPERTIES LABELS "fast")\n',
        encoding="utf-8",
    )
    (tmp_path / "t" / "test_a.py").touch()
    (tmp_path / "t" / "test_c.py").touch()
    (tmp_path / "s.sh").write_text("echo $M", encoding="utf-8")
    found = find(tmp_path, a=steps(first), b=steps(second))
    assert [one.what for one in found] == ([] if expected is None else [expected])


def test_differences_are_shown(tmp_path: Path) -> None:
    """Flags, folders, machines and containers, in the order of the places."""
    first = steps("CC=gcc cmake -S x -B b -DA=1 -DB=2", "make -C b", more="runs-on: ubuntu-22.04, ")
    second = steps(
        "cmake -S x -B c -DA=2 -DB=2; make -C c", more="runs-on: ubuntu-22.04, container: i, "
    )
    (found,) = find(tmp_path, a=first, b=second)
    expected = {"CC": ("gcc", ""), "A": ("1", "2"), "into": ("b", "c"), "container": ("", "i")}
    assert found.differences == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("runs-on: ubuntu-latest", "runs-on: macos-14"),
        ("runs-on: [Linux, X64]", "runs-on: [Linux, ARM64]"),
        ("runs-on: windows-2022", "runs-on: ubuntu-24.04"),
    ],
)
def test_other_machines_do_not_do_the_same(tmp_path: Path, first: str, second: str) -> None:
    """A build for one kind of machine is of no use to another."""
    for run in ("cargo build", "tool", "pytest t"):
        jobs = {"a": steps(run, more=f"{first}, "), "b": steps(run, more=f"{second}, ")}
        assert not find(tmp_path, **jobs)


def test_what_tests_read_from_the_environment_tells_them_apart(tmp_path: Path) -> None:
    """Also if one command runs a part of the other; a variable that they do not read changes nothing."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "test_a.py").write_text("MODE = 1", encoding="utf-8")
    (tmp_path / "t" / "test_b.py").touch()
    for variable, count in (("MODE", 0), ("OTHER", 1)):
        for first, second in (("pytest t", "pytest t"), ("pytest t", "pytest t/test_a.py")):
            jobs = [
                steps(run, more=f"env: {{{variable}: {run[-2:]}{n}}}, ")
                for n, run in enumerate((first, second))
            ]
            assert len(find(tmp_path, a=jobs[0], b=jobs[1])) == count


def test_a_step_that_never_runs_does_nothing(tmp_path: Path) -> None:
    """As one of an action whose input rules it out."""
    never = 'steps: [{run: cargo build, if: "${{ false }}"}]'
    assert not find(tmp_path, a=never, b=steps("cargo build"))


def test_workflows_that_are_started_by_hand_do_not_run_together(tmp_path: Path) -> None:
    """Each is started alone, but the jobs of one are started at once."""
    find(tmp_path, a=steps("cargo build"), aa=steps("cargo build"), b=steps("cargo build"))
    for file in list_workflows(tmp_path):
        text = file.read_text(encoding="utf-8").replace("on: push", "on: workflow_dispatch")
        file.write_text(text, encoding="utf-8")
    found = look(tmp_path).findings
    expected = [({"a/a", "a/aa"}, ("workflow_dispatch",)), ({"a/a", "b/b"}, ())]
    assert [({spot.job for spot in one.spots}, one.together) for one in found] == expected


def test_tests_of_installed_packages_are_not_those_of_the_checkout(tmp_path: Path) -> None:
    """Neither are those in folders of builds, as pytest sees it."""
    for folder in (".", ".venv/lib", "venv", "build", "node_modules/x", "sub"):
        path = tmp_path / folder / "test_a.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    expected = [f"{tmp_path}/sub/test_a.py", f"{tmp_path}/test_a.py"]
    assert list_files(str(tmp_path)) == expected


def test_trees_that_only_use_the_same_names_are_no_copies(tmp_path: Path) -> None:
    """As tests of single modules and of the whole often do."""
    for folder, text in (
        ("tests/unit", "def test_it():\n    pass\n"),
        ("tests/e2e", "import x\nx.run()\n"),
    ):
        for name in "abc":
            path = tmp_path / folder / f"test_{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    assert find_copies(tmp_path) == []
    (tmp_path / "tests" / "e2e").rename(tmp_path / "tests" / "old")
    for path in (tmp_path / "tests" / "old").iterdir():
        path.write_text("def test_it():\n    pass\n\n", encoding="utf-8")
    (found,) = find_copies(tmp_path)
    assert (len(found.tests), found.differing) == (3, 3)


def test_versions_of_a_language_tell_tests_apart(tmp_path: Path) -> None:
    """Two versions are no duplicate; a job that sets up none takes what is there."""
    for name in "ab":
        path = tmp_path / "t" / f"test_{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.touch()

    def on(version: str, run: str) -> str:
        setup = {"uses": "actions/setup-python@v5", "with": {"python-version": version}}
        return f"steps: {json.dumps([setup, {'run': run}])}"

    assert not find(tmp_path, a=on("3.11", "pytest t"), b=on("3.12", "pytest t"))
    assert not find(tmp_path, a=on("3.11", "pytest t"), b=on("3.12", "pytest t/test_a.py"))
    (found,) = find(tmp_path, a=on("3.11", "pytest t"), b=steps("pytest t"))
    expected = {"versions": ("python-version=3.11", "")}
    assert found.differences == expected


def test_another_place_of_the_checkout_is_the_same_tree(tmp_path: Path) -> None:
    """Checked out to a folder, entered by an option or by the step's own folder."""
    checkout = {"uses": "actions/checkout@v4", "with": {"path": "source"}}
    for there in (
        {"run": "make -C source docs"},
        {"run": "make docs", "working-directory": "source"},
    ):
        second = f"steps: {json.dumps([checkout, there])}"
        (found,) = find(tmp_path, a=steps("make docs"), b=second)
        assert found.what == ".: docs"


def test_legs_of_a_matrix_are_not_compared_with_each_other(tmp_path: Path) -> None:
    """They repeat on purpose; another job that does what one of them does is found."""
    matrix = "strategy: {matrix: {p: [1, 2]}}, "
    assert not find(tmp_path, a=steps("cargo build", more=matrix), b=steps("ls"))
    (found,) = find(tmp_path, a=steps("run ${{ matrix.p }}", more=matrix), b=steps("run 2"))
    expected = ["a/a (2)", "b/b"]
    assert [spot.job for spot in found.spots] == expected


def test_jobs_that_never_run_together_are_told_and_save_nothing(tmp_path: Path) -> None:
    """By the events of their workflows, by conditions that exclude each other; what is left is one group."""
    never = steps("cargo build", more="if: github.event_name == 'schedule', ")
    main = "if: github.ref == 'refs/heads/main', "
    other = "if: github.ref != 'refs/heads/main', "
    (found,) = find(tmp_path, a=never, b=steps("cargo build"))
    assert found.together == ()
    (found,) = find(tmp_path, a=steps("cargo build", more=main), b=steps("cargo build", more=other))
    assert found.together == ()
    read = look(tmp_path)
    assert find_duplicates(make_jobs(read.jobs, read.work, [found])).saves_s == 0.0


def test_the_cheaper_side_keeps_it(tmp_path: Path) -> None:
    """With measured times, which also stand in for what nobody has measured."""
    find(tmp_path, a=steps("cargo build", "one"), b=steps("cargo build"), bb=steps("cargo build"))
    times = times_of({("a", "cargo build"): 120.0, ("b", "cargo build"): 60.0})
    named, made = decide(look(tmp_path, times))
    expected = ("b/b", 210.0, 330.0)
    assert (named.keeper, made.saves_s, made.seconds) == expected
    assert [spot.is_guess for spot in named.spots] == [False, False, True]


def test_times_of_a_job_are_those_of_its_own_workflow(tmp_path: Path) -> None:
    """Two workflows may each have a job `build`; a workflow without a name is called like its file."""
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    text = "on: push\njobs: {build: {steps: [{run: cargo build}]}}\n"
    (folder / "a.yml").write_text(f"name: CI\n{text}", encoding="utf-8")
    (folder / "b.yml").write_text(text, encoding="utf-8")
    names = (("CI", 120.0), (".github/workflows/b.yml", 60.0))
    times = {(name, "build", "Run cargo build"): seconds for name, seconds in names}
    assert [one.seconds for one in look(tmp_path, times).work] == [120.0, 60.0]


def test_workflows_of_one_name_stay_apart_and_each_is_read_once(tmp_path: Path) -> None:
    """Of two checkouts, or with two endings; one that shares its name with none is called by that alone."""
    names = (
        "a/.github/workflows/ci.yml",
        "a/.github/workflows/ci.yaml",
        "x/a/ci.yml",
        "x/b.yml",
        "a/ci.yml",
    )
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("on: push\njobs: {a: {steps: [{run: tool}]}}\n", encoding="utf-8")
    read = find_in_workflows([*(tmp_path / name for name in names[:4]), tmp_path / "a"], {}, ())
    expected = ["a/ci.yml/a", "a/ci.yaml/a", "x/a/ci.yml/a", "b/a"]
    assert [job.name for job in read.jobs] == [one.job for one in read.work] == expected
    assert [spot.job for spot in read.findings[0].spots] == expected
    alone = find_in_workflows([tmp_path / names[0], tmp_path / names[3]], {}, ())
    assert [job.name for job in alone.jobs] == ["ci/a", "b/a"]
    same = find_in_workflows([tmp_path / names[0], tmp_path / names[4]], {}, ())
    assert [job.name for job in same.jobs] == [".github/workflows/ci.yml/a", "ci.yml/a"]


def test_a_subset_of_tests_costs_its_part(tmp_path: Path) -> None:
    """One of four files in common: what dropping it saves is a quarter, or the other run as a whole."""
    (tmp_path / "t").mkdir()
    for name in "abcd":
        (tmp_path / "t" / f"test_{name}.py").touch()
    found = find(tmp_path, a=steps("pytest t"), b=steps("pytest t/test_a.py t/test_x.py"))
    expected = [75.0, 150.0]
    assert [spot.seconds for spot in found[0].spots] == expected
    assert found[0].tests == (("t/test_a.py"),)


def test_tests_that_are_selected_further_do_not_stand_for_all(tmp_path: Path) -> None:
    """The command that runs all of them keeps them, however much cheaper the other one is."""
    (tmp_path / "t").mkdir()
    for name in ("sum", "max"):
        text = f"def test_{name}():\n    assert {name}\n"
        (tmp_path / "t" / f"test_{name}.py").write_text(text, encoding="utf-8")
    find(tmp_path, a=steps("pytest t"), b=steps("pytest t -m quick"))
    times = times_of({("a", "pytest t"): 500.0, ("b", "pytest t -m quick"): 1.0})
    named, made = decide(look(tmp_path, times))
    expected = ("a/a", 1.0, 501.0)
    assert (named.keeper, made.saves_s, made.seconds) == expected


def test_times_of_steps_and_tests_are_read(tmp_path: Path) -> None:
    """Pages of GitHub's interface; JUnit files, by the modules that they name."""
    step = {
        "name": "s",
        "started_at": "2026-11-25T10:00:00Z",
        "completed_at": "2026-11-25T10:01:30Z",
    }
    path = tmp_path / "jobs.json"
    path.write_text(
        json.dumps(
            [{"jobs": [{"name": "j", "workflow_name": "w", "steps": [step, {"name": "t"}]}]}]
        )
    )
    expected = {("w", "j", "s"): 90.0}
    assert read_step_times(path) == expected
    path.write_text(json.dumps({"jobs": [{"name": "j"}]}))
    with pytest.raises(UsageError, match="is not a list of jobs as GitHub gives it"):
        read_step_times(path)
    path.write_text('{"row/f32": 1}')
    assert read_step_times(path) is None
    find(tmp_path, a=steps("pytest t/test_a.py"), b=steps("ls"))
    times = [
        ImportedTime(testcase="t.test_a.TestB", seconds=2.0),
        ImportedTime(testcase="t.test_ab", seconds=9.0),
    ]
    (timed,) = find_in_workflows([tmp_path], {}, times).work
    assert (timed.seconds, timed.is_guess) == (2.0, False)


def list_able(read: InWorkflows) -> str:
    """The letters of the jobs that may keep all that is found; one of them does, if there is any."""
    found = [one for one in read.findings if not one.because]
    made = find_duplicates(make_jobs(read.jobs, read.work, read.findings))
    able = {spot.job[0] for one in found for spot in one.spots if spot.can_keep}
    assert {one.keeper[0] for one in made.duplicates} <= able
    assert len(made.duplicates) == len(found)
    return "".join(sorted(able))


@pytest.mark.parametrize(
    ("first", "second", "able"),
    [
        ("if: github.ref == 'r', ", "", "b"),
        ("if: github.ref == 'r', ", "if: github.ref == 'r', ", "ab"),
        ("if: vars.X == 'r', ", "if: steps.s.outputs.x == 'r', ", ""),
        ("if: steps.s.outputs.x == 'r', ", "if: steps.s.outputs.x == 'r', ", ""),
        ("if: success() && !cancelled(), ", "", "ab"),
        ("continue-on-error: true, ", "", "b"),
        ("needs: z, ", "", "b"),
        ("needs: z, if: always(), ", "", "ab"),
    ],
)
def test_only_a_job_that_runs_whenever_the_other_does_keeps_what_both_do(
    tmp_path: Path, first: str, second: str, able: str
) -> None:
    """By conditions of its own and of the jobs that it needs; ignored failures check nothing."""
    jobs = {"a": steps("tool", more=first), "b": steps("tool", "other", more=second)}
    find(tmp_path, **jobs)
    path = tmp_path / ".github" / "workflows" / "a.yml"
    extra = "  z: {if: vars.Z == '1', steps: [{run: zz}]}\n"
    path.write_text(path.read_text(encoding="utf-8") + extra, encoding="utf-8")
    assert list_able(look(tmp_path)) == able


@pytest.mark.parametrize(
    ("first", "second", "able"),
    [
        ("if [ -d t ]; then tool; fi", "tool", "b"),
        ("tool || true", "tool", "b"),
        ("tool || { echo no; exit 1; }", "tool", "ab"),
        ("for x in 1 2; do tool; done", "tool", "ab"),
        ("bash -c 'tool || true'", "tool", "b"),
        ("make -C t one", "make -C t one", "ab"),
        ("cmake -B o; cmake --build o --target one", "cmake -B o; cmake --build o", "b"),
        ("cmake -B o -DA=1; make -C o", "cmake -B o -DA=2; make -C o", ""),
        ("CC=a cargo build", "cargo build", ""),
        ("cargo build; ./x", "CC=a cargo build; ./x", ""),
        ("cargo build; pytest t", "CC=a cargo build; pytest t", "ab"),
        (
            "cmake -B b; make -C b; ctest --test-dir b",
            "cmake -B b -DA=1; make -C b; ctest --test-dir b",
            "",
        ),
    ],
)
def test_what_a_script_may_leave_out_or_builds_in_another_way_is_no_substitute(
    tmp_path: Path, first: str, second: str, able: str
) -> None:
    """Branches of scripts, ignored failures, parts of a build, other options, checks of other builds."""
    find(tmp_path, a=steps(first), b=steps(second, "other"))
    assert list_able(look(tmp_path)) == able


@pytest.mark.parametrize(
    ("first", "second", "able"),
    [
        ("{pull_request: {paths: [src]}}", "pull_request", "b"),
        ("{pull_request: {paths: [src]}}", "{pull_request: {paths: [src]}}", "ab"),
        ("{pull_request: {paths: [src]}}", "{pull_request: {paths: [doc]}}", ""),
        ("pull_request", "{pull_request: {types: [labeled]}}", ""),
        ("{schedule: [{cron: 0 3 * * *}]}", "{schedule: [{cron: 0 4 * * *}]}", "ab"),
        ("{schedule: [{cron: 0 3 * * 1}]}", "{schedule: [{cron: 0 4 * * *}]}", ""),
        ("[push, pull_request]", "{push: {branches: [main]}, schedule: [{cron: 0 3 * * *}]}", "a"),
    ],
)  # fmt: skip
def test_an_event_starts_a_workflow_only_where_its_filters_fit(
    tmp_path: Path, first: str, second: str, able: str
) -> None:
    """Paths, branches, types, days of schedules; at events that only one has, it works as before."""
    find(tmp_path, a=steps("tool"), b=steps("tool", "other"))
    for name, on in (("a", first), ("b", second)):
        path = tmp_path / ".github" / "workflows" / f"{name}.yml"
        text = path.read_text(encoding="utf-8").replace("on: push", f"on: {on}")
        path.write_text(text, encoding="utf-8")
    assert list_able(look(tmp_path)) == able


CMAKE = """
# a comment ( with signs
set(dir "${CMAKE_CURRENT_SOURCE_DIR}/t")
file(GLOB files RELATIVE "${dir}" CONFIGURE_DEPENDS "${dir}/test_*.py")
function(add_one name script)
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} "${dir}/${script}" WORKING_DIRECTORY ${dir})
  set_tests_properties(${name} PROPERTIES TIMEOUT 9 LABELS "fast;unit" ENVIRONMENT "A=$<TARGET_FILE:x>")
endfunction()
foreach(file IN LISTS files)
  get_filename_component(stem "${file}" NAME_WE)
  add_one(py_${stem} ${file})
endforeach()
add_test(plain ${CMAKE_COMMAND} -E env B=1 s.sh)
add_test(NAME program COMMAND program --all)
set_property(TEST plain program PROPERTY LABELS slow)
if(X)
  set(label one)
else()
  set(label two)
endif()
add_test(NAME n_${label} COMMAND other)
option(MORE "" OFF)
if(MORE AND NOT ${UNKNOWN})
  add_test(NAME more COMMAND more)
elseif(NOT FEWER)
  add_test(NAME usual COMMAND usual)
endif()
set_property(TEST usual more PROPERTY LABELS option)
gtest_discover_tests(g PROPERTIES LABELS "g")
add_subdirectory(sub)
"""


@pytest.mark.parametrize(
    ("words", "ids", "is_seen"),
    [
        ("-L fast", {"t/test_a.py", "t/test_c.py"}, True),
        ("-L '^unit$' -E _c", {"t/test_a.py"}, True),
        ("-R ^py_test_c", {"t/test_c.py"}, False),
        ("-L slow", {"ctest plain of .", "ctest program of ."}, True),
        ("-LE 'fast|slow|g|option'", {"ctest n_${label} of .", "t/test_a.py"}, True),
        ("-L g", {"ctest of ."}, False),
        ("-L none", {"ctest of ."}, False),
        ("-L option", {"ctest usual of ."}, True),
        ("-L option -DMORE=ON", {"ctest usual of .", "ctest more of ."}, True),
        ("-L option -DFEWER=ON", {"ctest of ."}, False),
    ],
)
def test_ctest_runs_what_cmake_declares(
    tmp_path: Path, words: str, ids: set[str], is_seen: bool
) -> None:
    """Loops, functions, globs, labels and subdirectories; names that only a build knows are not seen."""
    for name in ("t/test_a.py", "t/test_c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    (tmp_path / "sub").mkdir()
    text = "add_test(NAME sub COMMAND python3 -m pytest ${CMAKE_SOURCE_DIR}/t/test_a.py)\n"
    (tmp_path / "sub" / "CMakeLists.txt").write_text(text, encoding="utf-8")
    words, _, flag = words.partition(" -D")
    flags = f"-D{flag}" if flag else ""
    run = f"cmake -B b {flags}; ctest --test-dir b {words}"
    find(tmp_path, a=steps(run), b=steps("tool"))
    (work,) = (one for one in look(tmp_path).work if one.kind == "tests")
    found = {one.replace(str(tmp_path), ".") for one in work.tests.ids}
    assert (found, work.is_seen) == (ids, is_seen)


def test_jobs_of_other_repositories_and_scripts_for_no_shell_are_not_seen(tmp_path: Path) -> None:
    """Neither is a script of the checkout; a tool and a labelled step are."""
    find(tmp_path, a="uses: o/r/.github/workflows/x.yml@main", b="steps: [{run: x, shell: python}]")
    read = look(tmp_path)
    expected = ["o/r/.github/workflows/x.yml@main", "Run x"]
    assert [one.command for one in list_unseen(read.work, read.findings)] == expected
    runs = ("bash s.sh", "python s.py", "python -m a.b", "./b", "ruff check a.py", "/usr/bin/x")
    find(tmp_path, a=steps(*runs), b=steps("ls"))
    read = look(tmp_path)
    assert [one.command for one in list_unseen(read.work, read.findings)] == [*runs[:4]]
