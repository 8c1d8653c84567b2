"""The three functions of ``tileyard run-artifact``, as the command line shows them."""

import re
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import UsageError
from tileyard.base.model import Batch, KernelWork
from tileyard.engine.foreign_queue.far_side import find_device, read_token, run_task
from tileyard.show.opening import load_settings, open_store
from tileyard.show.words import clean_line, format_config, format_seconds, format_time, make_visible
from tileyard.workers.run_records import RunRecord, find_run
from tileyard.workers.task_lines import CaseResult, Line, Task, TaskEnded, TaskStarted, format_line

KEY = re.compile(r"[0-9a-f]{40}")


def answer_token(token: str, objects: Path) -> int:
    """Report what this side sees of a token; status 0 if it is as expected."""
    print_line(TaskStarted(token=token, host=socket.gethostname(), device="", identity=""))
    seen = read_token(token, objects)
    print_line(seen)
    return 3 if seen.problem else 0


def run_by_hand(named: Sequence[str], objects: Path, device: str) -> int:
    """Run recorded trials again, with their own inputs, and report the results."""
    store = ObjectStore(objects)
    records = {name: _find_record(name, store) for name in named}
    targets = {record.case.target for record in records.values()}
    if len(targets) > 1:
        raise UsageError(f"these trials are for several targets: {', '.join(sorted(targets))}")
    chosen = find_device(device or "cpu")
    replace = msgspec.structs.replace
    task = Task(
        token=secrets.token_hex(8),
        batch=Batch(id="by-hand", cases=tuple(replace(r.case, id=n) for n, r in records.items())),
        entries=tuple(
            replace(record.entry, case=name, log=f"logs/{number}.log")
            for number, (name, record) in enumerate(records.items())
        ),
        plugins=load_settings().plugins,
        device=chosen.name,
    )

    def tell(line: Line) -> None:
        if isinstance(line, CaseResult):
            if line.log:
                print(make_visible(line.log), end="" if line.log.endswith("\n") else "\n")
            print(clean_line(_describe(records[line.case], line)))
        if isinstance(line, CaseResult | TaskEnded):
            print_line(line)

    return run_task(task, objects, chosen, tell)


def print_line(line: Line) -> None:
    """Print and flush a line for machines."""
    print(format_line(line), flush=True)


def _find_record(named: str, objects: ObjectStore) -> RunRecord:
    """The run of a trial's id, a run key or a build key. Raises UsageError."""
    record = find_run(objects, named) if KEY.fullmatch(named) else None
    if record is not None:
        return record
    # Only now: a run key needs no database.
    from tileyard.store.trials import TrialQuery

    with open_store() as (store, _):
        if KEY.fullmatch(named):
            query = TrialQuery(limit=0)
            keys = [t.keys.run for t in store.list_trials(query) if t.keys.build == named]
        else:
            keys = [store.get_trial(named).keys.run]
    for key in filter(None, keys):
        record = find_run(objects, key)
        if record is not None:
            return record
    raise UsageError(
        f"what {named!r} ran with is not in {objects.root}",
        "only a case that reached a device can be run again; `tileyard trials` lists them",
    )


def _describe(record: RunRecord, line: CaseResult) -> str:
    case = record.case
    name = case.work.kernel if isinstance(case.work, KernelWork) else case.testcase
    what = " ".join(filter(None, (name, format_config(case.config))))
    parts = [f"{what}: {line.outcome.value} on {line.device} in {format_seconds(line.seconds)}"]
    if (took := line.measurement) is not None:
        bounds = f"[{format_time(took.low_ns)}, {format_time(took.high_ns)}]"
        parts.append(f"{format_time(took.median_ns)} {bounds}")
    if line.message:
        parts.append(line.message)
    return "; ".join(parts)
