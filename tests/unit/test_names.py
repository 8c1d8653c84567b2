"""No room but their own knows targets, classes of devices and databases by name: it asks what they need."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tileyard.devices.classes import CLASSES
from tileyard.targets.registry import BUILT_IN

SOURCE = Path(__file__).parents[2] / "src" / "tileyard"
NAMES = frozenset({*BUILT_IN, *CLASSES})
METHODS = frozenset({"endswith", "get", "removeprefix", "startswith"})
"""Methods that compare what they are given."""
OTHER_MEANINGS = {
    "processes/keeper/worker.py": "the key of a command line",
    "frontend/discover.py": "words of an error of torch or TVM",
    "frontend/tir_queries.py": "keys of TVM's targets",
    "processes/keeper/directory.py": "a line of a holder's file: the command that holds",
    "processes/keeper/holding.py": "a line of a holder's file: the command that holds",
    "processes/keeper/log.py": "a word of a line: the command that held",
    "verbs/doctor/view.py": "a column: the command that held",
    "verbs/exec/plan/run.py": "devices of torch and TVM",
    "verbs/exec/plan/torch_tensors.py": "devices of torch",
    "verbs/ci/plan/shell_commands.py": "a node of a parsed shell script, and the shell's own `command`",
    "verbs/ci/plan/workflow_duplicates.py": "a kind of work in workflows",
    "verbs/ci/plan/workflow_work.py": "a kind of work in workflows",
    "workers/golden.py": "devices of torch",
    "pytest_plugin/flags.py": "the default of an option, as pytest is told it",
}
"""Modules in which such a word names something else."""
ONE_FORMAT = {
    "verbs/tune/command/debugging.py": "gdb reads the C of the target cpu",
    "verbs/compile/command/inspect_session.py": "PTX, SASS and launch records are the target cuda's",
    "verbs/doctor/plan/checks.py": "a check of the C compiler",
    "verbs/doctor/plan/hosts.py": "what the targets cpu and cuda build with may differ between hosts",
    "verbs/compile/view.py": "launch records are the target cuda's",
    "verbs/regress/plan/sides.py": "which TileLang a side builds with is said to the target cuda alone",
}
"""Modules that are about what one target alone makes or takes."""


def modules(*texts: str) -> Iterator[tuple[str, ast.Module]]:
    """The modules outside of ``targets/`` and ``devices/`` that hold one of these texts, by their paths."""
    for name, text in read_sources().items():
        if not name.startswith(("targets/", "devices/")) and any(one in text for one in texts):
            yield name, ast.parse(text)


@cache
def read_sources() -> dict[str, str]:
    """The text of every module by its path."""
    paths = sorted(SOURCE.rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def find_comparisons(tree: ast.AST) -> Iterator[int]:
    """The lines that compare something with such a name, look it up, or hold it ready for that."""
    for node in ast.walk(tree):
        compared: list[ast.expr | None] = []
        match node:
            case ast.Compare(left=left, comparators=others):
                compared = [left, *others]
            case ast.MatchValue(value=value):
                compared = [value]
            case ast.Subscript(slice=key):
                compared = [key]
            case ast.Dict(keys=keys):
                compared = list(keys)
            case ast.Set(elts=items) | ast.Tuple(elts=items) | ast.List(elts=items):
                compared = list(items)
            case ast.Call(func=ast.Attribute(attr=attr), args=arguments) if attr in METHODS:
                compared = list(arguments)
        if any(map(is_name, compared)):
            yield node.lineno if isinstance(node, ast.expr | ast.pattern) else 0


def is_name(node: ast.expr | None) -> bool:
    """Whether an expression is the name of a target or a class, with or without what follows a colon."""
    match node:
        case ast.Constant(value=str(text)):
            return text.partition(":")[0] in NAMES
        case _:
            return False


def find_imports(tree: ast.AST) -> Iterator[str]:
    """The modules imported of a single compiling target; ``command`` is the suites' own."""
    prefixes = tuple(f"tileyard.targets.{name}." for name in BUILT_IN if name != "command")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(prefixes):
            yield node.module or ""


def test_nothing_is_compared_with_the_name_of_a_target_or_a_class() -> None:
    """What depends on a target is asked of its needs, what depends on a device of its class."""
    quoted = (f'"{name}' for name in NAMES)  # as the formatter leaves it
    found = {name: list(find_comparisons(tree)) for name, tree in modules(*quoted)}
    assert {name for name, lines in found.items() if lines} == set(OTHER_MEANINGS), found


def test_what_belongs_to_one_target_is_imported_where_it_is_meant() -> None:
    """A module that serves every target imports none of them."""
    expected = set(ONE_FORMAT)
    importing = modules("from tileyard.targets.")
    assert {name for name, tree in importing if any(find_imports(tree))} == expected


@pytest.mark.parametrize(
    "code",
    [
        "target == 'cuda'",
        "'cpu' != target.partition(':')[0]",
        "device.kind in ('cuda', 'npu')",
        "target not in {'cpu'}",
        "KINDS = frozenset({'cuda'})",
        "FILES = {'cuda': 'kernel.cu'}",
        "by_class['sim']",
        "by_class.get('rocm')",
        "target.startswith('cuda:')",
        "match target:\n    case 'cpu' | 'command':\n        pass",
    ],
)
def test_a_comparison_is_seen_in_every_form(code: str) -> None:
    """Also where it is a look-up, or a collection that one is made in."""
    assert list(find_comparisons(ast.parse(code)))


@pytest.mark.parametrize("code", ["TARGET = 'cpu'", "make_target('cpu', {})", "f(target='cuda')"])
def test_a_name_may_be_chosen(code: str) -> None:
    """A default, or an argument, compares nothing."""
    assert not list(find_comparisons(ast.parse(code)))


def test_only_the_store_knows_which_database_it_is() -> None:
    """Other rooms ask ``open_store``, so that another one is named in one place."""
    named = [name for name, text in read_sources().items() if "TrialStore" in text]
    assert [name for name in named if not name.startswith("store/")] == []
