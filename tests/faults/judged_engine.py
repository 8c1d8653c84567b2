"""An engine that runs cases with large outputs for ever, to be killed: prints a line once one was judged."""

import asyncio
import itertools
import sys
from pathlib import Path

from tests.simulated_yard import FixedSource, open_simulated_yard, plan_cases, simulated_devices

from tileyard.engine.driver import Driver


async def run(folder: Path) -> None:
    """Run until the end, which is not this program's to choose."""
    source = FixedSource(plan_cases({"n": n, "size": 1 << 20} for n in itertools.count()))
    with open_simulated_yard(folder, simulated_devices(1, folder / "locks"), (0,)) as yard:
        driver = Driver(source, yard, "killed")
        await driver.open()
        async for _ in driver.trials():
            sys.stdout.write("judged\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
