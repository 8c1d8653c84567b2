"""Mistakes planted in the correct kernels: what is edited, what a check has to say of it, and where.

One module because it is a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.sync.cases import CORRECT
from tests.sync.edits import Edit, added, changed, dropped, everywhere, guarded, moved, together

Kind = Literal[
    "read before arrival",
    "overwritten in flight",
    "source changed in flight",
    "overwritten before release",
    "race",
    "missing fence",
    "deadlock",
    "extra arrive",
    "bytes",
    "wait without group",
    "uninitialised",
    "out of bounds",
]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One edit of one kernel, after which a run can go wrong. A finding of ``kind`` has to name one of the
    lines of ``line_of``. Where one and the same cause shows in several ways, depending on which role is the
    faster one, kinds of ``also`` do as well. ``line_of`` are places in the edited kernel: the first line with
    the words, and with "X >> Y" the first line with Y, from that of X on.
    """

    kernel: str
    name: str
    edit: Edit
    kind: Kind
    line_of: tuple[str, ...]
    why: str
    also: tuple[Kind, ...] = ()
    arguments: Mapping[str, int] = field(default_factory=dict)

    def apply(self, source: str) -> str:
        """The text of ``source`` with the mistake; raises ValueError if its place is not found once."""
        begin, end = extent_of(source, self.kernel)
        return source[:begin] + self.edit(source[begin:end]) + source[end:]

    def lines(self, edited: str) -> set[int]:
        """The numbers of the lines that a finding may name."""
        begin, end = extent_of(edited, self.kernel)
        above = edited.count("\n", 0, begin) + 1
        return {above + _find(edited[begin:end].splitlines(), place) for place in self.line_of}


def extent_of(source: str, kernel: str) -> tuple[int, int]:
    """Where a kernel's text begins and ends."""
    begin = source.index(f"def {kernel}(")
    end = source.find("\n@", begin)
    return begin, len(source) if end < 0 else end + 1


def alone(source: str, kernel: str) -> str:
    """The file without its other kernels, with the same line numbers: each takes its time to be imported."""
    begin, end = extent_of(source, kernel)
    begin = source.rindex("@", 0, begin)
    head = source[: source.index("\n@") + 1]
    return head + "\n" * source.count("\n", len(head), begin) + source[begin:end]


def _find(lines: list[str], place: str) -> int:
    number = 0
    for words in place.split(" >> "):
        found = [at for at, line in enumerate(lines) if at >= number and words in line]
        if not found:
            raise ValueError(f"no line with {words!r}")
        number = found[0]
    return number


def _in(  # noqa: PLR0913 (a row of the table)
    kernel: str, name: str, edit: Edit, said: tuple[Kind, ...], line_of: tuple[str, ...], why: str
) -> Mistake:
    """A record; the first of ``said`` is its kind."""
    kind, *also = said
    return Mistake(
        kernel=kernel, name=name, edit=edit, kind=kind, also=tuple(also), line_of=line_of, why=why
    )


P, C = "if tx < 128:", "else:"
_FREE = "T.barrier_wait(free["
_FULL = "T.barrier_wait(full["
_COUNTS = "arrive_count=[128, 128])"

