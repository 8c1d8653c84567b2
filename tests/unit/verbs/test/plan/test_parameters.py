"""Parameters of a suite: their values in steps, limits, policies and names; variables that a script sets."""

import datetime
from collections.abc import Mapping
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import CommandWork
from tileyard.base.settings import Settings
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.plan.choosing import choose
from tileyard.verbs.test.plan.durations import learn_imported
from tileyard.verbs.test.plan.imports import ImportedTime
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import Suite

TODAY = datetime.date(2026, 11, 21)
SUITE = """\
name = "st"
limits = { run_s = { mode.sim = 1800, mode.npu = 60 }, build_s = { mode.npu = 9 } }
env = { RUN_MODE = "{mode}" }
[parameters]
mode = ["sim", "npu"]
level = [2, 3]
[run]
argv = ["sh", "-c", "true {mode} {case}"]
limit_s = { level.3 = 7 }
[run.hot]
argv = ["sh", "-c", "true {mode}", "{cases}"]
began = 'B (?P<case>.*)'
ended = 'E (?P<case>.*) (?P<verdict>.*)'
verdicts = { ok = "passed" }
[[testcase]]
name = "tadd"
case = [{ name = "f32" }, { name = "f32_wide", limits = { run_s = { mode.npu = 90 } } }]
[[testcase]]
name = "tsub"
run = ["sh", "-c", "true"]
[policies.quick]
budget_s = { mode = { sim = 600, npu = 30 } }
exclude = { mode.npu = ["tsub"], mode.sim = ["*@npu"] }
[[skip]]
cases = "tadd/*@npu,3"
reason = "too slow"
[[quarantine]]
cases = "tadd/f32"
owner = "ana"
reason = "flaky"
until = 2026-12-31
"""


def read(
    folder: Path,
    settings: Settings,
    text: str = SUITE,
    variables: Mapping[str, str] | None = None,
    **parameters: str,
) -> Suite:
    """A suite with values of its parameters."""
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return read_suite(path, settings, variables or {}, parameters)


def work_of(suite: Suite, case: str) -> CommandWork:
    """The work of a case of programs."""
    (work,) = [one.work for one in suite.cases if one.id == case]
    assert isinstance(work, CommandWork)
    return work


def test_a_parameter_is_part_of_commands_environments_and_names(
    tmp_path: Path, settings: Settings
) -> None:
    """The first value counts unless one is set; programs know their case without it, with the same data."""
    sim, npu = read(tmp_path, settings), read(tmp_path, settings, mode="npu", level="3")
    expected = ["tadd/f32@sim,2", "tadd/f32_wide@sim,2", "tsub/default@sim,2"]
    assert [case.id for case in sim.cases] == expected
    assert npu.parameters == {"mode": "npu", "level": "3"}
    work = work_of(npu, "tadd/f32@npu,3")
    assert (work.run.argv[-1], work.run.env) == ("true npu f32", {"RUN_MODE": "npu"})
    assert work.hot is not None
    assert work.hot.step.argv[2:] == ("true npu", "{cases}")
    assert [case.seed for case in sim.cases] == [case.seed for case in npu.cases]
    assert sim.remembered_as != npu.remembered_as


def test_limits_and_policies_differ_by_value(tmp_path: Path, settings: Settings) -> None:
    """What is not given for the value that is chosen is as if it were not there."""
    sim, npu = read(tmp_path, settings), read(tmp_path, settings, mode="npu", level="3")
    limits = [(case.limits.run_s, case.limits.build_s) for case in (*sim.cases, *npu.cases)]
    usual_s = limits[0][1]
    expected = [(1800.0, usual_s)] * 3 + [(60.0, 9.0), (90.0, 9.0), (60.0, 9.0)]
    assert (limits, usual_s != 9.0) == (expected, True)
    steps_s = [work_of(suite, suite.cases[0].id).run.limit_s for suite in (sim, npu)]
    assert steps_s == [0.0, 7.0]
    assert [suite.policies["quick"].budget_s for suite in (sim, npu)] == [600.0, 30.0]
    assert npu.policies["quick"].exclude == ("tsub",)


def test_a_list_may_have_a_limit_by_value(tmp_path: Path, settings: Settings) -> None:
    """As any other step: the limit of the chosen value counts, and a list without one has the usual limit."""
    listed = 'list = { argv = ["echo", \'{{"name": "x"}}\'], limit_s = { mode.npu = 9 } }\n'
    text = SUITE.replace('name = "tsub"\n', f'name = "tsub"\n{listed}')
    for mode in ("sim", "npu"):
        found = read(tmp_path, settings, text, mode=mode).cases[-1].id
        assert found == f"tsub/x@{mode},2"


