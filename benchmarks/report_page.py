"""How large the report of a study is, how long it takes to make, and how soon a browser shows it.

``python benchmarks/report_page.py [--trials 5000]`` makes a study of so many random configs and a timeline,
and opens its page and an empty one five times each in Chromium, for the first contentful paint of both.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser.test_reports import Browser
from tests.unit.show.simulated_runs import simulate
from tests.unit.show.test_views import result, trial

from tileyard.base.model import Keys, Outcome
from tileyard.pages.report import RunLog, render_report
from tileyard.show.timeline import fold_timeline
from tileyard.verbs.tune.result import StudyResult
from tileyard.verbs.tune.view.page import describe_studies

TIMES = 5
SPACE: dict[str, tuple[int | str, ...]] = {
    "block_M": (16, 32, 64, 128, 256),
    "block_N": (16, 32, 64, 128, 256),
    "block_K": (8, 16, 32, 64, 128),
    "stages": (1, 2, 3, 4),
    "threads": (64, 128, 256),
    "order": ("row", "column"),
    "split": (1, 2, 4, 8),
}
EMPTY = '<!doctype html><html lang="en"><title>empty</title><p>empty</p></html>'


def make_study(trials: int) -> StudyResult:
    """A study of random configs, of which one in ten fails."""
    chance = random.Random(1)
    made = []
    for number in range(trials):
        config = {name: chance.choice(values) for name, values in SPACE.items()}
        time_ns = 2e5 * (1 + abs(int(config["block_M"]) - 128) / 60) * chance.lognormvariate(0, 0.3)
        outcome = Outcome.PASSED if chance.random() < 0.9 else Outcome.COMPILE_ERROR
        message = (
            ""
            if outcome is Outcome.PASSED
            else f"takes {chance.randrange(10**6)} bytes of shared memory"
        )
        one = trial(number, outcome, time_ns if outcome is Outcome.PASSED else 0.0)
        keys = Keys(binary=f"b{number}")
        made.append(msgspec.structs.replace(one, config=config, keys=keys, message=message))
    best = min((one for one in made if one.measurement), key=lambda one: one.measurement.median_ns)
    ended_s = tuple(0.4 * number for number in range(trials))
    return msgspec.structs.replace(
        result(), trials=tuple(made), best=best, finals=(), ended_s=ended_s
    )


def paint_ms(browser: Browser, page: str) -> float:
    """The time of the first contentful paint of a page."""
    asked = (
        "return performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)"
    )
    browser.open(page)
    for _ in range(200):
        if found := browser.driver.execute_script(asked):
            return float(found[0])
        time.sleep(0.05)
    raise TimeoutError("the page was not painted within 10 s")


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5000)
    trials = parser.parse_args().trials
    study = make_study(trials)
    timeline = fold_timeline(simulate(seed=1, cases=trials).events)
    begin = time.perf_counter()
    page = render_report(describe_studies(study, RunLog(home=Path("/"), timeline=timeline)))
    print(f"made in {time.perf_counter() - begin:.2f} s, {len(page.encode()) / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder))
        try:
            report = [paint_ms(browser, page) for _ in range(TIMES)]
            empty = [paint_ms(browser, EMPTY) for _ in range(TIMES)]
        finally:
            browser.driver.quit()
    medians = statistics.median(report), statistics.median(empty)
    print("first contentful paint, ms: report {:.0f}, empty page {:.0f}".format(*medians))
    print(f"less that of the empty page: {medians[0] - medians[1]:.0f} ms; all: {report} {empty}")


if __name__ == "__main__":
    main()
