"""Programs that are run while a suite is read: commands that list cases, scripts that set variables."""

import re
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.places import Place
from tileyard.processes import answers

_NAMED = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def run_program(
    argv: tuple[str, ...], env: dict[str, str], cwd: Path, limit_s: float, place: Place
) -> bytes:
    """What a program prints. Raises UsageError with code or signal, argv, folder and its last words."""
    try:
        return answers.run_program(argv, env, cwd, limit_s or answers.LIMIT_S)
    except UsageError as error:
        place.fail(error.message)


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
    try:
        return answers.find_set(f"source {shlex.quote(str(path))}", environ, folder, str(path))
    except UsageError as error:
        place.fail(error.message)


def _expand(text: str, environ: Mapping[str, str], place: Place) -> str:
    def find(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environ:
            near = get_close_matches(name, environ, n=1)
            hint = f"did you mean ${near[0]}" if near else ""
            place.fail(f"{text!r} names the variable {name}, and that is not set", hint)
        return environ[name]

    return _NAMED.sub(find, text)
