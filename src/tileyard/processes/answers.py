"""Runs programs for their output: all of it, or the variables that shell text sets."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.processes.steps import Printed, StepOrder, describe_kind, find_telling, insist_on

LIMIT_S = 120.0
MOST_BYTES = 256 << 20
"""Most bytes that such a program may print: a suite of a million cases has less."""
LONGEST = 60
"""Longest argument, in characters, that a message shows with the spaces in it."""
OF_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
"""Variables that a shell sets by itself."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARK = b"="
"""Separates two lists of variables: none of them has an empty name."""
_READ = (
    "list=$(command -v env) || exit; "
    '"$list" -0; printf "=\\0"; text=$1; shift; eval "$text" 1>&2 || exit; "$list" -0'
)


def run_program(
    argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, limit_s: float = LIMIT_S
) -> bytes:
    """What a program prints. Raises UsageError with code or signal, argv, folder and its last words."""
    called = f"{shlex.join(map(_shorten, argv))} in {cwd}"
    printed = Printed(MOST_BYTES)
    order = StepOrder(argv=argv, env=dict(env), cwd=str(cwd), log=os.devnull, limit_s=limit_s)
    end = insist_on(order, printed.data.clear, printed)
    if end.refusal:
        why = os.strerror(end.errno) if end.errno else end.refusal
        raise UsageError(f"cannot be started ({why}): {called}")
    if printed.wants_end():
        raise UsageError(f"printed more than {MOST_BYTES >> 20} MiB: {called}")
    if not end.ok:
        telling = find_telling(end.tail)
        said = f"{telling}: " if telling else ""
        silent = "" if telling else "; it wrote nothing to stderr"
        raise UsageError(f"{said}{describe_kind(end, order)}: {called}{silent}")
    return bytes(printed.data)


def _shorten(argument: str) -> str:
    return "..." if len(argument) > LONGEST and len(argument.split()) > 1 else argument


def find_set(text: str, environ: Mapping[str, str], cwd: Path, called: str) -> dict[str, str]:
    """The variables that this text for bash exports or changes; ``called``: its ``$0``. Raises UsageError."""
    argv = ("bash", "--noprofile", "--norc", "-c", _READ, called, text)
    before, mark, after = run_program(argv, environ, cwd).partition(b"\0" + _MARK + b"\0")
    if not (mark and after):
        raise UsageError(f"{called} has ended the shell that read it")
    known = _read_list(before)
    found = {}
    for name, value in _read_list(after).items():
        if known.get(name) == value or name in OF_SHELL or VARIABLE.fullmatch(name) is None:
            continue
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{called} sets {name} to what is not UTF-8") from None
    return found


def _read_list(data: bytes) -> dict[str, bytes]:
    """The output of ``env -0``, by name."""
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    return {name.decode(errors="replace"): value for name, _, value in pairs}