def test_files_of_a_suite_agree_on_their_parameters(tmp_path: Path, settings: Settings) -> None:
    """Two defaults of one parameter are refused where the second stands; a value that is set ends that."""
    for name, values in (("one", "'sim', 'npu'"), ("two", "'npu', 'sim'")):
        (tmp_path / name).mkdir()
        text = f"name = 's'\nrun = ['true']\nparameters.mode = [{values}]\n[[testcase]]\nname = '{name}'\n"
        (tmp_path / name / "suite.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_suite(tmp_path, settings)
    expected = (
        f"{tmp_path}/two/suite.toml:3: parameters.mode: is 'npu' here and 'sim' in another file"
    )
    assert (caught.value.message, caught.value.hint) == (expected, "--set mode=... says one")
    assert read_suite(tmp_path, settings, {}, {"mode": "npu"}).parameters == {"mode": "npu"}


def test_cases_are_named_with_and_without_values(tmp_path: Path, settings: Settings) -> None:
    """Selections, skips, quarantines, foreign times know both names; other values' rules are not idle."""
    suite = read(tmp_path, settings, level="3")
    whole = choose(suite, Wish(policy="quick"), TODAY, {})
    expected = ["tadd/f32@sim,3", "tadd/f32_wide@sim,3", "tsub/default@sim,3"]
    assert [case.id for case in whole.cases] == expected
    assert (list(whole.quarantined), whole.notes) == ([expected[0]], ())
    one = choose(suite, Wish(select=("tadd/f32",)), TODAY, {})
    assert [case.id for case in one.cases] == expected[:1]
    skipped = choose(read(tmp_path, settings, mode="npu", level="3"), Wish(), TODAY, {})
    assert [case.id for case in skipped.cases] == ["tsub/default@npu,3"]
    times = [
        ImportedTime(testcase="tadd", case="f32", seconds=1.0),
        ImportedTime(testcase="tadd", case="f32_wide", seconds=2.0),
        ImportedTime(testcase="tadd", case="f32_wide@sim,3", seconds=3.0),
    ]
    known = learn_imported(times, suite.cases)
    assert {name: one.seconds for name, one in known.items()} == {
        expected[0]: 1.0,
        expected[1]: 3.0,
    }


@pytest.mark.parametrize(
    ("found", "instead", "expected"),
    [
        (
            '"sim", "npu"]',
            '"sim", "n/pu"]',
            ":5: parameters.mode[1]: 'n/pu' is not a value: it becomes",
        ),
        ('"sim", "npu"]', '"sim", "sim"]', ":5: parameters.mode[1]: 'sim' appears twice"),
        ('["sim", "npu"]', "[]", ":5: parameters.mode: has no value"),
        ('["sim", "npu"]', '"sim"', ":4: parameters: is not a table of lists, such as mode = ["),
        (
            "mode = [",
            "seed = [1]\nmode = [",
            ":5: parameters.seed: has another meaning already",
        ),
        ("mode = [", '"a-b" = [1]\nmode = [', ":5: parameters.a-b: is not a name"),
        ("true {mode}", "true {moed}", ": {moed} is not defined here; did you mean {mode}?"),
        (
            "mode.sim = 1800",
            "mode.simm = 1800",
            ":2: limits.run_s.mode.simm: is not a value of mode (did you mean 'sim'",
        ),
        (
            "run_s = { mode.sim",
            "run_s = { moed.sim",
            ":2: limits.run_s: is a table, and not one by",
        ),
        (
            "{ mode.npu = 9 }",
            "{ moed.npu = 9 }",
            ":2: limits.build_s.moed: is not a parameter (did you mean 'mode'",
        ),
        (
            "mode = { sim = 600, npu = 30 }",
            "mode = 3",
            ":22: policies.quick.budget_s.mode: is not a table by the values of mode",
        ),
        (
            'name = "tsub"',
            'name = "tsub"\nvars = { mode = 1 }',
            ":20: testcase[1].vars.mode: is a parameter",
        ),
        (
            "[parameters]",
            "[parameter]",
            ":4: parameter: unknown key (did you mean 'parameters'",
        ),
    ],
)
def test_a_parameter_that_is_wrong_is_told_where_it_stands(
    tmp_path: Path, settings: Settings, found: str, instead: str, expected: str
) -> None:
    """File, line and key, and the nearest name that there is."""
    assert found in SUITE
    with pytest.raises(UsageError) as refused:
        read(tmp_path, settings, SUITE.replace(found, instead, 1))
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {"moed": "sim"},
            "suite.toml: --set moed: there is no such parameter (did you mean 'mode'",
        ),
        (
            {"mode": "nput"},
            "suite.toml:5: parameters.mode: --set mode=nput is not one of its values (did",
        ),
        (
            {"level": "9"},
            "suite.toml:6: parameters.level: --set level=9 is not one of its values (known are 2",
        ),
    ],
)
def test_a_value_that_there_is_not_is_refused(
    tmp_path: Path, settings: Settings, parameters: dict[str, str], expected: str
) -> None:
    """With the nearest parameter, or the nearest value."""
    with pytest.raises(UsageError) as refused:
        read(tmp_path, settings, **parameters)
    assert expected in str(refused.value)


