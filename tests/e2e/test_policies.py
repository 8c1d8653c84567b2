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
    """All but the heavy ones, without those that are skipped; the cases that their owner lists; and no typing error."""
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
    said = "suite.toml:9: policies.quick.exclude[0]: 'haevy/*' matches none of the 4 cases (did you mean heavy"
    assert (bad.returncode, said in bad.stderr) == (2, True), bad.stderr
    assert sorted(file.name for file in cli.home.rglob("*")) == kept
