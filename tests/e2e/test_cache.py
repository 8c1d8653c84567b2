"""``tileyard cache gc`` as a user runs it."""

import os
import select
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.conftest import DECIDED, KERNELS, CommandLine

from tileyard.artifacts.collection import Keep, collect
from tileyard.artifacts.objects import ObjectStore
from tileyard.artifacts.pins import hold

pytestmark = pytest.mark.slow


def fill(cli: CommandLine) -> ObjectStore:
    """A home with a golden result that nobody has used for decades."""
    objects = ObjectStore(cli.home / "objects")
    blob = objects.put_bytes(b"x" * 100_000)
    objects.put_record("golden", "key", blob.encode())
    for path in (objects._blob(blob), objects._record("golden", "key")):
        os.utime(path, (1, 1))
    return objects


def test_old_results_go(cli: CommandLine) -> None:
    """People read what went; a dry run says the same and removes nothing."""
    objects = fill(cli)
    dry = cli.run_here("cache", "gc", "--keep-days", "14", "--dry-run")
    assert objects._record("golden", "key").is_file()
    done = cli.run("cache", "gc", "--keep-days", "14")
    expected = "2 golden results"

    assert (dry.returncode, done.returncode) == (0, 0)
    assert expected in dry.stdout
    assert "would free 104 KiB" in dry.stdout
    assert expected in done.stdout
    assert objects.get_record("golden", "key") is None
    assert cli.run_json("cache", "gc", "--max-size", "1G")["freed"] == []


def test_what_a_run_may_use_is_said_to_stay(cli: CommandLine) -> None:
    """What is over the size and in use is named, and is there afterwards."""
    objects = ObjectStore(cli.home / "objects")
    blob = objects.put_bytes(b"x" * 100_000)
    expected = "more should go and stay: a run that goes on may use it"

    with hold(objects.root):
        done = cli.run_here("cache", "gc", "--max-size", "1K")

    assert expected in done.stdout
    assert objects.has(blob)


def test_run_beside_collections_misses_nothing(cli: CommandLine) -> None:
    """A tuning run whose store is collected from all the time ends as it would alone."""
    objects = ObjectStore(cli.home / "objects")
    kernel = f"{KERNELS / 'elementwise.py'}::gelu"
    arguments = (kernel, "--arg", "N=256", "--config", "block=32,64", "--fresh")
    expected = 0

    with hold(objects.root), ThreadPoolExecutor(1) as beside:
        for _ in range(2):
            command = ("tune", *arguments, "--reference", "gelu_reference")
            run = beside.submit(cli.run, *command, **DECIDED)
            while not run.done():
                collect(cli.home, Keep(max_bytes=0))
                select.select([], [], [], 0.05)  # the run needs a core, too
            assert run.result().returncode == expected, run.result().stderr

    assert collect(cli.home, Keep(max_bytes=0), dry_run=True).freed_bytes > 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "missing: how much to keep"),
        (("--max-size", "much"), "'much' is not a size"),
        (("--keep-days", "-1"), "--keep-days"),
        (("--keep-days", "3"), "nothing to collect in"),
    ],
)
def test_bad_request_is_one_line(cli: CommandLine, arguments: tuple[str, ...], line: str) -> None:
    """Exit status 2, and nothing is made."""
    expected = 2

    done = cli.run_here("cache", "gc", *arguments)

    assert done.returncode == expected
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not cli.home.exists()