_TWO_STAGES = (
    _in("two_stages", "no wait for a free stage", dropped(_FREE),
        ("overwritten before release", "deadlock", "overwritten in flight"),
        (f"{P} >> T.tma_copy(", f"{P} >> a[k % 2, :, :], >> T.tma_copy("),
        "Stages are filled again while they are multiplied."),
    _in("two_stages", "first wait for free blocks", changed("(k // 2 + 1) % 2", "k // 2 % 2"), ("deadlock",),
        (_FREE,), "The first round waits for a release that only a multiplication makes."),
    _in("two_stages", "no wait for a full stage", dropped(_FULL), ("read before arrival", "uninitialised"),
        ("T.gemm(",), "Nothing says that the tiles are there."),
    _in("two_stages", "wait for full of the phase before", changed("k // 2 % 2)", "(k // 2 + 1) % 2)", C),
        ("read before arrival", "uninitialised"), ("T.gemm(",), "The other parity has always ended already."),
    _in("two_stages", "stages are never released", dropped("T.barrier_arrive(free"), ("deadlock",), (_FREE,),
        "The third fill waits for a release that nobody makes."),
    _in("two_stages", "fills are never said", dropped("T.barrier_arrive(full"), ("deadlock",), (_FULL,),
        "The bytes have come, but the arrivals have not."),
    _in("two_stages", "too few arrive", changed(_COUNTS, "arrive_count=[256, 256])", "full = "),
        ("deadlock",), (_FULL,), "Only one of two roles arrives."),
    _in("two_stages", "count of half the threads", changed(_COUNTS, "arrive_count=[64, 64])", "full = "),
        ("extra arrive", "read before arrival", "deadlock"), ("T.barrier_arrive(full", _FULL),
        "A fill ends two phases."),
    _in("two_stages", "fill said twice", added("T.barrier_arrive(full[k % 2])", "T.barrier_arrive(full"),
        ("extra arrive", "read before arrival", "deadlock"), (f"{P} >> T.barrier_arrive(full", _FULL),
        "A fill ends two phases."),
    _in("two_stages", "released before use", moved("T.barrier_arrive(free", "T.gemm("),
        ("overwritten before release",),
        ("T.gemm(", f"{P} >> T.tma_copy(", f"{P} >> a[k % 2, :, :], >> T.tma_copy("),
        "The other role may fill the stage that is multiplied."),
    _in("two_stages", "bytes expected twice",
        changed("T.barrier_arrive(full[k % 2])", "T.mbarrier_arrive_expect_tx(full[k % 2], 512)"),
        ("bytes", "deadlock"), ("T.mbarrier_arrive_expect_tx(", _FULL),
        "The copies expect their bytes themselves; these never come."),
    _in("two_stages", "half a pair on another barrier",
        changed("barrier=full[k % 2]", "barrier=full[(k + 1) % 2]", "b[k % 2"),
        ("read before arrival", "deadlock"), ("T.gemm(",),
        "The barrier of a stage says nothing of its second tile."),
    _in("two_stages", "multiplies the other stage", changed("a[k % 2, :, :], b", "a[(k + 1) % 2, :, :], b"),
        ("read before arrival", "uninitialised", "overwritten before release", "race"), ("T.gemm(",),
        "The stage has been waited for one round ago, or never."),
    _in("two_stages", "sum never cleared", dropped("T.clear(c)"), ("uninitialised",), ("T.gemm(",),
        "The product is added to what registers held."),
    _in("two_stages", "a stage too few", changed("(2, block, block)", "(1, block, block)", "a = "),
        ("out of bounds",), (f"{P} >> T.tma_copy(", "T.gemm("), "The second stage of A is outside of it."),
    _in("two_stages", "two rounds in one stage", everywhere("a[k % 2, :, :]", "a[0, :, :]", 2),
        ("overwritten before release", "overwritten in flight"), (f"{P} >> T.tma_copy(", "T.gemm("),
        "The barriers are of two stages, the tile is one."),
    _in("two_stages", "blocks of a row share a tile",
        changed("C[by * block, bx * block]", "C[by * block, 0]"), ("race",), ("T.copy(c",),
        "All blocks of a row write the same elements."),
    _in("two_stages", "half of the threads arrive", guarded("T.barrier_arrive(full", "tx < 64"),
        ("deadlock",), (_FULL,), "64 of 128 threads say that the stage is full."),
    _in("two_stages", "one round too many", changed("K // block", "K // block + 1", C), ("deadlock",),
        (_FULL,), "The last round waits for what nobody brings."),
    _in("two_stages", "a barrier too few", changed(_COUNTS, "arrive_count=[128])", "full = "),
        ("out of bounds",), (f"{P} >> T.tma_copy(", "T.barrier_arrive(full", _FULL),
        "There is no second barrier."),
    _in("two_stages", "cleared while it comes",
        added("for i, j in T.Parallel(block, block):\n    a[k % 2, i, j] = 0.0", "T.barrier_arrive(full"),
        ("overwritten in flight",), ("] = 0.0",), "The copy that is under way writes the same tile."),
)  # fmt: skip

_THREE_STAGES = (
    _in("three_stages", "first release not waited for", changed("k >= 3", "k >= 4"),
        ("overwritten before release", "overwritten in flight", "deadlock"),
        (f"{C} >> T.tma_copy(", f"{C} >> a[k % 3, :, :], >> T.tma_copy("),
        "The first stage is filled again at once."),
    _in("three_stages", "waits for the release before", changed("(k // 3 - 1) % 2", "k // 3 % 2"),
        ("overwritten before release", "overwritten in flight", "deadlock"),
        (f"{C} >> T.tma_copy(", f"{C} >> a[k % 3, :, :], >> T.tma_copy("), "That parity has ended already."),
    _in("three_stages", "phase of two stages", changed("k // 3 % 2", "k // 2 % 2"),
        ("read before arrival", "uninitialised"), ("T.gemm(",), "The third stage is not waited for."),
    _in("three_stages", "fills two of three stages", changed("a[k % 3, :, :],", "a[k % 2, :, :],", C),
        ("uninitialised", "overwritten before release", "overwritten in flight"),
        ("T.gemm(", f"{C} >> T.tma_copy("), "The third stage of A is multiplied and never filled."),
    _in("three_stages", "all threads arrive", changed("T.shuffle_elect(128)", "tx >= 128"),
        ("extra arrive", "read before arrival"), ("T.barrier_arrive(full", _FULL),
        "The barrier counts one arrival, and 128 come."),
    _in("three_stages", "said before the second copy",
        together(dropped("T.barrier_arrive(full"),
                 added("if T.shuffle_elect(128):\n    T.barrier_arrive(full[k % 3])", "T.tma_copy(",
                       "a[k % 3, :, :],")), ("read before arrival", "uninitialised", "bytes"), ("T.gemm(",),
                       "The phase may end before the second copy's bytes are expected."),
    _in("three_stages", "one thread releases", guarded("T.barrier_arrive(free", "T.shuffle_elect(128)"),
        ("deadlock",), (_FREE,), "The barrier waits for 128 threads."),
    _in("three_stages", "two stages of B", changed("(3, block, block)", "(2, block, block)", "b = "),
        ("out of bounds",), (f"{C} >> a[k % 3, :, :], >> T.tma_copy(", "T.gemm("),
        "The third stage of B is outside of it."),
    _in("three_stages", "bytes expected by hand",
        changed("T.barrier_arrive(full[k % 3])",
                "T.mbarrier_arrive_expect_tx(full[k % 3], 2 * block * block * 2)"), ("bytes", "deadlock"),
                ("T.mbarrier_arrive_expect_tx(", _FULL),
                "The copies expect their bytes themselves; these never come."),
)  # fmt: skip

