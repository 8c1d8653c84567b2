"""A suite with parameters and a script of variables, as a user runs it."""

import json
from typing import Any

import pytest
from tests.conftest import CommandLine

pytestmark = pytest.mark.slow

SUITE = """\
name = "s"
env_from = "set.bash"
[parameters]
mode = ["sim", "npu"]
[run]
argv = ["sh", "-c", "true {mode}"]
runs = []
[run.hot]
argv = ["sh", "-c", 'for c; do echo B $c; [ {mode} = npu ] || echo $c $SDK >> {suite}/ran; echo E $c ok; \
done', "sh", "{cases}"]
runs = []
began = 'B (?P<case>.*)'
ended = 'E (?P<case>.*) (?P<verdict>.*)'
verdicts = { ok = "passed" }
[[testcase]]
name = "hot"
case = [{ name = "one" }, { name = "two" }]
[[testcase]]
name = "same"
run = ["true"]
"""


def run(cli: CommandLine, *options: str) -> dict[str, str]:
    """How the cases of a run ended."""
    done = cli.run("test", "suite.toml", *options, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return {verdict["case"]: verdict["outcome"] for verdict in result["verdicts"]}


def test_what_one_value_has_proven_says_nothing_of_another(cli: CommandLine) -> None:
    """Names are apart, programs know plain ones, steps get the script's variables, bad values end with 2."""
    (cli.cwd / "suite.toml").write_text(SUITE, encoding="utf-8")
    (cli.cwd / "set.bash").write_text("export SDK=beta2\n", encoding="utf-8")
    names = ("hot/one", "hot/two", "same/default")
    assert run(cli, "--set", "mode=sim") == {f"{name}@sim": "passed" for name in names}
    assert (cli.cwd / "ran").read_text().splitlines() == ["one beta2", "two beta2"]
    npu = ("--set", "mode=npu", "--changed", "any")
    assert run(cli, *npu) == {f"{name}@npu": "passed" for name in names}
    assert run(cli, *npu) == {f"{name}@npu": "skipped" for name in names}
    packed = cli.run("bundle", "suite.toml", "-o", "npu.tyb", "--set", "mode=npu")
    assert packed.returncode == 0, packed.stderr
    other = cli.run("test", "--from", "npu.tyb", "--set", "mode=sim")
    assert other.returncode == 2
    assert "--set mode=sim: it was built for mode=npu" in other.stderr
    kept = sorted(cli.home.rglob("*"))
    bad = cli.run("test", "suite.toml", "--set", "mode=nqu")
    said = (
        "suite.toml:4: parameters.mode: --set mode=nqu is not one of its values (did you mean 'npu'"
    )
    assert (bad.returncode, said in bad.stderr) == (2, True), bad.stderr
    assert sorted(cli.home.rglob("*")) == kept
