"""Explains why cases of a run were proven or not."""

from collections.abc import Mapping, Sequence

from tileyard.artifacts.footprint import Footprint, describe_changes
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import Outcome, Trial
from tileyard.store.base import Store, TrialQuery
from tileyard.workers.run_records import RunRecord, find_runs

PASSES = 20
"""Number of passes in the same suite that are examined to find the latest one before this run."""
NAMED = 4


def explain_cases(
    trials: Mapping[str, Sequence[Trial]], by: str, store: Store, objects: ObjectStore
) -> dict[str, str]:
    """For each case, by its id, what decided; ``by`` is the run that should prove them, empty for any."""
    firsts = {case: found[0] for case, found in trials.items() if found}
    open_cases = {c: trial for c, trial in firsts.items() if trial.outcome is not Outcome.SKIPPED}
    before = {case: _find_pass(trial, by, store) for case, trial in open_cases.items()}
    keys = {t.keys.run for t in (*open_cases.values(), *filter(None, before.values()))}
    records = find_runs(objects, keys - {""})
    said = {case: trial.message for case, trial in firsts.items()}
    for case, trial in open_cases.items():
        said[case] = _explain(trial, before[case], records, objects)
    return said


def _find_pass(trial: Trial, by: str, store: Store) -> Trial | None:
    query = TrialQuery(
        case=trial.case, suite=trial.suite, run=by, outcome=Outcome.PASSED, limit=PASSES
    )
    earlier = store.list_trials(query)
    return next((t for t in earlier if t.case == trial.case and t.run != trial.run), None)


def _explain(
    trial: Trial, before: Trial | None, records: Mapping[str, RunRecord], objects: ObjectStore
) -> str:
    now = records.get(trial.keys.run)
    if now is None:
        return f"not proven: it ended before it was known what it depends on ({trial.outcome})"
    golden = now.entry.golden
    if golden.footprint.doubts:
        return f"cannot be proven: {_name(golden.footprint.doubts)}"
    if golden.is_partial:
        return "cannot be proven: what was built for it could not be looked at"
    if before is None:
        return "not proven: no run is known in which it passed"
    old = records.get(before.keys.run)
    known = Footprint() if old is None else old.entry.golden.footprint
    if not known.parts:
        return f"not proven: it is not known any more what run {before.run} depended on"
    if known.doubts:
        return f"not proven: run {before.run} proves nothing: {_name(known.doubts)}"
    changed = describe_changes(known, golden.footprint, objects)
    what = _name(changed) if changed else "what is built for it"
    return f"not proven: changed since run {before.run}: {what}"


def _name(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return "; ".join(texts[:NAMED]) + more
