"""The same option is called and described alike in every verb."""

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tileyard.cli.main import app, list_verbs
from tileyard.verbs.exec import help as exec_help
from tileyard.verbs.lease import help as lease_help

SINGLE = {"durations", "shape", "strategy"}
"""Options of which some verbs take one value and others several."""
OWN_TEXTS = {
    *("--arg", "--budget", "--config", "--hosts", "--jobs-file", "--output", "--pipeline"),
    *("--shape", "--slots", "--strategy"),
}
"""Options that do not do the same in all verbs: one writes a page, another a bundle."""
COMMAND: Any = get_command(app)


def described() -> Iterator[tuple[str, str, str, str]]:
    """Each option: the verb, its name, its metavar but for standard output, and its help."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, str, str, str]]:  # noqa: ANN401 (typer's)
        for one in command.params:
            if one.param_type_name == "option" and one.name != "help":
                yield path, one.opts[0], (one.metavar or "").removesuffix("|-"), one.help
        for word, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {word}".strip())

    return walk(COMMAND, "")


def list_words(command: Any) -> set[str]:  # noqa: ANN401 (typer's)
    """The names of all commands."""
    inner = getattr(command, "commands", {})
    return {*inner}.union(*map(list_words, inner.values()))


def test_equal_names_are_the_same_option() -> None:
    """They have one metavar, and one help text except for what each verb does with the value."""
    seen: dict[str, tuple[str, str, str]] = {}
    differing = []
    for verb, name, metavar, text in described():
        first, *expected = seen.setdefault(name, (verb, metavar, text))
        compared = 1 if name in OWN_TEXTS else 2
        if [metavar, text][:compared] != expected[:compared]:
            differing.append(f"{name} of {first or 'tileyard'} and {verb}")
    assert not differing
    assert len(seen) > 100


def test_help_is_of_its_own_command() -> None:
    """No text says what another command takes, writes or does with the value."""
    others = "|".join(sorted(list_words(COMMAND)))
    verbs = rf"(?:{others})(?: and (?:{others}))?"
    acts = re.compile(rf"(?:^|[;:.,] ){verbs} (?:takes?|writes?|chooses?|decides?) ")
    assert not [f"{verb} {name}" for verb, name, _, text in described() if acts.search(text)]
    assert acts.search("A value; tune and compile take several.")


def test_equal_names_take_the_same_values() -> None:
    """So one default of a project's file serves all verbs, also those that read arguments themselves."""
    seen: dict[str, tuple[object, ...]] = {}
    for verb, options in list_verbs(COMMAND).items():
        for key, one in options.items():
            kind = "" if key in SINGLE else one.kind
            metavar = one.metavar.removesuffix("|-")  # where - is none, a default of - is refused
            found = (kind, one.choices, metavar, one.flags[0])
            assert seen.setdefault(key, found) == found, (verb, key)


def test_a_limit_is_called_a_limit() -> None:
    """Devices, limits and outputs have one name each; others are those that another tool uses."""
    names = {flag for _, flag, _, _ in described()}
    names |= {one.flags[0] for one in (*lease_help.OPTIONS.values(), *exec_help.OPTIONS.values())}
    gone = {"--device", "--queue-timeout", "--timeout", "--cpu-level", "--out", "--suite"}
    assert not names & gone


def test_help_that_is_written_by_hand_lists_its_options() -> None:
    """Each once, with the metavar under which other verbs have it."""
    for help_text, options in (
        (lease_help.HELP, lease_help.OPTIONS),
        (exec_help.HELP, exec_help.OPTIONS),
    ):
        shown = dict(re.findall(r"(?m)^  --([a-z-]+) ([A-Z]*)", help_text))
        assert shown == {key: one.metavar for key, one in options.items()}
