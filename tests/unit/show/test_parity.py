"""The six verbs have the same options on the command line and in Python, whose values are read alike."""

import inspect
import re
from collections.abc import Mapping, Sequence
from os import PathLike

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ROOT
from typer.main import get_command

import tileyard
from tileyard.base.errors import UsageError
from tileyard.cli.main import app
from tileyard.show.options import complete, flatten, list_fields, spelled_for_python
from tileyard.verbs.check.options import CheckOptions
from tileyard.verbs.compile.options import CompileOptions
from tileyard.verbs.regress.options.regress import BisectOptions, RegressOptions
from tileyard.verbs.strategies.command import CompareOptions
from tileyard.verbs.test import options as suites
from tileyard.verbs.test.options import PlanOptions
from tileyard.verbs.tune.options import RunOptions, TuneArguments, TuneOptions

RECORDS: Mapping[str, type] = {
    "tune": TuneOptions,
    "compile": CompileOptions,
    "check": CheckOptions,
    "plan": PlanOptions,
    "test": suites.TestOptions,
    "regress": RegressOptions,
}
VERBS = sorted(RECORDS)


def options_of(verb: str) -> dict[str, tuple[object, str]]:
    """What the command line takes: by name the default and the help of each option."""
    command = getattr(get_command(app), "commands")[verb]  # noqa: B009 - typer hides its type
    return {
        one.name: (one.default, one.help)
        for one in command.params
        if one.param_type_name == "option" and one.name != "help"
    }


def table() -> dict[str, list[set[str]]]:
    """What the page says of each verb: the names in its last two columns."""
    text = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|$", text)
    return {row[0]: [set(re.findall(r"`-*(\w+)`", cell)) for cell in row[1:]] for row in rows}


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_the_same(verb: str) -> None:
    """In name, default and help; but for those that the page has for one of both alone."""
    of_python, of_commands = table()[verb]
    shown = options_of(verb)
    taken = {
        name: one.default
        for name, one in inspect.signature(getattr(tileyard, verb)).parameters.items()
        if one.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert {name: shown[name][0] for name in shown.keys() - of_commands} == {
        name: taken[name] for name in taken.keys() - of_python
    }
    assert of_commands <= shown.keys()
    assert of_python <= taken.keys()
    told = getattr(tileyard, verb).__doc__
    for name in taken.keys() - of_python:
        assert f"{name}: {shown[name][1]}\n" in told


@pytest.mark.parametrize("verb", VERBS)
def test_flags_follow_from_names(verb: str) -> None:
    """Each option of a record can be written as its name says."""
    command = getattr(get_command(app), "commands")[verb]  # noqa: B009 - typer hides its type
    written = {one.name: one.opts for one in command.params}
    for name, field in list_fields(RECORDS[verb]).items():
        if not field.option.for_python:
            assert f"--{name.rstrip('_').replace('_', '-')}" in written[name]


TEXTS = [
    field
    for record in (*RECORDS.values(), TuneArguments, RunOptions, CompareOptions, BisectOptions)
    for field in list_fields(record).values()
    if {str, Sequence, Mapping, PathLike} & {*flatten(field.type)} and not field.option.for_python
]


@given(
    st.builds(
        str.__add__,
        st.sampled_from(["", "x=", "x=1,"]),
        st.text("019.,:=-+e%KiBsm_ na", max_size=9),
    )
    | st.text(max_size=9)
    | st.sampled_from(
        ["9" * 400, "9" * 5000, f"x={'9' * 400}", f"x={'9' * 5000}", f"x={'9' * 400}KiB"]
    ),
)
def test_any_text_is_read_or_refused(text: str) -> None:
    """With the name of the option, and never as a failure of ours."""
    for field in TEXTS:
        takes_several = Sequence in flatten(field.type) and PathLike not in flatten(field.type)
        refusal = field.flag
        try:
            field.option.read([text] if takes_several else text, field.flag)
        except UsageError as refused:
            refusal = refused.message
        assert field.flag in refusal


def test_each_verb_is_on_the_page() -> None:
    """With what it gives."""
    assert set(table()) == set(RECORDS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"overlap": "yes"}, "overlap must be True or False, not 'yes'"),
        ({"trials": True}, "trials must be a whole number, not True"),
        ({"trials": 0}, "trials 0 is less than 1"),
        ({"config": 3}, "config must be a mapping or a list or None, not 3"),
        ({"where": 3}, "where must be text or a list or a function or None, not 3"),
        ({"home": 3}, "home must be text or a path or None, not 3"),
        ({"budgets": 3}, "there is no option 'budgets' (there is budget)"),
        ({"no_check": 1}, "there is no option 'no_check' (there is check=False)"),
        ({"x": 1}, "there is no option 'x' (help() of the function lists all)"),
    ],
)
def test_values_of_a_wrong_type_are_refused(given: TuneOptions, expected: str) -> None:
    """In one line that names the option."""
    with pytest.raises(UsageError) as refused, spelled_for_python(TuneOptions):
        complete(TuneOptions, given)
    assert str(refused.value) == expected


def test_what_is_not_given_has_its_default() -> None:
    """And what is given stays."""
    found = complete(PlanOptions, {"per": "case"})
    assert found["per"] == "case"
    assert found["split"] == "auto"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--no-check: x", "check=False: x"),
        ("--require-check and --fresh", "require_check=True and resume=False"),
        ("--compile-workers 0", "compile_workers 0"),
        ("git --no-check-sync", "git check_sync=False"),
        ("say --shape-less, a--shape", "say --shape-less, a--shape"),
    ],
)
def test_errors_spell_options_as_python_does(text: str, expected: str) -> None:
    """Whole words only, and only those of the verb."""
    with pytest.raises(UsageError) as refused, spelled_for_python(TuneOptions):
        raise UsageError(text)
    assert refused.value.message == expected
