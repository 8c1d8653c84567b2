"""Finds what in a module's source decides its imports and the programs it starts, once per source."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_LOOKED_AT = re.compile(
    rb"system|popen|exec|spawn|startfile|create_subprocess|import_module|__import__|run_module|run_path"
    rb"|SourceFileLoader|spec_from_file_location|ExtensionFileLoader|eval|compile|meta_path|path_hooks|argv"
)
_NAMES_PATH = re.compile(rb"\bsys\b.*\bpath\b|\bpath\b.*\bsys\b", re.DOTALL)
"""Texts in which more than an import can matter. Names in other letters can be equal to these."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Relevant nodes, whether arguments change, names of arguments only, and lines that change paths."""

    nodes: tuple[ast.AST, ...] = ()
    sets_arguments: bool = False
    given: frozenset[str] = frozenset()
    path_lines: tuple[int, ...] = ()
    problem: str = ""


@lru_cache(maxsize=4096)
def read_source(source: bytes) -> Source:
    """The relevant parts of a source; equal sources are read once."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        return Source(problem=str(error))
    if source.isascii() and not _LOOKED_AT.search(source) and not _NAMES_PATH.search(source):
        return Source(nodes=tuple(n for n in _walk_statements(tree) if _is_import(n)))
    nodes = list(ast.walk(tree))
    derived = {"__file__"}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and _names(statement.value) & derived:
            derived.update(t.id for t in statement.targets if isinstance(t, ast.Name))
    return Source(
        nodes=tuple(n for n in nodes if _is_import(n) or isinstance(n, ast.Call | ast.Attribute)),
        sets_arguments=any(
            isinstance(node, ast.Attribute | ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and is_of_arguments(node)
            for node in nodes
        ),
        given=frozenset(_find_given(nodes)),
        path_lines=tuple(
            getattr(node, "lineno", 0)
            for node in nodes
            if _changes_path(node) and not _names(node) & derived
        ),
    )


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements of a module, including nested ones."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop(0)
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            left += inner if isinstance(inner, list) else ()


def _find_given(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that are only ever set to arguments of the program."""
    given: set[str] = set()
    others: list[str] = []
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value) if is_of_arguments(value):
                given.update(name for target in targets for name in _names(target))
            case ast.Name(id=name, ctx=ast.Store()):
                others.append(name)
            case ast.arg(arg=name):
                others += [name, name]
            case _:
                pass
    return {name for name in given if others.count(name) == 1}


def is_of_arguments(node: ast.expr) -> bool:
    """Whether a node is ``sys.argv``, or a part of it."""
    match node:
        case ast.Subscript(value=value):
            return is_of_arguments(value)
        case ast.Attribute(attr="argv", value=ast.Name(id="sys")):
            return True
        case _:
            return False


def _changes_path(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=called, value=value)):
            return called == "addsitedir" or (called not in ("remove", "pop") and _is_path(value))
        case ast.Assign(targets=targets):
            return any(_is_path(t.value if isinstance(t, ast.Subscript) else t) for t in targets)
        case ast.AugAssign(target=target):
            return _is_path(target)
        case _:
            return False


def _is_path(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr="path", value=ast.Name(id="sys")):
            return True
        case _:
            return False


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
