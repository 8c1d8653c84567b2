"""A queue is declared in TOML, checked line by line, and its templates are filled exactly. What is said of
queues without asking them.
"""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import ROOT

from tileyard.base.errors import UsageError
from tileyard.base.settings import Settings
from tileyard.devices.foreign import (
    SUBMITTER,
    ForeignQueue,
    decode_queues,
    digest_environment,
    fill_cancel,
    fill_submit,
    find_queue,
    name_device,
    read_queues,
    refuse_nesting,
    submitter_argv,
    survey_queues,
)
from tileyard.devices.survey import survey_devices
from tileyard.targets.command.given import VARIABLE, StepSite, find_site

TASK_SUBMIT = """
[[queue]]
name = "lab"
device = "cuda:{device}"
identity = "H100 SXM5, driver 550"
submit = [
  "task-submit", "--device", "auto", "--max-time", "{run_limit_s}", "--timeout", "{limit_s}",
  "{env:--env}", "--run", "{shell_command}",
]
cancel = ["task-submit", "--cancel", "{job}"]
job = 'task (\\d+)'
slots = 2
exit_codes = { 126 = "rejected", 137 = "interrupted" }
"""
COMMAND = ("python", "-m", "tileyard", "two words")
PLAIN: dict[str, Any] = {
    "name": "q",
    "submit": ["run", "{command}"],
    "device": "cpu:0",
    "identity": "some cores",
}


def queue(**changes: object) -> ForeignQueue:
    """A small queue."""
    return decode_queues([{**PLAIN, **changes}], "a.toml")[0]


def fill(asked: ForeignQueue) -> list[str]:
    """The arguments of one call, with a limit that has a fraction and values that a shell would split."""
    return fill_submit(asked, COMMAND, {"A": "1 2", "B": "x\"'$\n"}, 90.2)


def settings(tmp_path: Path) -> Settings:
    """Settings with all three files below one folder."""
    return Settings(
        home=tmp_path / "home",
        lock_dir=tmp_path,
        cores=(0,),
        host_config=tmp_path / "etc",
        project_file=tmp_path / "tileyard.toml",
    )


def test_a_queue_is_read_from_toml_and_becomes_slots(tmp_path: Path) -> None:
    """Each slot is a device without cores and locks that carries the declared identity."""
    (tmp_path / "tileyard.toml").write_text(TASK_SUBMIT, encoding="utf-8")
    found = find_queue("queue:lab", settings(tmp_path))
    expected = [("queue:lab/0", "queue", "H100 SXM5, driver 550", (), ())] * 2
    expected[1] = ("queue:lab/1", *expected[1][1:])
    devices = found.make_devices()
    assert [(d.name, d.kind, d.identity, d.cores, d.locks) for d in devices] == expected
    assert found.exit_codes == {126: "rejected", 137: "interrupted"}
    assert queue().make_devices()[0].name == "queue:q"


def test_the_later_file_wins_queue_by_queue(tmp_path: Path) -> None:
    """The project overrides the host, and keeps what it does not name."""
    (tmp_path / "etc").mkdir()
    other = TASK_SUBMIT.replace('"lab"', '"other"')
    (tmp_path / "etc/devices.toml").write_text(TASK_SUBMIT + other, encoding="utf-8")
    own = TASK_SUBMIT.replace("slots = 2", "slots = 3")
    (tmp_path / "tileyard.toml").write_text(own, encoding="utf-8")
    expected = {"lab": 3, "other": 2}
    assert {q.name: q.slots for q in read_queues(settings(tmp_path))} == expected


