"""Reads how a step calls Python: which code it runs, and what the interpreter reports about itself."""

import re
from collections.abc import Sequence

from tileyard.base.model import Record

WITHOUT_VALUE = re.compile(r"-(B|bb?|d|E|i|I|OO?|P|q|R|s|S|u|v)")
"""Options of Python that take no value."""
PROBE = """
import sys
sys.path[:] = [place for place in sys.path if place]
import json, site, sysconfig
paths = sysconfig.get_paths()
installed = [*site.getsitepackages(), paths["purelib"], paths["platlib"]]
installed += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
own = [paths["stdlib"], paths["platstdlib"], *(p for p in sys.path if p.endswith((".zip", "lib-dynload")))]
names = sorted(sys.stdlib_module_names)
print(json.dumps(dict(path=sys.path, installed=installed, own=own, own_names=names, version=sys.version)))
"""
"""Run in ``/``, without using anything there: older Pythons do not know ``-P``."""


class PythonCall(Record):
    """How an interpreter is called: files with code, the first of them the script if it ``is_script``."""

    options: tuple[str, ...]
    code: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    is_script: bool = False


def read_call(arguments: Sequence[str]) -> PythonCall | str:
    """The call, or why it is not understood."""
    options: list[str] = []
    left = list(arguments)
    while left:
        first = left.pop(0)
        files = tuple(text for text in left if text.endswith(".py"))
        if WITHOUT_VALUE.fullmatch(first):
            options.append(first)
        elif first in ("-W", "-X") and left:
            options += [first, left.pop(0)]
        elif first.startswith(("-W", "-X")) and len(first) > 2:
            options.append(first)
        elif first == "-c" and left:
            return PythonCall(options=tuple(options), code=(left[0],), files=files)
        elif first == "-m" and left:
            return PythonCall(options=tuple(options), modules=(left[0],), files=files)
        elif first.startswith("-"):
            break
        else:
            return PythonCall(options=tuple(options), files=(first, *files), is_script=True)
    return "which code Python runs is not among its arguments"


class PythonSite(Record):
    """What an interpreter reports: its places of modules after the script's folder, and its own modules."""

    path: tuple[str, ...]
    installed: tuple[str, ...]
    own: tuple[str, ...]
    own_names: frozenset[str]
    version: str
