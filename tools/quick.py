"""What a change needs before it is committed: the checks, and the tests that say most about it for their
CPU seconds.

``python -m tools.quick [-n JOBS] [--budget SECONDS] [REVISION]``; the change is that of the working tree
since REVISION (HEAD unless said). Tests that have changed run first, then tests of the pages that have
changed. Quick tests run if they import a changed module, directly or through others, the nearest first. Slow
tests, and those that can reach all modules, run if they were recorded to cover a changed module, those first
that cover most per CPU second (``make test-record``).
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests.chosen import Chosen
from tools.closures import SOURCE, Closures, name_module
from tools.pytest_runs import run_pytest
from tools.recorded import Recorded, read_recorded

BUDGET_S = 150.0
START_S = 4.0
"""CPU seconds until a test process has found its tests."""
FEW_S = 15.0
"""Below this, one test process is cheaper than it is slow."""
QUICK_SHARE = 0.5
"""How much of what is left quick tests may take before slow ones are chosen."""
UNKNOWN_S = 1.0
"""CPU seconds of the quick tests of a file that is not recorded."""
PACKAGE = "tileyard"
UNIT = Path("tests/unit")
TEXTS = sorted(str(path) for path in UNIT.glob("test_*.py"))
"""Tests that read the source instead of importing it."""
PAGE_TESTS = "tests/unit/test_docs.py"
RUN_PAGES = "tests/e2e/test_pages.py"
RUN_PAGE = f"{RUN_PAGES}::test_the_commands_of_a_page_do_what_it_says"
PAGE_S = 8.0
"""CPU seconds in which the commands of a page run, more or less."""
RUN = re.compile(r"(?m)^ *```(?:sh|console) (?:.* )?run\b")
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]+)")


def list_changed(revision: str) -> list[Path]:
    """Files that differ from a revision, new ones included."""
    commands = (
        ["git", "diff", "--name-only", "--diff-filter=d", revision],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    texts = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    return sorted({Path(line) for text in texts for line in text.splitlines()})


def is_test(file: Path) -> bool:
    """Whether pytest finds tests in a file."""
    return file.parts[0] == "tests" and file.name.startswith("test_") and file.suffix == ".py"


def is_page(file: Path) -> bool:
    """Whether a file is a page."""
    return file.suffix == ".md"


def is_of_site(file: Path) -> bool:
    """Whether the site may differ with a file: a page, what pages link or show, or what builds the site."""
    if is_page(file) or file.parts[0] == "docs" or str(file) in ("mkdocs.yml", "tools/site.py"):
        return True
    linking = (page for page in Path("docs").rglob("*.md") if file.name in page.read_text("utf-8"))
    return any(file.resolve() in list_linked(page) for page in linking)


def list_linked(page: Path) -> set[Path]:
    """The files that a page links."""
    return {(page.parent / link).resolve() for link in LINK.findall(page.read_text("utf-8"))}


def list_modules(changed: Iterable[Path]) -> set[str]:
    """The modules of changed files. Another file selects the modules beside it, or beside its folder."""
    modules: set[str] = set()
    for file in changed:
        if file.suffix == ".py" and file.parts[0] in (SOURCE.name, "tests"):
            modules.add(name_module(file))
        elif file.parts[0] == SOURCE.name:
            places = (place for place in file.parents if any(place.glob("*.py")))
            modules.update(name_module(beside) for beside in next(places, file).glob("*.py"))
    return modules


@dataclass
class Choice:
    """Tests that are chosen one after another for a sum of CPU seconds. ``reasons`` are lines about them."""

    recorded: Recorded
    closures: Closures
    left_s: float
    whole: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    spent_s: float = 0.0
    _paid: set[str] = field(default_factory=set)

    def take_changed(self, files: Iterable[Path]) -> None:
        """Choose whole test files that have changed, and only their quick tests where slow ones are too
        dear."""
        for file in map(str, files):
            cpu_s = self.recorded.whole_files.get(file, self._price_file(file))
            if not self._spend(cpu_s, self.whole, file) and self._spend(
                self._price_file(file), self.files, file
            ):
                self.reasons.append(f"only the quick tests of {file}: all take {cpu_s:.0f} s")
        if self.whole:
            self.reasons.append(f"changed test files: {len(self.whole)}")

    def take_pages(self, pages: Iterable[Path]) -> None:
        """Choose the tests of the pages that have changed."""
        found = list(pages)
        for page in found:
            if RUN.search(page.read_text("utf-8")):
                self._spend(PAGE_S, self.tests, f"{RUN_PAGE}[{page}]")
        if found:
            self._spend(self._price_file(PAGE_TESTS), self.files, PAGE_TESTS)
            self.reasons.append(f"changed pages: {len(found)}, of which {len(self.tests)} are run")

    def take_texts(self) -> None:
        """Choose the quick tests that read the source instead of importing it."""
        for file in TEXTS:
            if not self.closures.reaches_anything(Path(file)):
                self._spend(self._price_file(file), self.files, file)

    def take_importing(self, modules: set[str], test_files: Iterable[Path], limit_s: float) -> None:
        """Choose the quick tests of files that import changed modules, the nearest first, within a limit."""
        near: list[tuple[int, float, str]] = []
        for file in test_files:
            distances = self.closures.measure(file)
            if not self.closures.reaches_anything(file) and not modules.isdisjoint(distances):
                is_own = any(is_named_after(file, module) for module in modules)
                distance = min(distances[one] for one in modules & distances.keys())
                near.append((0 if is_own else distance, self._price_file(str(file)), str(file)))
        near = [one for one in near if one[2] not in {*self.whole, *self.files}]
        begun_s, count = self.spent_s, 0
        for _, cpu_s, file in sorted(near):
            if self.spent_s - begun_s + cpu_s <= limit_s:
                count += self._spend(cpu_s, self.files, file)
        if near:
            spent_s = self.spent_s - begun_s
            self.reasons.append(
                f"quick tests that import it: {count} of {len(near)} files, {spent_s:.0f} s"
            )

    def take_covering(self, modules: set[str], processes: int) -> None:
        """Choose tests that were recorded to cover changed modules, those first that cover most per CPU
        second."""
        ours = {name.partition(".")[2] for name in modules if name.split(".")[0] == PACKAGE}
        gains = {
            name: sum(test.covers[module] for module in ours & test.covers.keys())
            for name, test in self.recorded.tests.items()
            if name.partition("::")[0] not in self.whole and Path(name.partition("::")[0]).exists()
        }
        waiting = {name for name, gain in gains.items() if gain}
        found, begun_s = len(waiting), self.spent_s
        taken: list[str] = []
        while waiting:
            best = max(sorted(waiting), key=lambda name: gains[name] / self._price(name, processes))
            waiting.remove(best)
            if self._spend(self._price(best, processes), self.tests, best):
                self._paid.update(self.recorded.tests[best].needs)
                taken.append(best)
        self.reasons.append(
            f"recorded tests that cover it: {len(taken)} of {found}, {self.spent_s - begun_s:.0f} s"
        )
        self.reasons += [f"  {name}" for name in taken]
        unknown = sorted(
            ours - {name for test in self.recorded.tests.values() for name in test.covers}
        )
        if unknown:
            self.reasons.append(f"not recorded, or covered by no slow test: {', '.join(unknown)}")

    def _spend(self, cpu_s: float, chosen: list[str], name: str) -> bool:
        is_affordable = cpu_s <= self.left_s and name not in chosen
        if is_affordable:
            chosen.append(name)
            self.left_s -= cpu_s
            self.spent_s += cpu_s
        return is_affordable

    def _price_file(self, file: str) -> float:
        return self.recorded.files.get(file, UNKNOWN_S)

    def _price(self, name: str, processes: int = 1) -> float:
        test = self.recorded.tests[name]
        new = [need for need in test.needs if need not in self._paid]
        of_each = sum(self.recorded.shared.get(one, 0.0) for one in new if one.startswith("warm "))
        return self.recorded.price(test, self._paid) + of_each * (processes - 1)


def is_named_after(file: Path, module: str) -> bool:
    """Whether a test file mirrors a module."""
    parts = module.split(".")[1:]
    place = UNIT.joinpath(*parts[:-1]) if parts else UNIT
    return bool(parts) and file.parent == place and file.stem.startswith(f"test_{parts[-1]}")


def choose(changed: list[Path], recorded: Recorded, budget_s: float, processes: int) -> Choice:
    """The tests of a change, for so many CPU seconds."""
    choice = Choice(recorded, Closures(), budget_s)
    tests = [path for path in Path("tests").rglob("test_*.py") if is_found(path)]
    choice.take_changed(file for file in changed if is_test(file))
    choice.take_pages(file for file in changed if is_page(file))
    modules = list_modules(file for file in changed if not is_test(file))
    if modules:
        choice.take_texts()
        choice.take_importing(modules, tests, choice.left_s * QUICK_SHARE)
        choice.take_covering(modules, processes)
        choice.take_importing(modules, tests, choice.left_s)
    return choice


def is_found(file: Path) -> bool:
    """Whether a test file is one of ours, and not of a tree that a test works on."""
    return not {"suites", "pages", "kernels"} & set(file.parts)


def run_chosen(choice: Choice, jobs: int) -> int:
    """Run the tests; the exit status."""
    chosen = Chosen(tuple(choice.whole), tuple(choice.files), tuple(choice.tests))
    files = {*chosen.whole, *chosen.files, *(test.partition("::")[0] for test in chosen.tests)}
    if not files:
        return 0
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.encode(chosen))
        file.flush()
        options = ["-p", "tests.chosen", "--chosen", file.name]
        status = run_pytest(jobs, [*options, *sorted(files)])
    return 0 if status == 5 else status  # no test was found


def read_spent_s() -> float:
    """The CPU seconds of all programs that have been run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Check, choose and run; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", dest="jobs", type=int, default=2, help="how many test processes [2]")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="CPU seconds, about [150]")
    parser.add_argument("revision", nargs="?", default="HEAD")
    options = parser.parse_args()
    changed = list_changed(options.revision)
    has_site = any(map(is_of_site, changed))
    status = subprocess.run(
        ["make", "--no-print-directory", "check-code", *(["site"] if has_site else [])], check=False
    ).returncode
    if status:
        return status
    checked_s = read_spent_s()
    budget_s = options.budget - checked_s - START_S * (options.jobs + 1)
    choice = choose(changed, read_recorded(), budget_s, max(options.jobs, 1))
    jobs = options.jobs if choice.spent_s > FEW_S else 0
    print(f"changed: {len(changed)} files; checks took {checked_s:.0f} CPU seconds")
    print("\n".join(choice.reasons))
    predicted_s = checked_s + choice.spent_s + START_S * (jobs + 1)
    print(f"about {predicted_s:.0f} CPU seconds in all", flush=True)
    return run_chosen(choice, jobs)


if __name__ == "__main__":
    sys.exit(main())
