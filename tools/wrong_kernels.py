"""Runs kernels with one mistake each: ``python -m tools.wrong_kernels [KERNEL ...]``.

All wrong kernels that count (``tests/sync/wrong_kernels.py``), and the right ones, run with ``tileyard
test``. Prints why the others do not count, how those of each kind end first, and each one that passes at all
its shapes. Exit status 1 if there is one, or if a right kernel fails. With all kernels it takes about twenty
minutes on two cores.
"""

import json
import logging
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from tests.sync.wrong_kernels import KINDS, SUBJECTS, Subject, tell_apart, write_file, wrong_kernels

from tileyard.base.wording import count_of

IDLE = "that do not count"


def run_file(path: Path) -> dict[str, Counter[str]]:
    """How the cases of each kernel of a file end in ``tileyard test``."""
    command = [sys.executable, "-m", "tileyard", "test", path.name, "--json"]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in json.loads(done.stdout)["verdicts"]:
        ended[one["case"].partition("/")[0]][one["outcome"]] += 1
    return ended


def try_subject(subject: Subject, folder: Path, kinds: dict[str, Counter[str]]) -> list[str]:
    """Run a kernel and its mutants; count how these end by kind, and return the ones that end badly."""
    wrong = wrong_kernels(subject)
    path = folder / f"{subject.kernel}.py"
    write_file(subject, wrong, path)
    counted = []
    for mutant, reason in zip(wrong, tell_apart(subject, wrong, path), strict=True):
        if reason:
            kinds[mutant.operator][IDLE] += 1
            print(f"{subject.file}: {mutant.name}: does not count: {reason}")
        else:
            counted.append(mutant)
    write_file(subject, counted, path)
    ended = run_file(path)
    right = set(ended[f"{subject.kernel}__right"])
    bad = [] if right == {"passed"} else [f"{subject.file}: {subject.kernel} is right: {right}"]
    for number, mutant in enumerate(counted):
        outcomes = ended[f"{subject.kernel}__{number}"]
        failures = [one for one in outcomes if one != "passed"]
        kinds[mutant.operator][failures[0] if failures else "passed"] += 1
        if failures and outcomes["passed"]:
            print(f"{subject.file}: {mutant.name}: passed at {outcomes['passed']} of 3 shapes")
        if not failures:
            bad.append(f"{subject.file}: {mutant.name}: passed: {mutant.statement}")
    return bad


def main(only: list[str]) -> int:
    """Try the subjects of these names, or all."""
    logging.disable(logging.CRITICAL)
    kinds: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for subject in SUBJECTS:
            if not only or subject.kernel in only:
                bad += try_subject(subject, Path(folder), kinds)
    for kind, counts in kinds.items():
        print(f"{kind}: {', '.join(f'{n} {name}' for name, n in counts.most_common())}")
    print("\n".join(bad) or "no wrong kernel passes, and no right one fails")
    count = sum(counts.total() - counts[IDLE] for counts in kinds.values())
    print(f"{count_of(count, 'wrong kernel')} counted")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