def test_a_suite_without_parameters_says_so(tmp_path: Path, settings: Settings) -> None:
    """Whatever is set."""
    with pytest.raises(
        UsageError, match=r"--set mode: there is no such parameter \(it declares none"
    ):
        read(
            tmp_path,
            settings,
            'name = "s"\nrun = ["sh", "-c", "true"]\n[[testcase]]\nname = "a"\n',
            mode="sim",
        )


SCRIPT = """
echo noise
export SIM_HOME="$SDK/{sim}" RUN_LIBS="/sdk/lib:$RUN_LIBS" OWN="script" SAME="$SAME"
plain=1
unset GONE
odd() { :; }
export -f odd
"""
SCRIPTED = """\
name = "s"
env_from = "$SDK/{mode}.bash"
env = { OWN = "suite" }
list = ["sh", "-c", 'echo "{{\\"name\\": \\"$OWN-$RUN_LIBS\\"}}" | tr / _']
run = ["sh", "-c", "true"]
[parameters]
mode = ["sim"]
"""
VARIABLES = {"RUN_LIBS": "/lib", "SAME": "same", "GONE": "there"}


def test_steps_and_lists_get_what_a_script_sets(tmp_path: Path, settings: Settings) -> None:
    """Only what it exports and changes; braces stay braces, and what the suite sets itself counts more."""
    (tmp_path / "sim.bash").write_text(SCRIPT, encoding="utf-8")
    variables = {**VARIABLES, "SDK": str(tmp_path)}
    suite = read(tmp_path, settings, SCRIPTED, variables)
    expected = {"SIM_HOME": f"{tmp_path}/{{{{sim}}}}", "RUN_LIBS": "/sdk/lib:/lib", "OWN": "suite"}
    work = work_of(suite, "s/suite-_sdk_lib:_lib@sim")
    assert work.run.env == expected


@pytest.mark.parametrize(
    ("script", "named", "expected"),
    [
        (
            "",
            "sim.sh",
            "suite.toml:2: env_from: there is no script {folder}/sim.sh (did you mean 'sim.bash'?",
        ),
        ("", "no/file", "suite.toml:2: env_from: there is no script {folder}/no/file"),
        (
            "echo oh no >&2; return 3",
            "sim.bash",
            "suite.toml:2: env_from: oh no: ended with exit code 3: bash --noprofile --norc -c ... ",
        ),
        (
            "exit 0",
            "sim.bash",
            "suite.toml:2: env_from: {folder}/sim.bash has ended the shell that read it",
        ),
        (
            "",
            "$RUN_LIB/sim.bash",
            "suite.toml:2: env_from: '$RUN_LIB/sim.bash' names the variable RUN_LIB, and that is not set"
            " (did you mean $RUN_LIBS",
        ),
        (
            "export A=$'\\xff'",
            "sim.bash",
            "suite.toml:2: env_from: {folder}/sim.bash sets A to what is not",
        ),
        (
            "",
            "{moed}.bash",
            "suite.toml:2: env_from: {{moed}} is not defined here; did you mean {{mode}}",
        ),
    ],
)
def test_a_script_that_fails_is_told(
    tmp_path: Path, settings: Settings, script: str, named: str, expected: str
) -> None:
    """Where it is named, with its exit status or what is wrong with it."""
    (tmp_path / "sim.bash").write_text(script, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read(tmp_path, settings, SCRIPTED.replace("$SDK/{mode}.bash", named), VARIABLES)
    said = str(refused.value).removeprefix(f"{tmp_path}/")
    assert said.startswith(expected.format(folder=tmp_path))