_RIGHT = "T.clear(right)"
_THREE_ROLES = (
    _in("three_roles", "one role's release is enough", changed("[256, 256]", "[128, 128]"),
        ("overwritten before release", "read before arrival", "extra arrive"),
        ("tx >= 256: >> T.tma_copy(", "for side >> T.tma_copy("),
        "The stage is filled again while the slower role multiplies it."),
    _in("three_roles", "one role never releases", dropped("T.barrier_arrive(free", _RIGHT), ("deadlock",),
        (_FREE,), "Half of the arrivals never come."),
    _in("three_roles", "both store to the left",
        changed("C[by * block, (bx * 2 + 1) * block]", "C[by * block, bx * 2 * block]"), ("race",),
        ("T.copy(left", "T.copy(right"), "Two roles write the same elements."),
    _in("three_roles", "one role does not wait", dropped(_FULL, _RIGHT),
        ("read before arrival", "uninitialised"), (f"{_RIGHT} >> T.gemm(",),
        "Nothing says to that role that the tiles are there."),
    _in("three_roles", "one role releases before use", moved("T.barrier_arrive(free", "T.gemm(", _RIGHT),
        ("overwritten before release",),
        (f"{_RIGHT} >> T.gemm(", "tx >= 256: >> T.tma_copy(", "for side >> T.tma_copy("),
        "That role's tile may be filled again while it multiplies."),
    _in("three_roles", "one fill too few", changed("K // block", "K // block - 1", "tx >= 256:"),
        ("deadlock",), (f"tx < 128: >> {_FULL}", f"{_RIGHT} >> {_FULL}"),
        "The last round waits for what nobody brings."),
    _in("three_roles", "one side is not brought", changed("T.unroll(2)", "T.unroll(1)"), ("uninitialised",),
        (f"{_RIGHT} >> T.gemm(",), "The right tile of B is never filled."),
    _in("three_roles", "one role waits for its own release",
        added("T.barrier_wait(free[k % 2], k // 2 % 2)", "T.gemm(", _RIGHT), ("deadlock",),
        (f"{_RIGHT} >> {_FREE}", _FULL), "It waits for a phase that its own arrival would end."),
)  # fmt: skip

_PERSISTENT = (
    _in("persistent", "phases begin again for each tile", changed("turn = w * steps + k", "turn = k", C),
        ("read before arrival", "deadlock"), ("T.gemm(", _FULL),
        "Three phases have ended per barrier: the parity is the other one."),
    _in("persistent", "fills begin again for each tile", changed("turn = w * steps + k", "turn = k", P),
        ("overwritten before release", "deadlock"), ("T.tma_copy(", _FREE),
        "The release that is waited for is of another phase."),
    _in("persistent", "last stage of a tile is kept", guarded("T.barrier_arrive(free", "k + 1 < steps"),
        ("deadlock",), (_FREE,), "The next tile waits for that stage."),
    _in("persistent", "stage goes on, phase does not", changed("turn // 2 % 2", "k // 2 % 2"),
        ("read before arrival", "deadlock"), ("T.gemm(", _FULL),
        "The parity does not follow from tile to tile."),
)  # fmt: skip

_GUARDED = (
    _in("guarded", "skipped rounds are counted",
        changed("    brought = brought + 1", "brought = brought + 1"),
        ("deadlock", "read before arrival", "overwritten before release"), (_FULL, "T.gemm("),
        "One role goes on by a stage where the other stays."),
    _in("guarded", "phase by rounds, stage by use", changed("used // 2 % 2", "k // 2 % 2"),
        ("read before arrival", "deadlock"), ("T.gemm(", _FULL),
        "A skipped round turns the parity that is waited for."),
    _in("guarded", "uses what is masked", changed("Mask[by, k] != 0", "Mask[by, k] != 2", C), ("deadlock",),
        (_FULL,), "What is masked is never brought."),
    _in("guarded", "brings what is masked", changed("Mask[by, k] != 0", "Mask[by, k] != 2", P), ("deadlock",),
        (_FREE,), "Nobody uses and releases these stages."),
    _in("guarded", "counter begins at one", changed("used = 0", "used = 1"),
        ("deadlock", "read before arrival", "uninitialised"), (_FULL, "T.gemm("),
        "The first stage that is waited for is the second."),
    _in("guarded", "releases skipped rounds, too",
        changed("    T.barrier_arrive(free[used % 2])\n                        used = used + 1",
                "    used = used + 1\n                    T.barrier_arrive(free[used % 2])"),
                ("extra arrive", "overwritten before release", "deadlock"),
                ("T.barrier_arrive(free", f"{P} >> T.tma_copy(", _FREE),
                "A stage is released that is in use or was never filled."),
)  # fmt: skip

