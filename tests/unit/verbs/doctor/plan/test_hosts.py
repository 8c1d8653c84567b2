"""What is made of a host's report, and of the way to it."""

from tileyard.engine.hosts.naming import HostAnswer
from tileyard.verbs.doctor.plan.findings import Finding, Level
from tileyard.verbs.doctor.plan.hosts import CPU, EFFECTS, Examined, HostReport, Line, judge_host

HERE = dict.fromkeys(EFFECTS, "1") | {"TileLang": ""}


def judge(ahead_s: float = 0.0, round_s: float = 0.1, **versions: str) -> dict[str, Finding]:
    """The findings of a host by their subjects."""
    answer = Examined(
        line=Line(round_s=round_s, ahead_s=ahead_s, bytes_per_s=2e6),
        report=HostReport(name="n7", versions=HERE | versions, findings=()),
    )
    found = judge_host(HostAnswer(host="a", answer=answer), HERE, has_kinds=False)
    return {one.subject.removeprefix("a "): one for one in found}


def test_clocks_that_are_a_second_apart_are_a_warning() -> None:
    """If the round trip does not explain it; it says which one is late."""
    assert judge(ahead_s=1.04).get("clock") == Finding(
        subject="a clock",
        level=Level.OK,
        message="1.040 s ahead of this host's, to within 50.0 ms",
    )
    late = judge(ahead_s=-2.0)["clock"]
    assert (late.level, "2.000 s behind" in late.message) == (Level.WARN, True)
    assert judge()["line"].message == "round trip 100.0 ms, 2 MB/s"


def test_what_differs_says_what_it_means() -> None:
    """Not the compiler of CPUs of another kind, which build for themselves; what both lack is the same."""
    assert judge()["agent"].message.endswith("Python, CUDA, C compiler, CPU as here")
    assert list(judge()) == ["agent", "line", "clock"]
    found = judge(TileLang="0.1")["TileLang"]
    assert found.message.startswith("0.1, and none here: it builds nothing for GPUs")
    found = judge(**{CPU: "2", "C compiler": "2"})
    assert list(found) == ["agent", CPU, "line", "clock"]


def test_hosts_with_several_kinds_of_cpus_are_a_warning() -> None:
    """A run that compares times on CPUs takes one."""
    answer = Examined(
        line=Line(round_s=0.1, ahead_s=0.0, bytes_per_s=2e6),
        report=HostReport(name="n7", versions=HERE, findings=()),
    )
    found = judge_host(HostAnswer(host="a", answer=answer), HERE, has_kinds=True)
    assert [one.level for one in found if one.subject == "a CPU"] == [Level.WARN]
