"""Programs that are run while a suite is read: commands that list cases, scripts that set variables."""

import os
import re
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from tileyard.processes.steps import Printed, StepOrder, describe_kind, insist_on
from tileyard.suite.files.places import Place
from tileyard.suite.files.steps import VARIABLE

LIMIT_S = 120.0
MOST_BYTES = 256 << 20
"""Most bytes that such a program may print: a suite of a million cases has less."""
OF_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
"""Variables that a shell sets by itself."""
_NAMED = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_MARK = b"="
"""Stands between two lists of variables: none of them has a name that is empty."""
_READ = (
    "list=$(command -v env) || exit; "
    '"$list" -0; printf "=\\0"; source "$0" 1>&2 || exit; "$list" -0'
)


def run_program(
    argv: tuple[str, ...], env: dict[str, str], cwd: Path, limit_s: float, place: Place
) -> bytes:
    """What a program prints. Raises UsageError with code or signal, argv, folder and its last words."""
    called = f"{shlex.join(argv)} in {cwd}"
    printed = Printed(MOST_BYTES)
    order = StepOrder(argv=argv, env=env, cwd=str(cwd), log=os.devnull, limit_s=limit_s)
    end = insist_on(order, printed.data.clear, printed)
    if end.refusal:
        why = os.strerror(end.errno) if end.errno else end.refusal
        place.fail(f"cannot be started ({why}): {called}")
    if printed.wants_end():
        place.fail(f"printed more than {MOST_BYTES >> 20} MiB: {called}")
    if not end.ok:
        tail = end.tail.strip()
        said = f"\n{tail}" if tail else "; it wrote nothing to stderr"
        place.fail(f"{describe_kind(end, order)}: {called}{said}")
    return bytes(printed.data)


def read_variables(script: str, environ: Mapping[str, str], place: Place) -> dict[str, str]:
    """The variables that a script for bash exports, or changes, where it is sourced.

    ``$NAME`` in its path is a variable of ``environ``; the path is relative to the suite file, in whose folder
    it runs. What it unsets stays as it is. Raises UsageError.
    """
    folder = place.document.folder
    path = folder / _expand(script, environ, place)
    if not path.is_file():
        beside = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
        near = get_close_matches(path.name, beside, n=1)
        place.fail(f"there is no script {path}", f"did you mean {near[0]}" if near else "")
    argv = ("bash", "--noprofile", "--norc", "-c", _READ, str(path))
    before, mark, after = run_program(argv, dict(environ), folder, LIMIT_S, place).partition(
        b"\0" + _MARK + b"\0"
    )
    if not (mark and after):
        place.fail(f"{path} has ended the shell that read it")
    known = _read_list(before)
    found = {}
    for name, value in _read_list(after).items():
        if known.get(name) == value or name in OF_SHELL or VARIABLE.fullmatch(name) is None:
            continue
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            place.fail(f"{path} sets {name} to what is not UTF-8")
    return found


def _expand(text: str, environ: Mapping[str, str], place: Place) -> str:
    def find(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environ:
            near = get_close_matches(name, environ, n=1)
            hint = f"did you mean ${near[0]}" if near else ""
            place.fail(f"{text!r} names the variable {name}, and that is not set", hint)
        return environ[name]

    return _NAMED.sub(find, text)


def _read_list(data: bytes) -> dict[str, bytes]:
    """What ``env -0`` prints, by name."""
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    return {name.decode(errors="replace"): value for name, _, value in pairs}