_ONE_BARRIER = (
    _in("one_barrier", "parity never turns",
        changed("T.barrier_wait(here, k % 2)", "T.barrier_wait(here, 0)"), ("read before arrival",), ("Y[",),
        "The first phase has ended for ever."),
    _in("one_barrier", "no wait", dropped("T.barrier_wait("), ("read before arrival",), ("Y[",),
        "Nothing says that the tile is there."),
    _in("one_barrier", "nobody arrives", dropped("T.barrier_arrive("), ("deadlock",), ("T.barrier_wait(",),
        "The bytes come, the arrivals do not."),
    _in("one_barrier", "count of half the threads", changed("arrive_count=128", "arrive_count=64"),
        ("extra arrive", "read before arrival", "deadlock"), ("T.barrier_arrive(", "T.barrier_wait("),
        "A round ends two phases."),
    _in("one_barrier", "bytes expected by all",
        added("T.mbarrier_expect_tx(here, block * block * 4)", "T.tma_copy("), ("bytes", "deadlock"),
        ("T.mbarrier_expect_tx(", "T.barrier_wait("), "The copy expects its bytes itself; these never come."),
    _in("one_barrier", "waits behind the use", moved("T.barrier_wait(", "T.sync_threads()"),
        ("read before arrival",), ("Y[",), "The tile is read first."),
    _in("one_barrier", "a second block writes something else",
        together(changed("T.Kernel(1,", "T.Kernel(2,"), changed("as _", "as who"),
                 changed("* 2.0", "* (who + 2.0)")), ("race",), ("Y[",), "Both blocks write all of Y."),
    _in("one_barrier", "half a tile",
        changed("X[k * block : (k + 1) * block, 0:block], x,",
                "X[k * block : k * block + block // 2, 0:block], x[0 : block // 2, :],"), ("uninitialised",),
                ("Y[",), "The second half of the rows is never brought."),
    _in("one_barrier", "arrives every second round", guarded("T.barrier_arrive(", "k % 2 == 0"),
        ("deadlock",), ("T.barrier_wait(",), "The second phase never ends."),
    _in("one_barrier", "copies after the arrival", moved("T.barrier_arrive(", "T.tma_copy("),
        ("read before arrival", "bytes"), ("Y[",), "The phase can end before the bytes are expected."),
)  # fmt: skip

_AHEAD = (
    _in("ahead", "copies to the tile that comes", changed("x[(k + 1) % 2, :, :],", "x[k % 2, :, :],"),
        ("overwritten in flight",), ("in T.serial(steps) >> T.tma_copy(",),
        "The tile of this round is still being written."),
    _in("ahead", "writes what is being brought",
        changed("X[k * block + i, j] =", "X[(k + 1) % steps * block + i, j] ="),
        ("source changed in flight",), ("] = x[",), "The next copy may read before or after."),
    _in("ahead", "first copy is not said", dropped("T.barrier_arrive(here[0])"), ("deadlock",),
        ("T.barrier_wait(",), "The first phase lacks its arrivals."),
    _in("ahead", "phase of one tile", changed("k // 2 % 2", "k % 2"), ("read before arrival",), ("] = x[",),
        "The second tile's first phase is not waited for."),
    _in("ahead", "cleared while it comes", added("T.clear(x)", "for k in T.serial"),
        ("overwritten in flight",), ("T.clear(x)",), "The first tile is under way already."),
    _in("ahead", "last tile is not brought", changed("k + 1 < steps", "k + 2 < steps"), ("deadlock",),
        ("T.barrier_wait(",), "The last round waits for it."),
    _in("ahead", "uses the tile that comes", changed("x[k % 2, i, j]", "x[(k + 1) % 2, i, j]"),
        ("read before arrival",), ("] = x[",), "It has been started in this round, and not waited for."),
    _in("ahead", "bytes expected by hand",
        changed("T.barrier_arrive(here[0])", "T.mbarrier_arrive_expect_tx(here[0], 1024)"),
        ("bytes", "deadlock"), ("T.mbarrier_arrive_expect_tx(", "T.barrier_wait("),
        "The copy expects its bytes itself; these never come."),
)  # fmt: skip

_ADD = (
    _in("add", "first group is not committed", dropped("T.ptx_commit_group()", "Y[i * 4]"),
        ("read before arrival",), ("Z[k",), "The first copies get into the group that the wait leaves."),
    _in("add", "no commit in the loop", dropped("T.ptx_commit_group()", "in T.serial(steps)"),
        ("wait without group", "read before arrival"), ("T.ptx_wait_group(", "Z[k"),
        "The copies of the loop are in no group."),
    _in("add", "no commit at all",
        together(dropped("T.ptx_commit_group()", "in T.serial(steps)"),
                 dropped("T.ptx_commit_group()", "Y[i * 4]")), ("wait without group", "read before arrival"),
                 ("T.ptx_wait_group(", "Z[k"), "No wait covers what is in no group."),
    _in("add", "commits behind the wait",
        moved("T.ptx_commit_group()", "T.sync_threads()", "in T.serial(steps)"),
        ("wait without group", "read before arrival"), ("T.ptx_wait_group(", "Z[k"),
        "When the wait runs, the copies are in no group yet."),
    _in("add", "commits every second round",
        guarded("T.ptx_commit_group()", "k % 2 == 1", "in T.serial(steps)"),
        ("wait without group", "read before arrival"), ("T.ptx_wait_group(", "Z[k"),
        "In the other rounds the copies are in no group."),
    _in("add", "no empty group at the end",
        guarded("T.ptx_commit_group()", "k + 1 < steps", "in T.serial(steps)"), ("read before arrival",),
        ("Z[k",), "The last wait leaves the last copies."),
    _in("add", "count too large", changed("T.ptx_wait_group(1)", "T.ptx_wait_group(2)"),
        ("read before arrival",), ("Z[k",), "The wait leaves the tile of this round."),
    _in("add", "copies to the tile that comes", changed("y[(k + 1) % 2, i * 4]", "y[k % 2, i * 4]"),
        ("overwritten in flight", "read before arrival"), ("x[(k + 1) >> T.ptx_cp_async(",),
        "The tile of this round is still being written."),
    _in("add", "writes what is being copied",
        added("for i in T.Parallel(block):\n    X[(k + 1) % steps * block + i] = 0.0", "T.sync_threads()",
              "Z[k"), ("source changed in flight",), ("] = 0.0",), "The next copy may read before or after."),
    _in("add", "a stage too few", changed("(2, block)", "(1, block)", "x = "), ("out of bounds",),
        ("in T.serial(steps) >> T.ptx_cp_async(", "Z[k"), "The second stage of X is outside of it."),
    _in("add", "commits in the round after",
        together(dropped("T.ptx_commit_group()", "in T.serial(steps)"),
                 added("T.ptx_commit_group()", "if k + 1 < steps")),
                 ("wait without group", "read before arrival"), ("T.ptx_wait_group(", "Z[k"),
                 "When the wait runs, the copies of this round are in no group yet."),
)  # fmt: skip

