"""Studies on several devices: each silicon has its winners, and times of unlike devices do not mix."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import KERNELS, ROOT, CommandLine

pytestmark = pytest.mark.slow

UNEVEN = {
    "PYTHONPATH": str(ROOT),
    "TILEYARD_PLUGINS": "uneven=tests.e2e.uneven_target:UnevenTarget",
}
BLOCKS = [8, 16, 32, 64]
TUNE = (
    *("tune", str(KERNELS / "faults.py"), "--config", "fault=none", "--target", "uneven"),
    *("--config", f"block={','.join(map(str, BLOCKS))}", "--devices", "board"),
)


def declare(home: Path, *boards: tuple[str, str]) -> None:
    """Two boards, of which neither begins without the other: each one's silicon, and a variable."""
    home.mkdir(parents=True, exist_ok=True)
    os.mkfifo(home / "pipe")
    tables = [
        f'[[device]]\nname = "board:{number}"\nid = "{home}-{number}"\nidentity = "{silicon}"\n'
        f'env = {{ {variable}, {deed} = "{home}/pipe" }}\n'
        for number, (deed, (silicon, variable)) in enumerate(
            zip(("READS", "WRITES"), boards, strict=True)
        )
    ]
    (home / "devices.toml").write_text("\n".join(tables), encoding="utf-8")


def devices_of(result: dict[str, Any]) -> set[str]:
    """Where its configs were timed."""
    return {trial["device"] for trial in result["trials"]}


def test_each_silicon_has_a_winner(knowing: CommandLine) -> None:
    """Of the same configs, each of which is timed on each of both; and each winner is written down."""
    knowing.env.update(UNEVEN)
    declare(knowing.home, ("red", 'PLAIN = "1"'), ("blue", 'REVERSED = "1"'))
    red = knowing.run_json(*TUNE)
    (blue,) = red["others"]
    for result in (red, blue):
        assert sorted(trial["config"]["block"] for trial in result["trials"]) == BLOCKS
    assert [(result["silicon"], devices_of(result)) for result in (red, blue)] == [
        ("red", {"board:0"}),
        ("blue", {"board:1"}),
    ]
    times = {t["config"]["block"]: t["measurement"]["median_ns"] for t in red["trials"]}
    ranked = sorted(times, key=lambda block: times[block])
    assert red["best"]["config"]["block"] == ranked[0]
    assert blue["best"]["config"]["block"] == ranked[-1]
    shown = knowing.run(*TUNE).stdout
    assert [line.rpartition(" on ")[2] for line in shown.splitlines() if "best: " in line] == [
        "red",
        "blue",
    ]
    exported = knowing.run_here("export").stdout
    assert '"silicon": "red"' in exported
    assert '"silicon": "blue"' in exported


def test_a_slower_device_of_the_same_kind_makes_no_config_lose(knowing: CommandLine) -> None:
    """Its times do not count, every config is timed on the other one, and one line says so."""
    knowing.env.update(UNEVEN)
    declare(knowing.home, ("red", 'SLOWER = "1.08"'), ("red", 'PLAIN = "1"'))
    result = knowing.run_json(*TUNE)
    (kept_out,) = result["kept_out"]
    (left,) = {"board:0", "board:1"} - {kept_out["device"]}
    assert devices_of(result) == {left} == {kept_out["base"]}
    assert abs(kept_out["ratio"] - (1.08 if left == "board:1" else 1 / 1.08)) < 0.01
    assert sorted(trial["config"]["block"] for trial in result["trials"]) == BLOCKS
    again = knowing.run(*TUNE)
    assert "4 known from earlier runs" in again.stdout
    assert "board:" not in again.stdout.split("best: ")[0].split("known from")[1]


def test_equal_devices_share_a_study(knowing: CommandLine) -> None:
    """Where they take equally long, each config is timed once, on any of them."""
    knowing.env.update(UNEVEN)
    declare(knowing.home, ("red", 'PLAIN = "1"'), ("red", 'PLAIN = "2"'))
    result = knowing.run_json(*TUNE)
    assert result["kept_out"] == []
    assert devices_of(result) == {"board:0", "board:1"}
    assert [trial["outcome"] for trial in result["trials"]] == ["passed"] * len(BLOCKS)
