"""Plants one-line faults, spread over the rooms, and asks which tests notice them.

``python tools/planted_faults.py list`` prints them, ``... show N`` one as a difference. ``... try [N ...] --
COMMAND`` plants each in turn in the source of this checkout, which must be clean, runs a command, and takes
the fault out again: the command has noticed it if it ends with a status other than 0. Which faults there are
follows from ``--seed``, ``--count`` and the source alone, so two revisions with the same source have the same
ones.
"""

import argparse
import ast
import difflib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path("src/tileyard")
SEED, COUNT = 48, 20
SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: (" in ", " not in "),
    ast.NotIn: (" not in ", " in "),
    ast.Is: (" is ", " is not "),
    ast.IsNot: (" is not ", " is "),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.And: (" and ", " or "),
    ast.Or: (" or ", " and "),
}
"""Operators, each with the one that a fault has instead."""


@dataclass(frozen=True)
class Fault:
    """One changed line. ``start`` and ``end`` are columns."""

    file: Path
    line: int
    start: int
    end: int
    text: str

    def plant(self) -> str:
        """The text of the file with the fault."""
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.text + line[self.end :]
        return "".join(lines)


def draw_faults(seed: int, count: int) -> list[Fault]:
    """So many faults, each in another room until each has one."""
    chance = random.Random(seed)
    rooms: dict[str, list[list[Fault]]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        if sites := list(list_sites(file)):
            rooms.setdefault(file.relative_to(SOURCE).parts[0], []).append(sites)
    order: list[str] = []
    while len(order) < count:
        order += chance.sample(sorted(rooms), len(rooms))
    return [chance.choice(chance.choice(rooms[room])) for room in order[:count]]


def list_sites(file: Path) -> Iterator[Fault]:
    """The places inside of functions at which an operator, a ``not`` or a truth value can be changed."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    functions = [
        n
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    statements = [statement for function in functions for statement in function.body]
    for node in {id(n): n for statement in statements for n in ast.walk(statement)}.values():
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from swap(file, lines, operator, left, right)
            case ast.BinOp(left=left, op=operator, right=right):
                yield from swap(file, lines, operator, left, right)
            case ast.BoolOp(op=operator, values=[left, right]):
                yield from swap(file, lines, operator, left, right)
            case ast.UnaryOp(op=ast.Not()) if lines[node.lineno - 1].isascii():
                yield Fault(file, node.lineno, node.col_offset, node.col_offset + len("not "), "")
            case ast.Constant(value=bool() as value) if lines[node.lineno - 1].isascii():
                end = node.col_offset + len(str(value))
                yield Fault(file, node.lineno, node.col_offset, end, str(not value))


def swap(
    file: Path, lines: list[str], operator: ast.AST, left: ast.expr, right: ast.expr
) -> Iterator[Fault]:
    """The fault that has another operator between two expressions, if all is on one line."""
    old, new = SWAPPED.get(type(operator), ("", ""))
    if not old or not left.end_lineno == right.lineno == left.lineno:
        return
    line = lines[left.lineno - 1]
    place = line.find(old, left.end_col_offset or 0, right.col_offset)
    if place >= 0 and line.isascii():
        yield Fault(file, left.lineno, place, place + len(old), new)


def show(fault: Fault) -> str:
    """The fault as a difference of one line."""
    before = fault.file.read_text(encoding="utf-8").splitlines()
    after = fault.plant().splitlines()
    return "\n".join(
        difflib.unified_diff(before, after, str(fault.file), str(fault.file), n=1, lineterm="")
    )


def attempt(fault: Fault, command: list[str]) -> dict[str, object]:
    """Run a command with the fault in place, and take it out again."""
    sound = fault.file.read_text(encoding="utf-8")
    begun = time.monotonic()
    try:
        fault.file.write_text(fault.plant(), encoding="utf-8")
        code = subprocess.run(command, check=False).returncode
    finally:
        fault.file.write_text(sound, encoding="utf-8")
    seconds = round(time.monotonic() - begun, 1)
    return {"file": str(fault.file), "line": fault.line, "noticed": code != 0, "seconds": seconds}


def main() -> int:
    """List, show or try faults; 1 if one was tried and not noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("action", choices=("list", "show", "try"))
    parser.add_argument("numbers", type=int, nargs="*", help="which ones [all]")
    words = sys.argv[1:]
    command = words[words.index("--") + 1 :] if "--" in words else []
    options = parser.parse_args(words[: words.index("--")] if command else words)
    faults = draw_faults(options.seed, options.count)
    numbers = options.numbers or range(1, len(faults) + 1)
    if options.action == "try":
        status = subprocess.run(
            ["git", "status", "--porcelain", SOURCE], capture_output=True, check=True
        )
        if status.stdout or not command:
            parser.error("the source has changes" if status.stdout else "no command after --")
    all_noticed = True
    for number in numbers:
        fault = faults[number - 1]
        if options.action == "try":
            result = attempt(fault, command)
            all_noticed = all_noticed and bool(result["noticed"])
            print(json.dumps({"fault": number, **result}), flush=True)
        else:
            line = fault.plant().splitlines()[fault.line - 1].strip()
            print(
                show(fault)
                if options.action == "show"
                else f"{number:2} {fault.file}:{fault.line}: {line}"
            )
    return 0 if all_noticed else 1


if __name__ == "__main__":
    sys.exit(main())