_GATHERED = (
    _in("gathered", "fills are never said", dropped("T.cp_async_barrier_noinc("), ("deadlock",), (_FULL,),
        "Nobody arrives."),
    _in("gathered", "arrives at once", changed("T.cp_async_barrier_noinc(", "T.barrier_arrive("),
        ("read before arrival",), ("Y[",), "A plain arrival does not wait for the thread's copies."),
    _in("gathered", "arrival before the copies", moved("T.cp_async_barrier_noinc(", "for i, j", P),
        ("read before arrival", "uninitialised"), ("Y[",), "It covers what was started before it."),
    _in("gathered", "no wait for a free stage", dropped(_FREE),
        ("overwritten before release", "overwritten in flight", "deadlock"), ("T.ptx_cp_async(",),
        "Stages are filled again while they are read."),
    _in("gathered", "arrives twice", added("T.barrier_arrive(full[k % 2])", "T.cp_async_barrier_noinc("),
        ("extra arrive", "read before arrival", "deadlock"),
        ("T.barrier_arrive(full", "T.cp_async_barrier_noinc(", "Y["),
        "The arrival of the copies is one of those that are counted."),
    _in("gathered", "a stage too few", changed("(2, block, block)", "(1, block, block)"), ("out of bounds",),
        ("T.ptx_cp_async(", "Y["), "The second stage is outside of the tile."),
    _in("gathered", "half of the tile",
        changed("T.Parallel(block, block // 4)", "T.Parallel(block // 2, block // 4)"), ("uninitialised",),
        ("Y[",), "The second half of the rows is never copied."),
    _in("gathered", "cleared while it comes",
        added("for i, j in T.Parallel(block, block):\n    x[k % 2, i, j] = 0.0", "T.cp_async_barrier_noinc("),
        ("overwritten in flight",), ("] = 0.0",), "The copies that are under way write the same tile."),
)  # fmt: skip

_IN_ONE_LOOP = (
    _in("in_one_loop", "first wait for free blocks", changed("(k + 1) % 2)", "k % 2)", "T.barrier_wait(free"),
        ("deadlock",), ("T.barrier_wait(free",),
        "The first round waits for a release that only a use makes."),
    _in("in_one_loop", "only one thread arrives", guarded("T.barrier_arrive(full)", "T.shuffle_elect(128)"),
        ("deadlock",), ("T.barrier_wait(full",), "The barrier waits for 128 threads."),
    _in("in_one_loop", "waits for the phase before",
        changed("T.barrier_wait(full, k % 2)", "T.barrier_wait(full, (k + 1) % 2)"),
        ("read before arrival", "uninitialised"), ("Y[",), "That parity has always ended already."),
    _in("in_one_loop", "each waits for the other",
        added("T.barrier_wait(full, k % 2)", "T.barrier_wait(free"), ("deadlock",),
        ("T.barrier_wait(full", "with T.ws(1) >> T.barrier_wait(full"),
        "The role that fills waits until it has filled."),
    _in("in_one_loop", "bytes expected by hand",
        added("if T.shuffle_elect(128):\n    T.mbarrier_expect_tx(full, block * block * 4)", "T.tma_copy("),
        ("bytes", "deadlock"), ("T.mbarrier_expect_tx(", "T.barrier_wait(full"),
        "The copy expects its bytes itself; these never come."),
)  # fmt: skip

_STORES = (
    _in("stores", "count too large", changed("T.tma_store_wait(1)", "T.tma_store_wait(2)"),
        ("source changed in flight",), ("] = X[",), "The store of two rounds ago may still read this tile."),
    _in("stores", "no wait", dropped("T.tma_store_wait(1)"), ("source changed in flight",), ("] = X[",),
        "The store of two rounds ago may still read this tile."),
    _in("stores", "one tile for two stores", everywhere("tile[k % 2", "tile[0", 2),
        ("source changed in flight",), ("] = X[",),
        "The wait leaves the store of the round before, which reads the same tile."),
    _in("stores", "waits behind the write", moved("T.tma_store_wait(1)", "T.fence_proxy_async()"),
        ("source changed in flight",), ("] = X[",), "The tile is written first."),
    _in("stores", "stores the other tile", changed("tile[k % 2, :, :]", "tile[(k + 1) % 2, :, :]"),
        ("uninitialised",), ("T.tma_copy(",), "The first store is of a tile that nothing wrote."),
    _in("stores", "a tile too few", changed("(2, block, block)", "(1, block, block)"), ("out of bounds",),
        ("] = X[", "T.tma_copy("), "The second tile is outside of it."),
    _in("stores", "some threads wait for all",
        guarded("T.sync_threads()", "T.get_thread_binding() < 64", "T.fence_proxy_async()"), ("deadlock",),
        ("fence_proxy_async >> T.sync_threads()",), "The barrier is for all threads, and half of them come."),
    _in("stores", "more threads than there are",
        changed("T.sync_threads()", "T.sync_threads(1, 256)", "T.fence_proxy_async()"), ("deadlock",),
        ("T.sync_threads(1",), "The block has 128 threads, and 256 are waited for."),
)  # fmt: skip

