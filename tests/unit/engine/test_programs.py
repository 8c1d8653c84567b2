"""Cases of programs: keys that follow content, folders and logs of cases, verdicts of checks."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.digests import FileDigests, find_named
from tileyard.artifacts.objects import build_key, canonical_json
from tileyard.base.errors import HomeError, WorkerLostError
from tileyard.base.model import (
    BuildKey,
    BuildPart,
    Case,
    CommandWork,
    Digest,
    GoldenPart,
    HotRun,
    Outcome,
    OutputCheck,
    Step,
)
from tileyard.engine.hosting import StepHost
from tileyard.engine.programs import SAYS_WRONG, Programs, ProgramSite
from tileyard.processes.steps import StepEnd
from tileyard.targets.command.given import StepSite
from tileyard.workers.command_protocol import (
    CheckBatch,
    CompareOutputs,
    DigestFiles,
    Done,
    DoStep,
    FilesDigested,
    FindGolden,
    HostReply,
    IdentifyStep,
    PrepareFolder,
    StepDone,
    StepIdentified,
)
from tileyard.workers.protocol import (
    AnswerT,
    CaseRan,
    CommandRun,
    ElaboratedConfig,
    Failed,
    Golden,
    Judged,
    Question,
    RunBatch,
)

CHECK = OutputCheck(file="o.bin", golden="g.bin", dtype="uint8", shape=(4,))
Reply = ElaboratedConfig | Golden | Judged | Failed
FINE = StepEnd(seconds=0.1, code=0)


class FakeHost(StepHost):
    """Digests real files, runs nothing, and answers as it is told."""

    def __init__(self) -> None:
        super().__init__(Path(), ())
        self.asked: list[object] = []
        self.done = StepDone(end=FINE, tree=Digest("ab" * 20))
        self.compared = Judged(outcome=Outcome.PASSED)
        self.found = Digest("")

    async def ask(self, request: Question[AnswerT]) -> AnswerT:
        """Keep the question, and answer it."""
        self.asked.append(request)
        return request.check(self._answer(request))

    def _answer(self, request: object) -> object:
        match request:
            case DigestFiles(folder=folder, patterns=patterns):
                return FilesDigested(digest=FileDigests().digest(Path(folder), patterns))
            case IdentifyStep(step=step):
                return StepIdentified(uses=f"of {step.argv[0]}")
            case PrepareFolder():
                return Done()
            case FindGolden():
                return StepDone(tree=self.found)
            case CompareOutputs():
                return self.compared
            case _:
                return self.done

    @property
    def steps(self) -> list[DoStep]:
        """The steps that it was to run."""
        return [request for request in self.asked if isinstance(request, DoStep)]


class SlowHost(FakeHost):
    """Lets others ask before it answers, and counts what goes on at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work = self.most_at_work = 0

    async def ask(self, request: Question[AnswerT]) -> AnswerT:
        """The answer, somewhat later."""
        self.at_work += 1
        self.most_at_work = max(self.at_work, self.most_at_work)
        await asyncio.sleep(0)
        self.at_work -= 1
        return await super().ask(request)


class LostHost(FakeHost):
    """Is lost in each hot check after its first case, which is wrong."""

    async def follow(self, request: Question[AnswerT] | RunBatch) -> AsyncIterator[HostReply]:
        """One answer, and no more."""
        self.asked.append(request)
        assert isinstance(request, CheckBatch)
        first = request.run.entries[0].case
        yield CaseRan(case=first, outcome=Outcome.MISMATCH, seconds=0.1, message="wrong")
        raise WorkerLostError("the step host was killed")


