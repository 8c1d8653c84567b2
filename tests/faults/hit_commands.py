"""Commands to be hit: what each is given, how its cases ended, and with which status it should end."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

FAULTS = ("infra_error", "queue_timeout")
WELL = ("passed", "unchecked", "skipped")
CASES = tuple(f"t{testcase}/{case}" for testcase in range(4) for case in "abc")
WRONG = "t3/c"
"""The case of the suite that ends as a mismatch."""

SUITE = """
name = "storm"
limits = { golden_s = 3, build_s = 5, run_s = 3 }
build = { argv = ["sh", "{suite}/build.sh", "{testcase}", "{out}"], inputs = ["build.sh", "p.c"] }
golden = { argv = ["sh", "{suite}/golden.sh", "{testcase}/{case}", "{out}"], inputs = ["golden.sh"] }
run = ["sh", "{suite}/run.sh", "{testcase}/{case}", "{build}/p"]
check = ["sh", "{suite}/check.sh", "{testcase}/{case}"]
"""
SCRIPTS = {
    "build.sh": 'cc -O2 -DNAME="\\"$1\\"" -o "$2/p" "$(dirname "$0")/p.c"\n',
    "golden.sh": f'sleep 0.05\n[ "$1" = {WRONG} ] && echo no > "$2/g" || echo "$1" > "$2/g"\n',
    "run.sh": 'sleep 0.1\nexec "$2" "$1" > output\n',
    "check.sh": "sleep 0.05\ncmp -s g output || exit 2\n",
    "p.c": """
        #include <stdio.h>
        #include <string.h>
        int main(int count, char **words) {
            printf("%s/%s\\n", NAME, strchr(words[1], '/') + 1);
            return count != 2;
        }
    """,
}


def write_suite(folder: Path) -> None:
    """Write the suite of programs into a folder."""
    folder.mkdir()
    cases = ", ".join(f'{{ name = "{name}" }}' for name in "abc")
    testcases = [f'[[testcase]]\nname = "t{number}"\ncase = [{cases}]\n' for number in range(4)]
    (folder / "suite.toml").write_text(SUITE + "".join(testcases))
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)


def read_verdicts(place: Path) -> dict[str, str]:
    """Outcome by case, of what ``tileyard test --json`` has printed."""
    printed = json.loads((place / "stdout").read_text())
    return {verdict["case"]: verdict["outcome"] for verdict in printed["verdicts"]}


def status_of_test(outcomes: Mapping[str, str]) -> int:
    """As the table of exit status has it."""
    bad = [outcome for outcome in outcomes.values() if outcome not in WELL]
    if not bad:
        return 0
    return 3 if all(outcome in FAULTS for outcome in bad) else 1


@dataclass(frozen=True, kw_only=True)
class Command:
    """A verb. ``cells`` are the kinds of its processes and the states of the run to hit each in.

    ``setup`` makes what all its runs share; ``read`` takes outcomes by case from the folder of a run.
    """

    argv: tuple[str, ...]
    setup: Callable[[Path], None]
    read: Callable[[Path], dict[str, str]]
    status: Callable[[Mapping[str, str]], int]
    cells: Mapping[str, tuple[str, ...]]


TILEYARD = (sys.executable, "-m", "tileyard")
THROUGHOUT = ("starting", "building", "golden", "running", "judging", "ending")
STEPS = {
    "build program": ("building",),
    "compiler child": ("building",),
    "golden program": ("golden",),
    "run program": ("running",),
    "check program": ("judging",),
}

COMMANDS = {
    "test": Command(
        argv=(*TILEYARD, "test", "suite", "--json"),
        setup=lambda shared: write_suite(shared / "suite"),
        read=read_verdicts,
        status=status_of_test,
        cells={
            "client": THROUGHOUT,
            "engine": THROUGHOUT,
            "keeper of compiler": ("building", "running", "ending"),
            "compiler": ("building", "running", "ending"),
            "keeper of step_host": ("golden", "running", "judging"),
            "step_host": ("golden", "running", "judging", "ending"),
            **STEPS,
        },
    ),
}
