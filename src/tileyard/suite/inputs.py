"""The files that a step names without saying so: they stand among its arguments and variables."""

import re
from pathlib import Path

from tileyard.targets.command.records import Step
from tileyard.workers.file_digests import is_file

END = r"[^\s\"'`:;,|&<>(){}]+"
"""What a path within a longer text consists of."""


def find_named(step: Step, folder: Path) -> list[str]:
    """Arguments that are files as seen from the suite's folder, and files of that folder within longer texts.

    These are such as ``--data={suite}/a.txt``. What is known only when the step runs names none.
    """
    within = re.compile(re.escape(f"{folder}/") + END)
    found = {text: None for text in step.argv if "{" not in text and is_file(folder, text)}
    for text in (*step.argv, *step.env.values()):
        for name in within.findall(text):
            # A path that goes on with a place is none yet.
            if f"{name}{{" not in text and is_file(folder, name):
                found[name] = None
    return list(found)