def make_case(folder: Path, **changes: object) -> Case:
    """A case with all steps, in a suite of this folder; ``changes`` are fields of its work, or its own."""
    work = CommandWork(
        build=Step(argv=("sh", f"{folder}/build.sh", "{out}"), inputs=(f"{folder}/src/*.c",)),
        target="rows",
        golden=Step(argv=("sh", f"{folder}/golden.sh"), inputs=(f"{folder}/golden.txt",)),
        run=Step(argv=("{build}/rows", "{device}")),
        check=Step(argv=("sh", f"{folder}/check.sh")),
        outputs=(CHECK,),
    )
    own = {name: changes.pop(name) for name in ("seed", "id", "attempt") if name in changes}
    work = msgspec.structs.replace(work, **changes)
    case = Case(id="rows/one", testcase="rows", seed=7, work=work, target="command")
    return msgspec.structs.replace(case, **own)


def write_suite(folder: Path) -> Path:
    """The files that the steps name."""
    (folder / "src").mkdir(parents=True)
    names = ("build.sh", "golden.sh", "golden.txt", "check.sh", "src/a.c")
    for name in names:
        (folder / name).write_text(f"this is {name}")
    return folder


def make_site(folder: Path, lanes: int = 1, toolchain: str = "") -> ProgramSite:
    """Where the programs of a suite in this folder run."""
    return ProgramSite(
        sites={"": StepSite(suite=str(folder), tree=toolchain)}, lanes=lanes, threads=2
    )


def ask(
    folder: Path, kind: str, case: Case, *, host: FakeHost | None = None, toolchain: str = ""
) -> Sequence[Reply]:
    """What is answered for a case: it is elaborated, golden results are made, and it is judged."""
    work = case.work
    assert isinstance(work, CommandWork)

    async def talk() -> list[Reply]:
        site = make_site(folder, toolchain=toolchain)
        programs = Programs(site, Path("/home-of-it"), "r", host or FakeHost())
        replies: list[Reply] = [await programs.elaborate(case, work)]
        if kind != "build":
            replies.append(await programs.make_golden(case, work))
        if kind == "judge":
            replies.append(await programs.judge(case, work, BuildKey("b" * 40)))
        return replies

    return asyncio.run(talk())


def keys(folder: Path, case: Case, *, toolchain: str = "") -> dict[str, str]:
    """The keys of a case: its whole and own build, its golden step, and what is run and checked."""
    host = FakeHost()
    built, golden = ask(folder, "golden", case, host=host, toolchain=toolchain)
    assert isinstance(built, ElaboratedConfig)
    assert isinstance(golden, Golden)
    assert isinstance(built.command, CommandRun)
    return {
        "build": build_key(built.elaborated.kernel, "command", "f", {}),
        "own": built.command.own_build,
        "golden": host.steps[0].key if host.steps else "",
        "case": golden.key,
    }


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """The names of the keys that differ."""
    return {name for name in before if before[name] != after[name]}


def test_the_same_suite_elsewhere_has_the_same_keys(tmp_path: Path) -> None:
    """Where it lies, what its cases are called and how long they may take is no content."""
    one, two = write_suite(tmp_path / "one"), write_suite(tmp_path / "deep" / "two")
    expected = keys(one, make_case(one))
    assert keys(two, make_case(two)) == expected
    assert keys(two, make_case(two, id="rows/other")) == expected
    assert all(expected.values())


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("src/a.c", {"build", "own"}),
        ("build.sh", {"build", "own"}),
        ("golden.txt", {"golden", "case"}),
        ("golden.sh", {"golden", "case"}),
        ("check.sh", {"case"}),
        ("unrelated.txt", set()),
    ],
)
def test_a_file_changes_the_keys_of_the_steps_that_read_it(
    file: str, expected: set[str], tmp_path: Path
) -> None:
    """No more, no less: an input, or a file among the arguments."""
    folder = write_suite(tmp_path / "suite")
    before = keys(folder, make_case(folder))
    (folder / file).write_text("another text")
    assert changed(before, keys(folder, make_case(folder))) == expected