_WROTE = ("] = X[", "T.tma_copy(")
_STORED = (
    _in("stored_by_another", "no fence", dropped("T.fence_proxy_async()"), ("missing fence",), _WROTE,
        "TMA need not see what plain stores wrote."),
    _in("stored_by_another", "fence behind the arrival",
        moved("T.barrier_arrive(full", "T.fence_proxy_async()"), ("missing fence",), _WROTE,
        "The other role may go on before the fence."),
    _in("stored_by_another", "one thread fences", guarded("T.fence_proxy_async()", "T.shuffle_elect(128)"),
        ("missing fence",), _WROTE, "A fence is for the writes of the thread that makes it."),
    _in("stored_by_another", "first tile is fenced", guarded("T.fence_proxy_async()", "k == 0"),
        ("missing fence",), _WROTE, "Later tiles are not."),
    _in("stored_by_another", "fence before the write", moved("T.fence_proxy_async()", "for i, j"),
        ("missing fence",), _WROTE, "It covers what was written before it."),
    _in("stored_by_another", "count too large", changed("T.tma_store_wait(1)", "T.tma_store_wait(2)"),
        ("source changed in flight", "overwritten before release"), _WROTE,
        "A tile is released while its store may read it."),
    _in("stored_by_another", "no wait for the store", dropped("T.tma_store_wait(1)"),
        ("source changed in flight", "overwritten before release"), _WROTE,
        "A tile is released while its store may read it."),
    _in("stored_by_another", "no wait for a free tile", dropped(_FREE),
        ("source changed in flight", "overwritten before release", "deadlock", "race"), (*_WROTE, _FULL),
        "A tile is written while its store may read it."),
    _in("stored_by_another", "no wait for a full tile", dropped(_FULL),
        ("race", "uninitialised", "source changed in flight", "missing fence"), _WROTE,
        "The tile may not have been written yet."),
    _in("stored_by_another", "releases the wrong tile", changed("free[(k + 1) % 2]", "free[k % 2]"),
        ("deadlock",), (_FREE,),
        "The first tile is released by a store that waits for it to be written again."),
    _in("stored_by_another", "releases in the first round", changed("k >= 1", "k >= 0"),
        ("source changed in flight", "overwritten before release", "extra arrive", "deadlock"),
        (*_WROTE, "T.barrier_arrive(free"),
        "A release comes before there was anything to release: the next one is early."),
)  # fmt: skip

_ONE_IN_FLIGHT = (
    _in("one_in_flight", "count too large", changed("T.wait_wgmma(1)", "T.wait_wgmma(2)"),
        ("source changed in flight", "overwritten before release"),
        ("T.wgmma_gemm(", f"{C} >> T.tma_copy(", f"{C} >> a[k % 2, :, :], >> T.tma_copy("),
        "A stage is released while it may be read."),
    _in("one_in_flight", "no wait in the loop", dropped("T.wait_wgmma(1)"),
        ("source changed in flight", "overwritten before release"),
        ("T.wgmma_gemm(", f"{C} >> T.tma_copy(", f"{C} >> a[k % 2, :, :], >> T.tma_copy("),
        "A stage is released while it may be read."),
    _in("one_in_flight", "no last wait", dropped("T.wait_wgmma(0)"), ("read before arrival",), ("T.copy(c",),
        "The last product may not be in the registers yet."),
    _in("one_in_flight", "last wait leaves one", changed("T.wait_wgmma(0)", "T.wait_wgmma(1)"),
        ("read before arrival",), ("T.copy(c",), "The last product may not be in the registers yet."),
    _in("one_in_flight", "releases the stage in use", changed("free[(k + 1) % 2]", "free[k % 2]"),
        ("deadlock",), (_FREE,),
        "The first stage is released by a product that waits for it to be filled again."),
    _in("one_in_flight", "sum cleared too late", moved("T.clear(c)", "if k >= 1"),
        ("overwritten in flight", "uninitialised"), ("T.clear(c)", "T.wgmma_gemm("),
        "The product that is under way writes these registers."),
    _in("one_in_flight", "no wait for a full stage", dropped(_FULL), ("read before arrival", "uninitialised"),
        ("T.wgmma_gemm(",), "Nothing says that the tiles are there."),
    _in("one_in_flight", "used stage is cleared",
        added("for i, j in T.Parallel(block, block):\n    a[k % 2, i, j] = 0.0", "if k >= 1"),
        ("source changed in flight",), ("] = 0.0",), "The product that is under way reads it."),
    _in("one_in_flight", "said before the copies", moved("T.barrier_arrive(full", "T.tma_copy(", C),
        ("read before arrival", "uninitialised", "bytes"), ("T.wgmma_gemm(",),
        "The phase can end before the bytes are expected."),
)  # fmt: skip

