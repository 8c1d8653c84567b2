"""A study on simulated devices, to be killed: ``python -m tests.faults.study_engine FOLDER CONFIGS``.

Goes on where an earlier one of the same folder ended, and prints what it came to as JSON.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from tests.simulated_yard import drive, open_simulated_yard, simulated_devices

from tileyard.base.clock import Clock
from tileyard.base.errors import TileyardError, blame_host
from tileyard.base.model import Limits, Value
from tileyard.engine.driver import Driver
from tileyard.service.bench import claim_run_name
from tileyard.store.events import EventLog
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.plan.study import Place, Study
from tileyard.verbs.tune.result import StudyResult

LIMITS = Limits(run_s=5.0, build_s=5.0, memory_bytes=4 << 30)
FAULTS = {3: "wrong", 5: "segv", 11: "refused", 17: "error"}


def configs(count: int) -> list[dict[str, Value]]:
    """Kernels that sleep while they are built and run, some of them faulty."""
    return [
        {
            "n": n,
            "build_s": 0.02,
            "run_s": 0.02,
            "sample_ns": 1000.0 + (n * 7919) % 101,
            "fault": FAULTS.get(n, ""),
        }
        for n in range(count)
    ]


async def tune(folder: Path, count: int) -> StudyResult:
    """The whole study."""
    clock = Clock()
    space = OpenSpace(
        kernel="simulated", arguments={}, configs=configs(count), size=count, flops=0.0
    )
    devices = simulated_devices(2, folder / "locks")
    with (
        open_simulated_yard(folder, devices, tuple(os.sched_getaffinity(0))) as yard,
        EventLog(yard.home, run := claim_run_name(yard.home, yard.store)) as log,
    ):
        study = Study(TuneRequest(limits=LIMITS), space, clock, Place(target="simulated"))
        yard.listeners.append(log.add)
        yard.flushes.append(log.flush)
        await drive(Driver(study, yard, run))
    return study.result(run, "done", devices[0])


def main() -> None:
    """Tune, and say what came of it."""
    try:
        result = asyncio.run(tune(Path(sys.argv[1]), int(sys.argv[2])))
    except (TileyardError, OSError) as raised:
        error = blame_host(raised, Path(sys.argv[1])) if isinstance(raised, OSError) else raised
        if error is None:
            raise
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_status)
    told = {
        "configs": {str(trial.config["n"]): str(trial.outcome) for trial in result.trials},
        "outcomes": sorted((t.keys.run or t.keys.build, str(t.outcome)) for t in result.trials),
        "measurements": sorted(t.keys.measurement for t in result.trials),
        "best": result.best.config if result.best else None,
        "finals": [(final.config, final.tied) for final in result.finals],
        "reused": result.reused,
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
