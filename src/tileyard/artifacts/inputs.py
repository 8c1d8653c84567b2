"""Finds the files of a suite that steps name, and packs them for another machine."""

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tileyard.artifacts.digests import find_arguments, find_files, is_file
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.trees import Trees
from tileyard.base.model import Digest, Step

END = r"[^\s\"'`:;,|&<>(){}]+"
"""What a path within a longer text consists of."""


def list_inputs(steps: Iterable[Step], folder: Path) -> frozenset[str]:
    """The files, folders and globs of a suite's folder that these steps name."""
    return frozenset(name for one in steps for name in (*one.inputs, *find_named(one, folder)))


def pack_inputs(patterns: Iterable[str], folder: Path, objects: ObjectStore) -> Digest:
    """A tree of the files in a folder that match. Raises UsageError and HomeError."""
    found = {file for pattern in patterns for file in find_files(folder, pattern)}
    with tempfile.TemporaryDirectory() as name:
        for file in sorted(file for file in found if file.is_relative_to(folder)):
            into = Path(name, file.relative_to(folder))
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, into)
        return Trees(objects).put(Path(name))


def find_named(step: Step, folder: Path) -> list[str]:
    """The files that a step names in arguments and variables without declaring them: whole arguments, and
    files of that folder in longer texts, as ``--data={suite}/a.txt``, which it may read or write: these are
    packed and in no key.
    """
    within = re.compile(re.escape(f"{folder}/") + END)
    found = dict.fromkeys(find_arguments(step, folder))
    for text in (*step.argv, *step.env.values()):
        for name in within.findall(text):
            # A path that continues with a place is not complete yet.
            if f"{name}{{" not in text and is_file(folder, name):
                found[name] = None
    return list(found)
