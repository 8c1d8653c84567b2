"""The order of the queue over all devices."""

from collections.abc import Sequence

from tileyard.engine.cases import PATIENCE, Ready, ReadyQueue

ONE = frozenset({"board:0"})
TWO = frozenset({"board:0", "board:1"})


def queue_of(*entries: Ready) -> ReadyQueue:
    """A queue with these batches."""
    queue = ReadyQueue()
    for entry in entries:
        queue.add(entry)
    return queue


def names(taken: Sequence[Ready]) -> list[str]:
    """What was taken."""
    return [entry.batch for entry in taken]


def entry(name: str, expected_s: float | None = 1.0, **changes: object) -> Ready:
    """A batch that is ready."""
    fields: dict[str, object] = {"memory_bytes": 1, "devices": TWO, **changes}
    return Ready(name, expected_s=expected_s, **fields)  # type: ignore[arg-type]  # its own fields


def test_nothing_overtakes_an_interleaved_batch() -> None:
    """What stands behind it stays behind it, however long it is; what stands before it is sorted."""
    queue = queue_of(
        entry("a", 1.0),
        entry("b", 2.0),
        entry("pair", 0.1, interleaved=True, alone=True),
        entry("c", 9.0),
    )
    expected = ["b", "a", "pair", "c"]
    order: list[str] = []
    while queue:
        order += names(queue.take("board:0", ONE, 1))
    assert order == expected


def test_the_least_rank_goes_first() -> None:
    """However long it is; and what has no rank before all."""
    queue = queue_of(
        entry("b", 9.0, rank=2.0),
        entry("c", 1.0, rank=3.0),
        entry("a", rank=-1.0),
        entry("d", 3.0, rank=3.0),
        entry("unknown"),
    )
    order = [*names(queue.take("board:0", ONE, 4)), *names(queue.take("board:0", ONE, 4))]
    assert order == ["unknown", "a", "b", "d", "c"]


def test_a_short_batch_is_overtaken_only_so_often() -> None:
    """However many longer ones arrive, its turn comes."""
    queue = queue_of(entry("short", 0.1))
    before: list[str] = []
    for number in range(2 * PATIENCE):
        queue.add(entry(f"long{number}", 5.0))
        before += names(queue.take("board:0", ONE, 1))
        if "short" in before:
            break
    expected = PATIENCE
    assert before.index("short") == expected


def test_batches_share_a_run_only_if_they_may() -> None:
    """Another memory limit, and a batch that wants to be alone, end a run's cases."""
    queue = queue_of(
        entry("a"), entry("b"), entry("big", memory_bytes=2), entry("c"), entry("solo", alone=True)
    )
    expected = [["a", "b"], ["big"], ["c"], ["solo"]]
    assert [names(queue.take("board:0", ONE, 8)) for _ in expected] == expected


def test_a_device_leaves_what_it_failed_to_one_that_did_not() -> None:
    """Once every device has failed it, any of them may try again."""
    queue = queue_of(entry("a", avoid=frozenset({"board:0"})))
    assert queue.peek("board:0", TWO) is None
    expected = ["a"]
    assert names(queue.take("board:0", ONE, 1)) == expected


def test_what_is_put_back_goes_first() -> None:
    """A run that was broken off goes on before anything else is begun."""
    queue = queue_of(entry("later"))
    queue.put_back([entry("first"), entry("second")])
    expected = ["first", "second", "later"]
    assert names(queue.take("board:0", ONE, 8)) == expected


def test_what_is_unknown_is_as_long_as_the_last_with_its_call() -> None:
    """A long one counts at once, so that no device gets several; other calls stay unknown."""
    queue = queue_of(
        *(entry(name, None, call="f") for name in "abcdef"), entry("g", None, call="g")
    )
    queue.note_length("f", 0.001)
    assert names(queue.take("board:0", ONE, 1, hot=3)) == ["a", "b", "c"]
    queue.note_length("f", 1.0)
    queue.note_length("f", 0.001)
    assert names(queue.take("board:0", ONE, 1, hot=3)) == ["d"]
    for _ in range(30):
        queue.note_length("f", 0.001)
    assert names(queue.take("board:0", ONE, 1, hot=3)) == ["e", "f"]
