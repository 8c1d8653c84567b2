"""Runs on real disks without room or inodes: what is lost is the host's fault, and is said."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.conftest import KERNELS, CommandLine

pytestmark = pytest.mark.slow

CASES = 12
SUITE = """
name = "s"
[[testcase]]
name = "t"
build = ["sh", "-c", "echo is built"]
golden = ["sh", "-c", "echo made > {out}/made"]
run = ["sh", "-c", "echo is run; {run}"]
check = ["sh", "-c", "echo is checked"]
case = [{cases}]
"""


@contextmanager
def disk(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("may not mount a tmpfs here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    """Give a disk all the room that it needs."""
    options = "remount,size=500m,nr_inodes=100000"
    subprocess.run(["mount", "-o", options, str(folder)], check=True)


def write_suite(cli: CommandLine, run: str = "true", *, golden: bool = True) -> None:
    """A suite whose programs write only what they print, ``run``, and with a ``golden`` step one file."""
    cases = ", ".join(f'{{ name = "{number}" }}' for number in range(CASES))
    lines = SUITE.replace("{run}", run).replace("{cases}", cases).splitlines()
    lines = [line for line in lines if golden or not line.startswith("golden")]
    (cli.cwd / "suite.toml").write_text("\n".join(lines))


def run_suite(cli: CommandLine, reports: Path) -> tuple[int, Mapping[str, Any], str]:
    """Exit status, the summary, and all that was printed; the reports say the same of every case."""
    junit, summary = reports / "junit.xml", reports / "summary.json"
    asked = ("--junit", str(junit), "--summary", str(summary))
    done = cli.run("test", "suite.toml", "--slots", "2", *asked)
    printed = done.stdout + done.stderr
    assert "Traceback" not in printed, printed
    assert summary.is_file(), printed
    found: Mapping[str, Any] = json.loads(summary.read_text())
    stated = ElementTree.parse(junit).getroot().attrib
    assert int(stated["tests"]) == sum(found["counts"].values()) == CASES
    assert int(stated["errors"]) == len(found["faults"])
    assert found["exit_status"] == done.returncode
    return done.returncode, found, printed


def test_no_inodes_are_the_hosts_fault(cli: CommandLine) -> None:
    """A case passes or is an infra_error, both reports are written, and the next run finds nothing wrong."""
    write_suite(cli, golden=False)
    with disk(cli.home, "size=50m,nr_inodes=36"):
        status, found, _ = run_suite(cli, cli.home / "reports")
        counts = found["counts"]
        assert counts["infra_error"] > 0, counts
        assert counts["infra_error"] + counts["passed"] == CASES, counts
        assert status == 3
        enlarge(cli.home)
        status, found, _ = run_suite(cli, cli.home / "reports")
        assert (status, found["counts"]["passed"]) == (0, CASES)


def test_a_folder_that_cannot_be_made_is_the_hosts_fault(cli: CommandLine) -> None:
    """No case is blamed whose program could not be begun for want of a place to work in."""
    cases = ", ".join(f'{{ name = "{number}" }}' for number in range(CASES))
    text = f'name = "s"\nrun = ["true"]\n[[testcase]]\nname = "t"\ncase = [{cases}]\n'
    (cli.cwd / "suite.toml").write_text(text)
    with disk(cli.home / "work", "size=1m,nr_inodes=4"):
        status, found, _ = run_suite(cli, cli.cwd)
        assert (status, found["counts"]["infra_error"]) == (3, CASES)


def test_a_log_that_cannot_be_written_decides_about_the_log(cli: CommandLine) -> None:
    """All cases pass; those that have a log are told of with it, and the others without."""
    write_suite(cli)
    with disk(cli.home / "logs", "size=1m,nr_inodes=6"):
        status, found, printed = run_suite(cli, cli.cwd)
        logs = [v["attempts"][0]["log"] for v in found["result"]["verdicts"]]
        assert (status, found["counts"]["passed"]) == (0, CASES), printed
        assert "" in logs
        assert all("is run" in (cli.home / log).read_text() for log in logs if log)


def test_a_full_store_loses_no_verdict(cli: CommandLine) -> None:
    """A run that fills the disk goes on; reports and result name the trials that are not recorded."""
    write_suite(cli, "cat /dev/zero > $TILEYARD_HOME/junk; true")
    with disk(cli.home, "size=3m,nr_inodes=10000"):
        status, found, printed = run_suite(cli, cli.home / "reports")
        unrecorded = found["result"]["unrecorded"]
        assert found["counts"]["passed"] > 0, printed
        assert found["counts"]["passed"] + found["counts"]["infra_error"] == CASES
        assert status == 3
        count = len(unrecorded)
        expected = f"could not be recorded: {unrecorded[0]}"
        assert expected in printed
        (cli.home / "junk").unlink()
        recorded = cli.run_json("trials", "--rows", "100")
        assert count + len(recorded) == CASES
        write_suite(cli)
        status, found, _ = run_suite(cli, cli.home / "reports")
        assert (status, found["counts"]["passed"]) == (0, CASES)


def test_a_report_without_room_for_logs_has_none(cli: CommandLine) -> None:
    """Whatever fills its disk while the suite runs, what is said of each case fits."""
    reports = cli.cwd / "reports"
    fill = f"seq 4000; cat /dev/zero > {reports}/junk; false"
    write_suite(cli, fill)
    with disk(reports, "size=300k,nr_inodes=10"):
        status, found, _ = run_suite(cli, reports)
        assert (status, found["counts"]["runtime_error"]) == (1, CASES)
        assert b"seq" not in (reports / "junit.xml").read_bytes()


def test_what_a_program_finds_full_is_its_own_failure(cli: CommandLine) -> None:
    """It fails, and the rest of the run goes on."""
    write_suite(cli, "[ $TILEYARD_CASE != t/3 ] || echo x > $TILEYARD_HOME/full/x")
    with disk(cli.home / "full", "size=1m,nr_inodes=1"):
        status, found, _ = run_suite(cli, cli.cwd)
        failed = [v for v in found["result"]["verdicts"] if v["outcome"] != "passed"]
        assert status == 1
        assert [(v["case"], v["outcome"]) for v in failed] == [("t/3", "runtime_error")]


def test_a_study_without_room_names_no_winner(knowing: CommandLine) -> None:
    """Builds that cannot be written are the host's fault, and the next run makes them."""
    tune = ("tune", str(KERNELS / "faults.py"), "--config", "fault=none", "--trials", "1")
    with disk(knowing.home / "tmp", "size=100k,nr_inodes=5"):
        done = knowing.run(*tune, "--json")
        found = json.loads(done.stdout)
        assert {trial["outcome"] for trial in found["trials"]} == {"infra_error"}, done.stderr
        assert (done.returncode, found["best"]) == (3, None)
        enlarge(knowing.home / "tmp")
        done = knowing.run(*tune, "--json")
        assert done.returncode == 0, done.stderr