_TOTALS = ("X[2 * k, i]", "X[2 * k + 1, i]")
_TURNS = (
    _in("turns", "second role does not wait", dropped("T.sync_threads(2, 256)"), ("race", "uninitialised"),
        _TOTALS, "Both roles use the sum at once."),
    _in("turns", "second turn is never given", dropped("T.named_barrier_arrive(2, 256)"), ("deadlock",),
        ("T.sync_threads(2",), "Nobody else arrives there."),
    _in("turns", "waits for the first's turn", changed("T.sync_threads(2, 256)", "T.sync_threads(1, 256)"),
        ("deadlock", "race", "extra arrive"),
        (f"{C} >> T.sync_threads(1", "T.sync_threads(1", "T.named_barrier_arrive(2"),
        "Both roles wait at one barrier, and nobody at the other."),
    _in("turns", "participants disagree", changed("T.sync_threads(2, 256)", "T.sync_threads(2, 128)"),
        ("deadlock",), ("T.sync_threads(2", "T.named_barrier_arrive(2"),
        "One side counts 128 threads, the other 256."),
    _in("turns", "waits for its first turn", changed("if k >= 1:", "if k >= 0:"), ("deadlock",),
        ("T.sync_threads(1", "T.sync_threads(2"), "Both roles wait for the other to begin."),
    _in("turns", "a turn too many", changed("k + 1 < rounds", "k < rounds"), ("extra arrive",),
        ("T.named_barrier_arrive(1",), "Nobody takes the last turn."),
    _in("turns", "turn given before the sum",
        moved("T.named_barrier_arrive(2, 256)", "for i in T.Parallel", "T.sync_threads(1"), ("race",),
        _TOTALS, "The other role may begin at once."),
    _in("turns", "turn given twice", added("T.named_barrier_arrive(2, 256)", "T.named_barrier_arrive(2"),
        ("extra arrive", "race", "deadlock"), ("T.named_barrier_arrive(2", "T.sync_threads(2"),
        "The barrier is full before the other role comes."),
    _in("turns", "first role does not wait", dropped("T.sync_threads(1, 256)"), ("race", "extra arrive"),
        _TOTALS, "It goes on while the other one has its turn."),
    _in("turns", "turn given by half the threads", guarded("T.named_barrier_arrive(1, 256)", "tx >= 192"),
        ("deadlock",), ("T.sync_threads(1",), "Those of half a role do not fill the barrier."),
)  # fmt: skip

_USED = ("T.wgmma_gemm(", "] = T.cast(")
_CONVERTED = (
    _in("converted", "no fence", dropped("T.fence_proxy_async()"), ("missing fence",), _USED,
        "wgmma need not see what plain stores wrote."),
    _in("converted", "fence before the writes", moved("T.fence_proxy_async()", "for i, j"),
        ("missing fence",), _USED, "It covers what was written before it."),
    _in("converted", "fence behind the arrival", moved("T.barrier_arrive(full", "T.fence_proxy_async()"),
        ("missing fence",), _USED, "The other role may go on before the fence."),
    _in("converted", "half of the threads fence", guarded("T.fence_proxy_async()", "tx < 64"),
        ("missing fence",), _USED, "A fence is for the writes of the thread that makes it."),
    _in("converted", "released while multiplied", moved("T.barrier_arrive(free", "T.wait_wgmma(0)"),
        ("source changed in flight", "overwritten before release"), (*_USED, f"{P} >> T.tma_copy("),
        "The next tile may be written while the product reads."),
    _in("converted", "no wait for the product", dropped("T.wait_wgmma(0)"), ("read before arrival",),
        ("T.copy(c",), "The sum may not be in the registers yet."),
    _in("converted", "said before it is written", moved("T.barrier_arrive(full", "for i, j"),
        ("race", "missing fence", "uninitialised"), _USED,
        "The other role may read while the tile is written."),
    _in("converted", "no wait for a full stage", dropped(_FULL),
        ("read before arrival", "race", "uninitialised"), ("T.wgmma_gemm(",),
        "Nothing says that the tiles are there."),
    _in("converted", "half of the tile",
        changed("in T.Parallel(block, block)", "in T.Parallel(block // 2, block)"), ("uninitialised",),
        ("T.wgmma_gemm(",), "The second half of the rows is never written."),
    _in("converted", "converts into the wrong tile", changed("b[k % 2, i, j] =", "a[k % 2, i, j] ="),
        ("overwritten in flight", "uninitialised"), ("] = T.cast(",),
        "The copy that is under way writes the same tile."),
)  # fmt: skip

