"""Policies of a suite and skips of the command line, as a user writes them."""

import json

import pytest
from tests.conftest import CommandLine
from tests.e2e.own_process import refuse_run

pytestmark = pytest.mark.slow

SUITE = """\
name = "s"
run = ["sh", "-c", "true"]
[[testcase]]
name = "light"
case = [{ name = "one", smoke = true }, { name = "two" }, { name = "three", smoke = "only" }]
[[testcase]]
name = "heavy"
[policies.quick]
exclude = ["heavy"]
[policies.change]
select = "declared"
skip = [{ cases = "light/three", reason = "needs a card" }]
"""


def test_policies_choose_and_say_what_they_leave_out(cli: CommandLine) -> None:
    """All but the heavy and the skipped ones; the cases that their owner lists; and no typing error."""
    path = cli.cwd / "suite.toml"
    path.write_text(SUITE, encoding="utf-8")
    quick = cli.run("test", str(path), "--policy", "quick", "--skip", "*/one")
    assert quick.returncode == 0, quick.stderr
    assert "policy quick excludes 1 case: heavy" in quick.stdout + quick.stderr
    change = cli.run("test", str(path), "--policy", "change", "--json")
    assert [one["case"] for one in json.loads(change.stdout)["verdicts"]] == ["light/one"]
    kept = sorted(file.name for file in cli.home.rglob("*"))
    path.write_text(SUITE.replace('["heavy"]', '["haevy/*"]'), encoding="utf-8")
    bad = refuse_run(cli, "test", str(path))
    said = (
        "suite.toml:9: policies.quick.exclude[0]: 'haevy/*' matches none of the 4 cases (did you "
        "mean heavy"
    )
    assert (bad.returncode, said in bad.stderr) == (2, True), bad.stderr
    assert sorted(file.name for file in cli.home.rglob("*")) == kept


def test_the_report_of_a_green_run_has_a_line_per_kind(cli: CommandLine) -> None:
    """Thirty reasons are one line unless -v asks for them; what was not asked for is not missed."""
    cases = ", ".join(f'{{ name = "c{n}" }}' for n in range(31))
    left = ", ".join(f'{{ cases = "many/c{n}", reason = "for {n}" }}' for n in range(1, 31))
    idle = "".join(f'[[skip]]\ncases = "gone{n}"\nreason = "r"\n' for n in range(12))
    (cli.cwd / "suite.toml").write_text(
        f'name = "s"\nrun = ["true"]\n[[testcase]]\nname = "many"\ncase = [{cases}]\n'
        f'[[testcase]]\nname = "other"\n[policies.few]\nexclude = ["other"]\nskip = [{left}]\n{idle}',
        encoding="utf-8",
    )
    done = cli.run("test", ".", "--policy", "few", "-k", "many")
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    assert (done.returncode, len(lines) <= 30, "PASSED" in lines) == (0, True, True), lines
    assert "        30  on the skip list of policy few (30 reasons): many/c1" in "\n ".join(lines)
    assert "families without a run" not in done.stdout
    full = cli.run("test", ".", "--policy", "few", "-v").stdout
    assert "        1  on the skip list of policy few: for 7: many/c7" in full
    assert "families without a run (1): other" in full
