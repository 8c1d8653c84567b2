"""Runs programs while a suite is read: commands that list cases, scripts that set variables."""

import re
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from tileyard.base.errors import UsageError
from tileyard.base.places import Place
from tileyard.processes import answers
from tileyard.verbs.test.plan.files.nearest import name_nearest

_NAMED = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def run_program(
    argv: tuple[str, ...], env: dict[str, str], cwd: Path, limit_s: float, place: Place
) -> bytes:
    """The output of a program. Raises UsageError with code or signal, argv, folder and its last words."""
    try:
        return answers.run_program(argv, env, cwd, limit_s or answers.LIMIT_S)
    except UsageError as error:
        place.fail(error.message)


def read_variables(script: str, environ: Mapping[str, str], place: Place) -> dict[str, str]:
    """The variables that a bash script exports or changes when sourced in the suite file's folder; not those
    that it unsets. Its path is relative to that folder and may use ``$NAME`` of ``environ``. Raises
    UsageError.
    """
    folder = place.document.folder
    path = folder / _expand(script, environ, place)
    if not path.is_file():
        place.fail(f"there is no script {path}", name_nearest(path))
    try:
        return answers.find_set(f"source {shlex.quote(str(path))}", environ, folder, str(path))
    except UsageError as error:
        place.fail(error.message)


def _expand(text: str, environ: Mapping[str, str], place: Place) -> str:
    def find(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environ:
            near = get_close_matches(name, environ, n=1)
            hint = f"did you mean ${near[0]}?" if near else ""
            place.fail(f"{text!r} names the variable {name}, and that is not set", hint)
        return environ[name]

    return _NAMED.sub(find, text)
