"""Finds the package's modules that decide what a target builds: all it imports, even indirectly."""

import functools
import re
from pathlib import Path

from tileyard.artifacts.keys import digest_bytes, digest_parts

_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(
    r"^[ \t]*(?:from (tileyard(?:\.\w+)*) import (\([^)]*\)|.*)|import (tileyard(?:\.\w+)+))",
    re.MULTILINE,
)


@functools.cache
def digest_own_sources(module: str) -> str:
    """The digest of a module and of everything it imports from this package, for a fingerprint."""
    found = find_own_sources(module)
    return digest_parts(*(part for name in sorted(found) for part in (name, found[name])))


def find_own_sources(module: str) -> dict[str, str]:
    """The digests of a module's source and of all that it imports from this package, by name.
    Imports in functions count, the package's ``__init__``, only the public names, does not.
    """
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _find_file(name)
        if name in found or file is None:
            continue
        data = file.read_bytes()
        found[name] = digest_bytes(data)
        waiting.append(name.rpartition(".")[0])
        for package, names, whole in _IMPORT.findall(data.decode()):
            waiting.append(package or whole)
            waiting += (f"{package}.{one}" for one in re.findall(r"\w+", names))
    return found


def _find_file(name: str) -> Path | None:
    path = _PACKAGE.joinpath(*name.split(".")[1:])
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in files if path != _PACKAGE and file.is_file()), None)
