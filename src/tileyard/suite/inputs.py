"""The files that a step names without saying so: they stand among its arguments and variables."""

import re
from pathlib import Path

from tileyard.model import Step
from tileyard.workers.file_digests import find_arguments, is_file

END = r"[^\s\"'`:;,|&<>(){}]+"
"""What a path within a longer text consists of."""


def find_named(step: Step, folder: Path) -> list[str]:
    """These, and files of that folder within longer texts, such as ``--data={suite}/a.txt``.

    A step may read or write the latter: they travel with it, and are part of no key. What is known only when
    the step runs names none.
    """
    within = re.compile(re.escape(f"{folder}/") + END)
    found = dict.fromkeys(find_arguments(step, folder))
    for text in (*step.argv, *step.env.values()):
        for name in within.findall(text):
            # A path that goes on with a place is none yet.
            if f"{name}{{" not in text and is_file(folder, name):
                found[name] = None
    return list(found)