ECHO = Step(argv=("echo",))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed": 8}, set()),
        ({"part": GoldenPart(path="one")}, {"case"}),
        ({"part": GoldenPart(is_linked=True)}, set()),
        ({"target": "columns"}, {"build", "own"}),
        ({"build": ECHO}, {"build", "own"}),
        ({"golden": ECHO}, {"golden", "case"}),
        ({"run": ECHO}, {"case"}),
        ({"run": Step(argv=("{build}/rows", "{device}"), env={"A": "1"})}, {"case"}),
        ({"check": ECHO}, {"case"}),
        ({"check": None}, {"case"}),
        ({"outputs": ()}, {"case"}),
        ({"outputs": (msgspec.structs.replace(CHECK, nan="forbid"),)}, {"case"}),
        ({"hot": HotRun(step=ECHO, began="b", ended="e", verdicts={})}, {"case"}),
    ],
)
def test_what_a_case_says_changes_exactly_its_keys(
    changes: dict[str, object], expected: set[str], tmp_path: Path
) -> None:
    """Of build, golden result, and what is run and checked."""
    folder = write_suite(tmp_path / "suite")
    before = keys(folder, make_case(folder))
    assert changed(before, keys(folder, make_case(folder, **changes))) == expected


def test_another_toolchain_is_another_everything(tmp_path: Path) -> None:
    """Each step may use it."""
    folder = write_suite(tmp_path / "suite")
    before = keys(folder, make_case(folder), toolchain="one")
    after = keys(folder, make_case(folder), toolchain="two")
    assert changed(before, after) == {"build", "own", "golden", "case"}


def test_where_nothing_is_proven_nobody_looks_at_what_late_steps_use(tmp_path: Path) -> None:
    """Keys stay partial, which proves nothing; those of build and golden step, for results, do not change."""
    folder, host = write_suite(tmp_path / "suite"), FakeHost()
    case = make_case(folder)
    work = case.work
    assert isinstance(work, CommandWork)

    async def talk() -> tuple[Golden, Golden]:
        site = replace(make_site(folder), proves=False)
        programs = Programs(site, Path("/home-of-it"), "r", host)
        await programs.elaborate(case, work)
        prepared = await programs.make_golden(case, work)
        assert isinstance(prepared, Golden)
        return prepared, await programs.look_at_built(case, work, prepared, BuildKey("b" * 40))

    prepared, built = asyncio.run(talk())
    assert prepared.is_partial
    assert built == prepared
    looked_at = [one.step for one in host.asked if isinstance(one, IdentifyStep)]
    assert looked_at == [work.build, work.golden]
    assert host.steps[0].key == keys(folder, case)["golden"]


def plan_builds(
    folder: Path, names: Sequence[str], built: Collection[str] = ()
) -> tuple[dict[str, ElaboratedConfig], dict[str, tuple[str, ...]]]:
    """What is built for cases whose targets have own inputs, where it is in the store, what goes together."""
    build = Step(argv=("sh", f"{folder}/build.sh", "{out}"))
    cases = [
        make_case(
            folder,
            id=name,
            build=build,
            target=name,
            target_part=BuildPart(inputs=(f"{folder}/src/{name}.c",)),
        )
        for name in names
    ]
    works = [case.work for case in cases if isinstance(case.work, CommandWork)]
    needed = {work.target: work.target_part for work in works}
    site = replace(make_site(folder), targets={canonical_json(works[0].build): needed})

    async def talk() -> tuple[dict[str, ElaboratedConfig], dict[str, tuple[str, ...]]]:
        programs = Programs(site, Path("/home-of-it"), "r", FakeHost())
        found, together = {}, {}
        for case, work in zip(cases, works, strict=True):
            reply = await programs.elaborate(case, work, built.__contains__)
            assert isinstance(reply, ElaboratedConfig)
            found[case.id] = reply
            program = reply.elaborated.kernel.program
            together[case.id] = programs.builds.list_together(program)
        return found, together

    return asyncio.run(talk())


