"""The times of studies for histories: of each run of ``tune`` the winner of its finals, and the reference."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import HomeError, UsageError
from tileyard.base.model import Measurement, Record, Trial, Value
from tileyard.show.words import format_config
from tileyard.store.results import read_result
from tileyard.verbs.regress.plan.history import Timed, as_timed
from tileyard.verbs.tune.plan.deciding import find_winner, name_study

REFERENCE: Final = "reference"
"""The side that a study's reference is."""


class _Best(Record):
    """What is read of the trial of a study's winner."""

    config: dict[str, Value] = {}


class Study(Record):
    """What is read of a ``StudyResult``, or of the studies of a ``TableResult``: floating-point operations of
    a launch, 0 if unknown, the reference's time, if it was asked for, and the winner that was decided for.
    """

    kernel: str = ""
    arguments: dict[str, Value] = {}
    target: str = ""
    silicon: str = ""
    flops: float = 0.0
    reference: Measurement | None = None
    best: _Best | None = None
    others: tuple["Study", ...] = ()
    studies: tuple["Study", ...] = ()

    def list_all(self) -> Iterator["Study"]:
        """This study and those below it."""
        yield self
        for one in (*self.others, *self.studies):
            yield from one.list_all()


def is_of_study(trial: Trial) -> bool:
    """Whether a trial is of ``tune``."""
    return bool(trial.kernel) and not trial.side and not trial.testcase


def name_tuned(trial: Trial) -> str:
    """The name of what a study optimizes: ``gemm/M=64``, or ``gemm/small``."""
    named = trial.shape or format_config(trial.arguments, ",")
    return "/".join(filter(None, (trial.kernel, named)))


def is_named(trial: Trial, case: str) -> bool:
    """Whether a study's trial is of this case or one below it, as ``gemm/M=64`` or ``gemm/M=64/block=8``."""
    config = format_config(trial.config, ",")
    return is_of_study(trial) and any(
        f"{subject}/{own}/".startswith(f"{case}/")
        for subject in (name_tuned(trial), trial.kernel)
        for own in (config, trial.case)
    )


def split_studies(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """The trials of each study of a run, by ``name_study``; those of other verbs are left out."""
    found: dict[str, list[Trial]] = {}
    for one in filter(is_of_study, trials):
        found.setdefault(name_study(one), []).append(one)
    return found


def time_study(trials: Sequence[Trial], kept: Study) -> tuple[Trial, tuple[Timed, ...]] | None:
    """The winner of a study's finals, and its time and the reference's; None if nothing was decided."""
    found = find_winner(trials, [canonical_json(kept.best.config)] if kept.best else ())
    if found is None:
        return None
    winner, measured = found
    timed = as_timed(name_tuned(winner), msgspec.structs.replace(winner, measurement=measured))
    both = [msgspec.structs.replace(timed, binary=format_config(winner.config))]
    if kept.reference is not None:
        other = msgspec.structs.replace(winner, measurement=kept.reference)
        both.append(msgspec.structs.replace(as_timed(timed.case, other), side=REFERENCE))
    return winner, tuple(both)


def find_tuned(home: Path, case: str, trials: Iterable[Trial]) -> Iterator[Timed]:
    """The times of this case and those below it in trials of any runs, the oldest first. A config has none
    of its own.
    """
    by_run: dict[str, list[Trial]] = {}
    for one in filter(is_of_study, trials):
        by_run.setdefault(one.run, []).append(one)
    for run, own in by_run.items():
        studies = read_studies(home, run)
        for name, members in split_studies(own).items():
            if f"{name_tuned(members[0])}/".startswith(f"{case}/"):
                found = time_study(members, studies.get(name, Study()))
                yield from found[1] if found else ()


def read_studies(home: Path, run: str) -> Mapping[str, Study]:
    """What is kept of a run's studies beside their trials, by ``name_study``."""
    try:
        kept = msgspec.msgpack.decode(read_result(home, run).result, type=Study)
    except (HomeError, UsageError, msgspec.DecodeError, UnicodeDecodeError):
        # It is not needed for times.
        return {}
    return {name_study(one): one for one in kept.list_all() if one.kernel}