_EPILOGUE = (
    _in("epilogue", "waits until it is read", changed("read=False", "read=True"), ("read before arrival",),
        ("T.copy(C[",), "The store has read its tile, and may not have written C."),
    _in("epilogue", "no wait for the store", dropped("T.tma_store_wait("), ("read before arrival",),
        ("T.copy(C[",), "C may not have been written yet."),
    _in("epilogue", "store is left", changed("T.tma_store_wait(0,", "T.tma_store_wait(1,"),
        ("read before arrival",), ("T.copy(C[",), "C may not have been written yet."),
    _in("epilogue", "copy is left", changed("T.ptx_wait_group(0)", "T.ptx_wait_group(1)"),
        ("read before arrival",), ("T.gemm(",), "The second copy may be under way."),
    _in("epilogue", "no wait for the copies", dropped("T.ptx_wait_group("), ("read before arrival",),
        ("T.gemm(",), "The copies may be under way."),
    _in("epilogue", "tile cleared after the store", added("T.clear(tile)", "T.tma_store_wait("),
        ("source changed in flight",), ("T.clear(tile)",), "The store may still read it."),
    _in("epilogue", "blocks of a row share a tile",
        changed("bx * block : (bx + 1) * block])", "0:block])", "T.tma_copy(tile"), ("race",),
        ("T.tma_copy(tile",), "All blocks of a row store to the same elements."),
    _in("epilogue", "sums in one column", changed("Sums[by * block + i, bx]", "Sums[by * block + i, 0]"),
        ("race",), ("Sums[by",), "All blocks of a row write the same elements."),
    _in("epilogue", "reads another block's tile",
        changed("C[by * block, bx * block], again", "C[by * block, (bx + 1) % (N // block) * block], again"),
        ("race", "uninitialised"), ("T.copy(C[",), "Blocks do not wait for each other."),
    _in("epilogue", "sum never cleared", dropped("T.clear(c)"), ("uninitialised",), ("T.gemm(",),
        "The product is added to what registers held."),
    _in("epilogue", "stores before it writes", moved("T.tma_copy(tile", "T.copy(c, tile)"),
        ("uninitialised",), ("T.tma_copy(tile",), "Nothing has been written to the tile."),
    _in("epilogue", "both copies into one tile",
        changed("bx * block : (bx + 1) * block], b)", "bx * block : (bx + 1) * block], a)"),
        ("overwritten in flight", "uninitialised"), ("A[by >> T.async_copy(B", "T.gemm("),
        "The first copy is under way when the second one starts."),
)  # fmt: skip

_ATTENTION = (
    _in("attention", "queries are not waited for", dropped("T.barrier_wait(q_full"),
        ("read before arrival", "uninitialised"), ("T.wgmma_gemm(q",), "Nothing says that they are there."),
    _in("attention", "scores are not waited for",
        changed("T.wait_wgmma(0)", "T.wait_wgmma(1)", "v_free[(n + 1)"),
        ("read before arrival", "source changed in flight"), ("weights[i, j] =",),
        "The wait leaves the latest product, which is theirs."),
    _in("attention", "values are released early", dropped("T.wait_wgmma(1)"),
        ("source changed in flight", "overwritten before release"),
        ("T.wgmma_gemm(weights", "v_free[n % 2] >> T.tma_copy("), "The last product may still read them."),
    _in("attention", "no last wait", dropped("T.wait_wgmma(0)", "T.wgmma_gemm(weights"),
        ("read before arrival",), ("T.copy(o",), "The last product may not be in the registers yet."),
    _in("attention", "keys are released early", moved("T.barrier_arrive(k_free", "if n >= 1"),
        ("source changed in flight", "overwritten before release"),
        ("T.wgmma_gemm(q", "k_free[n % 2], (n // >> T.tma_copy("),
        "The product that is under way reads them."),
    _in("attention", "values are not waited for", dropped("T.barrier_wait(v_full"),
        ("read before arrival", "uninitialised"), ("T.wgmma_gemm(weights",),
        "Nothing says that they are there."),
    _in("attention", "values arrive as keys", changed("barrier=v_full[n % 2]", "barrier=k_full[n % 2]"),
        ("read before arrival", "deadlock", "bytes"), ("T.wgmma_gemm(weights", "T.barrier_wait(k_full"),
        "The barrier of the values says nothing of their bytes."),
    _in("attention", "weights cleared in use",
        added("T.clear(weights)", "T.wait_wgmma(0)", "T.wgmma_gemm(weights"), ("source changed in flight",),
        ("T.clear(weights)",), "The product that is under way reads these registers."),
    _in("attention", "first wait for values blocks",
        changed("(n // 2 + 1) % 2", "n // 2 % 2", "T.barrier_wait(v_free"), ("deadlock",),
        ("T.barrier_wait(v_free",), "The first round waits for a release that only a use makes."),
    _in("attention", "queries are never said", dropped("T.barrier_arrive(q_full"), ("deadlock",),
        ("T.barrier_wait(q_full",), "The bytes come, the arrivals do not."),
    _in("attention", "values are released late", changed("n >= 1", "n >= 3"), ("deadlock",),
        ("T.barrier_wait(v_free", "T.barrier_wait(k_full"),
        "The third values wait for a release that comes after the fourth keys, which come after them."),
    _in("attention", "one stage of values", changed("(2, block, dim)", "(1, block, dim)", "v = "),
        ("out of bounds",), ("T.wgmma_gemm(weights", "v_free[n % 2] >> T.tma_copy("),
        "The second stage is outside of the tile."),
    _in("attention", "scores read, then waited for",
        moved("T.wait_wgmma(0)", "T.barrier_wait(v_full", "v_free[(n + 1)"),
        ("read before arrival", "source changed in flight"), ("weights[i, j] =",),
        "The scores may not be in the registers yet."),
    _in("attention", "bytes of the queries expected by hand",
        added("T.mbarrier_expect_tx(q_full, block * dim * 2)", "T.barrier_arrive(q_full"),
        ("bytes", "deadlock"), ("T.mbarrier_expect_tx(", "T.barrier_wait(q_full"),
        "The copy expects its bytes itself; these never come."),
)  # fmt: skip

MISTAKES = (
    *_TWO_STAGES, *_THREE_STAGES, *_THREE_ROLES, *_PERSISTENT, *_GUARDED, *_ONE_BARRIER, *_AHEAD, *_ADD,
    *_GATHERED,
    *_IN_ONE_LOOP, *_STORES, *_STORED, *_ONE_IN_FLIGHT, *_TURNS, *_CONVERTED, *_EPILOGUE, *_ATTENTION,
)  # fmt: skip

SOURCE = CORRECT.read_text(encoding="utf-8")
"""What they are planted in."""