def test_an_edited_source_builds_the_targets_that_are_made_of_it(tmp_path: Path) -> None:
    """All unbuilt ones are built in one call; built ones stay as they are, and so do their run keys."""
    folder = write_suite(tmp_path / "suite")
    for name in "abc":
        (folder / "src" / f"{name}.c").write_text(name)
    before, together = plan_builds(folder, "abc")
    built = [one.elaborated.kernel.program for one in before.values()]
    assert list(together.values()) == [tuple(built)] * 3
    (folder / "src" / "a.c").write_text("edited")
    (folder / "src" / "b.c").write_text("edited")
    after, together = plan_builds(folder, "abc", built=built)
    edited = tuple(after[name].elaborated.kernel.program for name in "ab")
    assert together == {"a": edited, "b": edited, "c": ()}
    own = {name: one.command.own_build for name, one in after.items() if one.command is not None}
    was = {name: one.command.own_build for name, one in before.items() if one.command is not None}
    assert {name for name in own if own[name] != was[name]} == {"a", "b"}


def test_where_the_host_of_hot_checks_is_lost_the_rest_is_checked_one_by_one(
    tmp_path: Path,
) -> None:
    """A verdict that it gave before stays."""
    folder, host = write_suite(tmp_path / "suite"), LostHost()
    hot = HotRun(step=Step(argv=("check", "{cases}")), began="", ended="", verdicts={})
    cases = [make_case(folder, id=f"rows/{n}", check_hot=hot, outputs=()) for n in range(3)]

    async def talk() -> list[Judged | Failed]:
        programs = Programs(make_site(folder), Path("/home-of-it"), "r", host)
        works = [case.work for case in cases if isinstance(case.work, CommandWork)]
        asked = [programs.judge(c, w, BuildKey("")) for c, w in zip(cases, works, strict=True)]
        return await asyncio.gather(*asked)

    verdicts = asyncio.run(talk())
    assert verdicts[0] == Judged(outcome=Outcome.MISMATCH, message="check step: wrong")
    assert verdicts[1:] == [Judged(outcome=Outcome.PASSED)] * 2
    assert [step.argv[0] for step in (one.step for one in host.steps)] == ["sh", "sh"]
    assert sum(isinstance(one, CheckBatch) for one in host.asked) == 1


def test_each_attempt_has_a_folder_and_one_log_for_all_steps(tmp_path: Path) -> None:
    """The log is that of the engine's case; the folder is absolute."""
    folder = write_suite(tmp_path / "suite")
    for attempt, run in ((1, "r"), (2, "r.2")):
        host = FakeHost()
        built, *_ = ask(folder, "judge", make_case(folder, attempt=attempt), host=host)
        assert isinstance(built, ElaboratedConfig)
        assert built.command is not None
        assert built.command.folder == f"/home-of-it/work/{run}/rows/one"
        assert {s.log for s in host.steps} == {f"/home-of-it/logs/{run}/rows/one.log"}
        assert [s.title for s in host.steps] == ["golden", "check"]
        assert "work" not in host.steps[0].places
        assert host.steps[1].places["work"] == f"/home-of-it/work/{run}/rows/one/data"


def test_a_golden_step_is_told_nothing_that_is_not_in_its_key(tmp_path: Path) -> None:
    """Neither the name of the case nor its seed is, unless its words ask for them."""
    folder = write_suite(tmp_path / "suite")
    host = FakeHost()
    ask(folder, "golden", make_case(folder), host=host)
    assert host.steps[0].env == {}
    assert host.steps[0].cwd == str(folder)


def make_goldens(folder: Path, cases: Sequence[Case], host: FakeHost) -> list[Golden | Failed]:
    """What golden steps give these cases, which are prepared at the same time."""

    async def talk() -> list[Golden | Failed]:
        programs = Programs(make_site(folder, lanes=2), Path("/home-of-it"), "r", host)
        works = [case.work for case in cases if isinstance(case.work, CommandWork)]
        asked = [programs.make_golden(case, work) for case, work in zip(cases, works, strict=True)]
        return await asyncio.gather(*asked)

    return asyncio.run(talk())


