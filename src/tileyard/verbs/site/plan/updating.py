"""Brings a site up to date: the runs that it does not know yet, the order of commits, and what follows."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tileyard.base.errors import HomeError, UsageError
from tileyard.base.model import TensorSpec
from tileyard.ir.dtypes import DTYPES
from tileyard.store.base import Store, TrialQuery
from tileyard.store.choices import list_choices
from tileyard.store.events import is_under_way, run_file
from tileyard.store.trials import has_records, read_store
from tileyard.verbs.regress.plan.history import find_commit
from tileyard.verbs.regress.plan.revisions import Project
from tileyard.verbs.regress.plan.tuned import is_of_study, read_studies
from tileyard.verbs.site.plan.collecting import collect_run, drop_runs, join
from tileyard.verbs.site.result import Manifest, Recorded, Subject
from tileyard.verbs.tune.plan.deciding import name_study


class Fresh:
    """What runs say that a site does not know yet, or only in part, by cases; ``runs`` are their trials. Runs
    that recorded no commit are of ``commit``, if it is named.
    """

    def __init__(self, commit: str = "") -> None:
        self._commit = commit
        self._tensors: dict[Path, dict[str, int]] = {}
        self.runs: dict[str, int] = {}
        self.cases: dict[Subject, Recorded] = {}
        self.skipped: list[str] = []

    def read(self, home: Path, known: Manifest) -> None:
        """Read the store of a data directory, but for runs under way. Raises UsageError if it has none."""
        if not (home.is_dir() and has_records(home)):
            raise UsageError(f"nothing is recorded in {home} yet")
        with read_store(home) as store:
            for one in sorted(store.list_runs(), key=lambda one: (one.first_at, one.run)):
                had = max(known.runs.get(one.run, 0), self.runs.get(one.run, 0))
                if one.trials > had and not _is_under_way(home, one.run):
                    self._read_run(home, store, one.run)
                    self.runs[one.run] = one.trials
            if skipped := store.describe_skipped():
                self.skipped.append(skipped)

    def _read_run(self, home: Path, store: Store, run: str) -> None:
        trials = store.list_trials(TrialQuery(run=run, limit=0))[::-1]
        if self._commit:
            trials = [
                one
                if one.side or one.revision
                else msgspec.structs.replace(one, revision=self._commit)
                for one in trials
            ]
        has_studies = any(map(is_of_study, trials))
        studies = read_studies(home, run) if has_studies else {}
        moved = self._list_moved(home) if has_studies else {}
        for recorded in collect_run(trials, studies, moved):
            known = self.cases.get(recorded.subject)
            self.cases[recorded.subject] = join(known, recorded) if known else recorded

    def _list_moved(self, home: Path) -> dict[str, int]:
        """The bytes of the tensors of each study of a data directory, by ``name_study``."""
        if home not in self._tensors:
            self._tensors[home] = {
                name_study(one): _count_bytes(one.tensors) for one in list_choices(home)
            }
        return self._tensors[home]

    def add_to(self, known: dict[Subject, Recorded]) -> Iterator[Recorded]:
        """Add all to what is ``known``, and yield the cases that this changes."""
        grown = set(self.runs)  # those of which a part was known are replaced
        for subject in [*known, *(one for one in self.cases if one not in known)]:
            before, fresh = known.get(subject), self.cases.get(subject)
            after = drop_runs(before, grown) if before else None
            if fresh is not None:
                after = join(after, fresh) if after else fresh
            if after is not None and after != before:
                known[subject] = after
                yield after


def find_commit_at(folder: Path, name: str) -> str:
    """The commit that a name has in the repository of a folder. Raises UsageError."""
    project = Project.of(folder)
    if project is not None:
        return project.find(name)
    if find_commit(name) != name:
        raise UsageError(f"--at: {name} is no commit, and there is no git repository here")
    return name


def _is_under_way(home: Path, run: str) -> bool:
    """Whether a run still goes on: what it decides, and its result, are not known yet."""
    try:
        return is_under_way(run_file(home, run))
    except HomeError:  # it has no stream any more, or was imported
        return False


def _count_bytes(specs: Iterable[TensorSpec]) -> int:
    """The bytes of tensors, of those that are read and written twice; 0 if a type is unknown."""
    moved = 0
    for one in specs:
        if one.dtype not in DTYPES:
            return 0
        times = 2 if one.role == "inout" else 1
        moved += times * math.prod(one.shape) * DTYPES[one.dtype].bits // 8
    return moved
