"""The programs of a comparison's two sides: cases of a suite, as each side's checkout has it, or scripts."""

import asyncio
import datetime
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from modulefinder import ModuleFinder
from pathlib import Path

import msgspec

from tileyard.artifacts.bundles import read_manifest
from tileyard.artifacts.digests import find_named
from tileyard.base.errors import UsageError
from tileyard.base.model import (
    Case,
    CommandWork,
    KernelWork,
    Limits,
    Measure,
    Side,
    Step,
    TimingPolicy,
    Work,
)
from tileyard.base.settings import Settings
from tileyard.base.wording import count_of
from tileyard.engine.programs import CASE, place_toolchain
from tileyard.targets.command.given import StepSite
from tileyard.targets.registry import COMMAND
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.plan.budget import hold_one
from tileyard.verbs.test.plan.choosing import choose
from tileyard.verbs.test.plan.files.steps import double
from tileyard.verbs.test.plan.kernel_cases import ONLY
from tileyard.verbs.test.plan.packed import require_prerequisites
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.plan.source import limit_runner
from tileyard.verbs.test.result.result import Suite, SuiteCase


@dataclass(frozen=True, kw_only=True)
class SideSuite:
    """A side's selected cases, the place of its suite, and how many ``quarantined`` ones are left out."""

    site: StepSite
    cases: tuple[SuiteCase, ...]
    quarantined: int

    def hold_one(self) -> "SideSuite":
        """The same with cases of one device each, for runs without named devices."""
        return replace(self, cases=tuple(map(hold_one, self.cases)))

    def make_cases(self, side: str, common: frozenset[str], usual: Measure) -> list[Case]:
        """The cases for the engine, compared by the ``usual`` measure unless their suite sets another."""
        return [
            Case(
                id=case.id,
                work=_complete(case, self.site, usual) if case.id in common else case.work,
                target=COMMAND,
                side=side,
                seed=case.seed,
                timing=TimingPolicy(),
                limits=limit_runner(case),
            )
            for case in self.cases
        ]


def _complete(case: SuiteCase, site: StepSite, usual: Measure) -> Work:
    work = case.work
    if not isinstance(work, CommandWork):
        return work
    check = None if work.check is None else _as_itself(work.check, case)
    run = _as_itself(work.run, case)
    # Also files within longer arguments: a step that reads a different file is not the same.
    named = find_named(run, Path(site.suite))
    run = msgspec.structs.replace(run, inputs=tuple(dict.fromkeys((*run.inputs, *named))))
    measure = work.measure or usual
    return msgspec.structs.replace(work, run=run, check=check, measure=measure)


def _as_itself(step: Step, case: SuiteCase) -> Step:
    """A step that finds the name of its case, and not that of a member of a batch."""
    return msgspec.structs.replace(step, env={CASE: double(case.id), **step.env})


async def read_sides(
    sides: Mapping[str, tuple[Side, str]], select: tuple[str, ...], settings: Settings
) -> dict[str, SideSuite]:
    """The suites of these sides, each given with its path. Raises UsageError, which names the side."""
    found = {}
    for name, (side, path) in sides.items():
        try:
            suite = await asyncio.to_thread(read_suite, Path(path), settings, side.variables)
            cases, quarantined = choose_cases(suite, select)
            opened = open_suite(suite, cases, quarantined, side)
            if side.toolchain:
                site = await asyncio.to_thread(
                    open_site, side.toolchain, "", suite.folder, settings
                )
                opened = replace(opened, site=site)
            found[name] = opened
        except UsageError as error:
            error.message = f"{name}: {error.message}"
            raise
    return found


def open_site(toolchain: str, commit: str, suite: str, settings: Settings) -> StepSite:
    """The place of a suite with a toolchain's bundle, unpacked. Errors are those of ``open_toolchain``."""
    needed = read_manifest(Path(toolchain)).requires.prerequisites
    require_prerequisites(toolchain, needed, settings)
    site = place_toolchain(Path(toolchain), commit, settings.make_home())
    return msgspec.structs.replace(site, suite=suite)


def choose_cases(suite: Suite, select: tuple[str, ...]) -> tuple[tuple[SuiteCase, ...], int]:
    """The compared cases, and how many more are in quarantine. Raises UsageError if none is left."""
    today = datetime.datetime.now(tz=datetime.UTC).astimezone().date()
    chosen = choose(suite, Wish(select=select), today, {})
    cases = tuple(case for case in chosen.cases if case.id not in chosen.quarantined)
    return cases, len(chosen.quarantined)


def open_suite(
    suite: Suite, cases: tuple[SuiteCase, ...], quarantined: int, side: Side
) -> SideSuite:
    """A side's suite of programs with these cases. Raises UsageError if one is a kernel."""
    for case in cases:
        if isinstance(case.work, KernelWork):
            raise UsageError(
                f"{case.id} of {suite.path} is a kernel, and suites of programs are compared",
                f"name its file instead: {case.work.file}",
            )
    return SideSuite(
        site=StepSite(suite=suite.folder, env=side.variables), cases=cases, quarantined=quarantined
    )


def open_scripts(
    side: Side, files: Sequence[tuple[str, str]], measure: Measure | None, limits: Limits
) -> SideSuite:
    """A side's scripts as cases of ``tileyard exec`` there. Raises UsageError for two of one name."""
    scripts = [Path(file) for file, _ in files]
    name, count = Counter(script.stem for script in scripts).most_common(1)[0] if files else ("", 0)
    if count > 1:
        raise UsageError(f"{count} scripts are called {name}.py", "compare them one by one")
    # Without -P, which would hide the modules beside a script; a step starts in a folder made for it.
    run = (side.python or sys.executable, "-m", "tileyard", "exec")
    cases = tuple(
        SuiteCase(
            testcase=script.stem,
            name=ONLY,
            work=CommandWork(
                run=Step(
                    argv=tuple(map(double, (*run, str(script)))), inputs=_find_imported(script)
                ),
                measure=measure,
            ),
            limits=limits,
        )
        for script in scripts
    )
    folder = os.path.commonpath([script.parent for script in scripts]) if scripts else ""
    return SideSuite(site=StepSite(suite=folder, env=side.variables), cases=cases, quarantined=0)


def _find_imported(script: Path) -> tuple[str, ...]:
    """A script and the modules beside it that its imports reach; nothing is run."""
    finder = ModuleFinder(path=[str(script.parent)])
    try:
        finder.run_script(str(script))
    except (SyntaxError, ValueError):  # it fails when it is run
        return (str(script),)
    files: set[str | None] = {getattr(one, "__file__", None) for one in finder.modules.values()}
    return tuple(sorted(filter(None, files)))


def find_common(suites: Mapping[str, SideSuite]) -> frozenset[str]:
    """The cases that all sides have. Raises UsageError if there is none."""
    ids = [frozenset(case.id for case in suite.cases) for suite in suites.values()]
    common = frozenset.intersection(*ids)
    if not common:
        counts = " and ".join(
            f"{name} has {count_of(len(own), 'case')}"
            for name, own in zip(suites, ids, strict=True)
        )
        raise UsageError(f"nothing can be compared: {counts}, and none is in both")
    return common