def test_a_golden_step_of_a_whole_testcase_is_run_for_one_of_its_cases(tmp_path: Path) -> None:
    """Each of the others gets its own part of the result, and takes no lane while it waits."""
    folder, host = write_suite(tmp_path / "suite"), SlowHost()
    cases = [
        make_case(folder, id=f"rows/c{n}", seed=n, part=GoldenPart(path=f"c{n}", is_linked=True))
        for n in range(4)
    ]
    replies = make_goldens(folder, cases, host)
    prepared = [one for one in host.asked if isinstance(one, PrepareFolder)]
    assert len(host.steps) == 1
    assert [one.part.path for one in prepared] == ["c0", "c1", "c2", "c3"]
    assert len({reply.key for reply in replies if isinstance(reply, Golden)}) == 4


class TornHost(FakeHost):
    """Finds what a golden step has made damaged."""

    def _answer(self, request: object) -> object:
        if isinstance(request, PrepareFolder):
            raise HomeError("it is damaged")
        return super()._answer(request)


def test_a_golden_result_that_is_damaged_is_made_anew_without_it(tmp_path: Path) -> None:
    """A case that is prepared again asks for its golden step as if there had been none."""
    folder, host = write_suite(tmp_path / "suite"), TornHost()
    case = make_case(folder)
    work = case.work
    assert isinstance(work, CommandWork)

    async def talk() -> None:
        programs = Programs(make_site(folder), Path("/home-of-it"), "r", host)
        for _ in range(2):
            assert isinstance(await programs.make_golden(case, work), Failed)

    asyncio.run(talk())
    assert [(one.golden, "work" in one.places) for one in host.steps] == [("", False)] * 2


def test_a_shared_golden_step_that_fails_runs_again_only_for_another_attempt(
    tmp_path: Path,
) -> None:
    """All cases that share it fail by it with the same message, and their logs say in whose log it is."""
    folder, host = write_suite(tmp_path / "suite"), FakeHost()
    host.done = StepDone(end=StepEnd(seconds=1.0, code=4), message="no data")
    cases = [make_case(folder, id="rows/c1"), make_case(folder, id="rows/c2")]
    again = make_case(folder, id="rows/c1", attempt=2)
    replies = make_goldens(folder, [*cases, again], host)
    seen = [(reply.message, reply.log) for reply in replies if isinstance(reply, Failed)]
    said = "golden step: no data"
    pointer = "made for rows/c1: see logs/r/rows/c1.log"
    assert seen == [(said, ""), (said, pointer), (said, "")]
    assert len(host.steps) == 2


def test_a_golden_step_that_fails_ends_the_case(tmp_path: Path) -> None:
    """As an error, or as a timeout where its limit has ended it."""
    folder = write_suite(tmp_path / "suite")
    host = FakeHost()
    for timed_out, expected in ((False, Outcome.RUNTIME_ERROR), (True, Outcome.TIMEOUT)):
        end = StepEnd(seconds=1.0, code=4, timed_out=timed_out)
        host.done = StepDone(end=end, message="no data")
        *_, reply = ask(folder, "golden", make_case(folder), host=host)
        assert isinstance(reply, Failed)
        assert (reply.outcome, reply.message) == (expected, "golden step: no data")


@pytest.mark.parametrize(
    ("code", "compared", "outcome", "message"),
    [
        (0, Outcome.PASSED, Outcome.PASSED, ""),
        (2, Outcome.PASSED, Outcome.MISMATCH, "check step: off"),
        (3, Outcome.PASSED, Outcome.RUNTIME_ERROR, "check step: off"),
        (1, Outcome.PASSED, Outcome.RUNTIME_ERROR, f"check step: off ({SAYS_WRONG})"),
        (0, Outcome.MISMATCH, Outcome.MISMATCH, "o.bin is off"),
    ],
)
def test_a_verdict_takes_comparison_and_check_step(
    code: int, compared: Outcome, outcome: Outcome, message: str, tmp_path: Path
) -> None:
    """Exit status 2 is a wrong result; after a comparison that fails no check is run."""
    folder = write_suite(tmp_path / "suite")
    host = FakeHost()
    host.compared = Judged(
        outcome=compared, message="o.bin is off" if compared is Outcome.MISMATCH else ""
    )
    case = make_case(folder, golden=None)
    host.done = StepDone(end=StepEnd(seconds=0.1, code=code), message="off" if code else "")
    *_, reply = ask(folder, "judge", case, host=host)
    assert isinstance(reply, Judged | Failed)
    assert (reply.outcome, reply.message) == (outcome, message)
    assert len(host.steps) == (1 if compared is Outcome.PASSED else 0)