def test_the_queues_of_the_how_to_page_are_valid() -> None:
    """Every TOML block of the page is a declaration that works."""
    page = (ROOT / "docs/how-to/devices-behind-a-queue.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    tables = [table for block in blocks for table in msgspec.toml.decode(block)["queue"]]
    expected = ["lab", "slurm", "farm"]
    assert [found.name for found in decode_queues(tables, "page")] == expected


def test_an_unknown_queue_names_those_that_are_there(tmp_path: Path) -> None:
    """The hint lists them."""
    with pytest.raises(UsageError, match="none is declared"):
        find_queue("queue:lab", settings(tmp_path))
    (tmp_path / "tileyard.toml").write_text(TASK_SUBMIT, encoding="utf-8")
    with pytest.raises(UsageError, match=r"there is no queue 'queue:lap' \(queues: queue:lab\)"):
        find_queue("queue:lap", settings(tmp_path))


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    """File and place are named."""
    (tmp_path / "tileyard.toml").write_text("[[queue]\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"tileyard.toml: is not valid TOML"):
        read_queues(settings(tmp_path))


# ---- templates --------------------------------------------------------------------------------


def test_a_command_as_one_string_survives_a_shell() -> None:
    """Every argument comes out of the shell's own splitting as it went in; limits round up."""
    found = decode_queues(msgspec.toml.decode(TASK_SUBMIT)["queue"], "a.toml")[0]
    filled = fill(msgspec.structs.replace(found, queue_limit_s=59.5))
    expected = ["--max-time", "91", "--timeout", "150", "--env", "A=1 2", "--env", "B=x\"'$\n"]
    assert filled[3:11] == expected
    assert shlex.split(filled[-1]) == list(COMMAND)


def test_a_command_as_a_list_is_spliced() -> None:
    """Arguments stay apart; minutes, names and counts are filled in; doubled braces are braces."""
    submit = ["srun", "--gres=gpu:{devices}", "--time={run_limit_min}", "--export={env_names}"]
    filled = fill(queue(submit=[*submit, "{{x}}", "{command}"], devices=2))
    expected = ["srun", "--gres=gpu:2", "--time=2", "--export=A,B", "{x}", *COMMAND]
    assert filled == expected


def test_pairs_can_be_joined_to_their_option() -> None:
    """``{env:--env=}`` makes one argument of option and pair, ``{env}`` the pair alone."""
    joined = fill(queue(submit=["run", "{env:--env=}", "{command}"]))
    plain = fill(queue(submit=["run", "{env}", "{command}"]))
    expected = ["A=1 2", "B=x\"'$\n"]
    assert joined[1:3] == ["--env=" + pair for pair in expected]
    assert plain[1:3] == expected


def test_without_a_place_the_environment_goes_before_the_command() -> None:
    """``env`` sets it on the far side, in both spellings of the command."""
    expected = ["env", "A=1 2", "B=x\"'$\n", *COMMAND]
    assert fill(queue())[1:] == expected
    shell = fill(queue(submit=["run", "cd / && exec {shell_command}"]))[1]
    assert shlex.split(shell.removeprefix("cd / && exec ")) == expected


def test_cancel_gets_the_tasks_name() -> None:
    """Also inside an argument."""
    expected = ["scancel", "--name=17", "{}"]
    assert fill_cancel(("scancel", "--name={job}", "{{}}"), "17") == expected


def test_a_device_is_named_from_what_the_queue_gave() -> None:
    """Or is the same whatever it gave."""
    expected = ("cuda:3", "cpu:0")
    assert (name_device("cuda:{device}", "3"), name_device("cpu:0", "3")) == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"submit": ["run", "{comand}"]}, "unknown {comand}"),
        ({"submit": ["run"]}, "neither {command} nor {shell_command}"),
        ({"submit": ["run", "x{command}"]}, "must be an argument of its own"),
        ({"submit": ["run", "{shell_command:x}"]}, "unknown {shell_command:x}"),
        ({"submit": ["run", "{", "{command}"]}, "lone '{'"),
        ({"submit": []}, "`submit` is empty"),
        ({"submit": "run"}, "Expected `array`"),
        ({"identity": " "}, "`identity` is empty"),
        ({"name": "a b"}, "its name is not made of"),
        ({"slots": 0}, "`slots` is not above 0"),
        ({"queue_limit_s": -1}, "`queue_limit_s` is not above 0"),
        ({"cancel": ["x", "{job}"]}, "`job` does not say how to find it"),
        ({"cancel": ["x", "{task}"], "job": "(.)"}, "unknown {task}"),
        ({"status": ["x", "{job}"], "job": "(.)"}, "`status` and `ended` go together"),
        (
            {"status": ["x", "{job}"], "job": "(.)", "ended": "x"},
            "`ended` has not exactly one group",
        ),
        ({"wait": ["x"]}, "`wait` has no {job}"),
        ({"output": ["x", "{job}"], "job": "(.)"}, "`output` goes with `status`"),
        ({"job": "("}, "not a regular expression"),
        ({"job": "x"}, "not exactly one group"),
        ({"device": "cuda:{devise}"}, "unknown {devise}"),
        ({"device": "cuda:{device}", "device_variable": ""}, "`device_variable` is empty"),
        ({"device": ""}, "`device` is empty"),
        ({"inherit": ["A=B"]}, "'A=B' cannot be the name of a variable"),
        ({"environment": {"1": "x"}}, "'1' cannot be the name of a variable"),
        ({"exit_codes": {"126": "refused"}}, "Invalid enum value 'refused'"),
        ({"colour": 1}, "unknown field `colour`"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(changes: dict[str, object], said: str) -> None:
    """The line names the file, and what is wrong."""
    with pytest.raises(UsageError) as raised:
        queue(**changes)
    expected = "a.toml: "
    assert str(raised.value).startswith(expected)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_two_queues_of_one_name_are_refused() -> None:
    """Within one file."""
    with pytest.raises(UsageError, match="queue 'q' is declared twice"):
        decode_queues([PLAIN, PLAIN], "a.toml")


# ---- environment --------------------------------------------------------------------------------


def test_the_passed_environment_is_what_is_named() -> None:
    """Inherited variables that are set, overridden by those that the site gives."""
    found = queue(inherit=["A", "B", "C"], environment={"B": "site"})
    expected = {"A": "1", "B": "site"}
    assert found.pick_environment({"A": "1", "B": "2", "D": "4"}) == expected


def test_what_steps_share_travels_unasked() -> None:
    """The far side fills in the same toolchain and suite as this one."""
    shared = StepSite(suite="/shared/suite", toolchain="/shared/tools", env={"A": "1"})
    told = {VARIABLE: msgspec.json.encode(shared).decode(), "OTHER": "x"}
    arrived = queue(inherit=[]).pick_environment(told)
    assert find_site(arrived) == shared
    assert "OTHER" not in arrived


def test_places_stand_for_whole_paths_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for the beginning of a name beside the interpreter, or beside the suite's folder."""
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    site = StepSite(suite="/usr/suite")
    for text in ("/usr/bin/python3.11 -c 1", "/usr/bin/python3-config", "-I/usr/suite-2/x"):
        assert site.generalize(text) == text
    text = "/usr/bin/python3 '/usr/bin/python3' -I/usr/suite:/usr/suite/x"
    assert site.generalize(text) == "{python} '{python}' -I{suite}:{suite}/x"


def test_the_digest_sees_every_change() -> None:
    """Names, values and the joint between them; not the order."""
    one = digest_environment({"A": "1", "B": "2"})
    expected = one
    assert digest_environment({"B": "2", "A": "1"}) == expected
    for other in ({"A": "1"}, {"A": "1", "B": ""}, {"A1": "", "B": "2"}, {"A": "1", "B": "2 "}):
        assert digest_environment(other) != expected


def test_nesting_is_refused_by_either_variable() -> None:
    """An empty variable is none."""
    found = queue(device_variable="TASK_DEVICE")
    refuse_nesting(found, {"TASK_DEVICE": ""})
    with pytest.raises(UsageError, match="TASK_DEVICE is set"):
        refuse_nesting(found, {"TASK_DEVICE": "0"})
    with pytest.raises(UsageError, match="TILEYARD_SUBMISSION is set"):
        refuse_nesting(found, {"TILEYARD_SUBMISSION": "x"})


DECLARED = """
[[queue]]
name = "lab"
device = "npu:{{device}}"
identity = "910B3"
submit = ["{0}", "{{command}}"]
slots = 4
[[queue]]
name = "far"
device = "cuda:0"
identity = "H100"
submit = ["/no/such/tool", "{{command}}"]
"""


def declare(folder: Path) -> Settings:
    """A host with two queues."""
    (folder / "devices.toml").write_text(DECLARED.format(sys.executable), encoding="utf-8")
    return Settings(home=folder / "home", lock_dir=folder / "locks", cores=(0,), host_config=folder)


def test_queues_are_described_as_they_are_declared(tmp_path: Path) -> None:
    """The class is that of the far side's device; a client that is not here is told."""
    found = survey_queues(declare(tmp_path), tmp_path)
    expected = [
        ("queue:lab", "npu", "910B3", 4, sys.executable, True),
        ("queue:far", "cuda", "H100", 1, "/no/such/tool", False),
    ]
    assert [(q.name, q.kind, q.identity, q.slots, q.tool, q.is_tool_found) for q in found] == (
        expected
    )


def test_our_tasks_are_counted_by_who_follows_them(tmp_path: Path) -> None:
    """A process that merely names the command, as its keeper does, is none; nor is one that ended."""
    settings = declare(tmp_path)
    (lab,) = decode_queues(
        [{"name": "lab", "device": "npu:0", "identity": "i", "submit": ["x", "{command}"]}], "here"
    )
    argv = submitter_argv(lab)
    for pid, command in enumerate([argv, argv, ("keeper", SUBMITTER, "--", "lab"), ()], 100):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        data = "".join(f"{part}\0" for part in command).encode()
        (tmp_path / f"proc/{pid}/cmdline").write_bytes(data)
    (tmp_path / "proc/104").mkdir()
    expected = {"queue:lab": 2, "queue:far": 0}
    assert {q.name: q.tasks for q in survey_queues(settings, tmp_path)} == expected


def test_a_survey_has_the_queues_too(tmp_path: Path) -> None:
    """Beside the devices of the host, among which they are not."""
    seen = survey_devices(declare(tmp_path), 0.1, pause=lambda window_s: None)
    expected = ["queue:lab", "queue:far"]
    assert [queue.name for queue in seen.queues] == expected
    assert not any(device.name.startswith("queue:") for device in seen.devices)
