"""What a code object says it will look up when it runs: global names and modules."""

import dis
import types
from collections.abc import Iterator


def global_names(code: types.CodeType) -> Iterator[str]:
    """The global names that a function or the code nested in it reads."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from global_names(const)


def imports(code: types.CodeType) -> Iterator[tuple[str, int]]:
    """The modules that a function imports when it runs, each with its number of leading dots."""
    before: list[object] = [None, None]
    for instruction in dis.get_instructions(code):
        if instruction.opname == "EXTENDED_ARG":
            continue
        if instruction.opname == "IMPORT_NAME":
            level = before[0]
            yield instruction.argval, level if isinstance(level, int) else 0
        before = [before[1], instruction.argval]
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from imports(const)