def test_steps_that_pass_and_complain_are_flagged(tmp_path: Path) -> None:
    """Golden and check step each for themselves."""
    folder = write_suite(tmp_path / "suite")
    host = FakeHost()
    end = StepEnd(seconds=0.1, code=0, complaints=3)
    host.done = StepDone(end=end, tree=Digest("ab" * 20))
    _, golden, judged = ask(folder, "judge", make_case(folder), host=host)
    assert isinstance(golden, Golden)
    assert isinstance(judged, Judged)
    assert golden.flag == "golden step wrote 3 lines to stderr, kept in its log"
    assert judged.message == "check step wrote 3 lines to stderr, kept in its log"


def test_golden_steps_comparisons_and_checks_share_the_lanes(tmp_path: Path) -> None:
    """However many cases are prepared and judged at the same time."""
    folder = write_suite(tmp_path / "suite")
    slow = SlowHost()
    cases = [make_case(folder, id=f"rows/c{number}") for number in range(8)]

    async def talk() -> list[Judged | Failed]:
        programs = Programs(make_site(folder, lanes=2), Path("/home-of-it"), "r", slow)
        for case in cases:
            programs.adopt(case, Digest("ab" * 20))
        works = [case.work for case in cases if isinstance(case.work, CommandWork)]
        judging = [
            programs.judge(case, work, BuildKey("b" * 40))
            for case, work in zip(cases, works, strict=True)
        ]
        return await asyncio.gather(*judging)

    replies = asyncio.run(talk())
    expected = [Judged(outcome=Outcome.PASSED)] * 8
    assert replies == expected
    assert slow.most_at_work == 2


class StuckHost(FakeHost):
    """Begins check steps and never ends them; golden results are known."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Digest("cd" * 20)

    async def ask(self, request: Question[AnswerT]) -> AnswerT:
        """The answer, unless a step has to run for it."""
        if isinstance(request, DoStep):
            await asyncio.Event().wait()
        return await super().ask(request)


def test_a_known_golden_result_does_not_wait_for_check_steps(tmp_path: Path) -> None:
    """More checks wait than there are lanes, and a device still gets its next case."""
    folder = write_suite(tmp_path / "suite")
    cases = [make_case(folder, id=f"rows/c{number}", outputs=()) for number in range(4)]

    async def talk() -> Golden | Failed:
        programs = Programs(make_site(folder), Path("/home-of-it"), "r", StuckHost())
        works = [case.work for case in cases if isinstance(case.work, CommandWork)]
        checks = [
            asyncio.create_task(programs.judge(case, work, BuildKey("b" * 40)))
            for case, work in zip(cases, works, strict=True)
        ]
        await asyncio.sleep(0)
        made = await asyncio.wait_for(programs.make_golden(cases[0], works[0]), 60)
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        return made

    made = asyncio.run(talk())
    assert isinstance(made, Golden)
    assert made.tree == "cd" * 20


def test_files_within_longer_texts_are_named_and_no_inputs(tmp_path: Path) -> None:
    """A script may write what it names, which must not change its key; a place's file is not known yet."""
    folder = write_suite(tmp_path / "suite")
    argv = ("sh", f"--data={folder}/src/a.c", f"--out={folder}/src/a.c{{device}}", "-q")
    named = Step(argv=argv, env={"RULES": f"x:{folder}/check.sh:y"})
    assert find_named(named, folder) == [f"{folder}/src/a.c", f"{folder}/check.sh"]
    case = make_case(folder, check=named)
    before = keys(folder, case)
    (folder / "src" / "a.c").write_text("other")
    assert changed(before, keys(folder, case)) == {
        "build",
        "own",
    }  # src/*.c is what the build names
