"""Groups of sources: what is compiled together, who is blamed, and what is compiled alone after all."""

import pytest

from tileyard.targets.cuda import grouping
from tileyard.targets.cuda.grouping import GroupSize, Member, compile_in_groups, own_part
from tileyard.targets.cuda.nvrtc import Compiled, NvrtcError
from tileyard.targets.cuda.resources import DeviceFunction

PLAIN = (0x7210).to_bytes(16, "little")
FROM_A_TABLE = (0xAB9 | 4 << 54).to_bytes(16, "little")


class Nvrtc:
    """Compiles sources whose text is a word, and refuses the words that it is told to. Without ``names`` its
    messages do not say where they stand. A word with "table" becomes code that reads one.
    """

    def __init__(self, *refused: str, names: bool = True) -> None:
        self.asked: list[list[str]] = []
        self._refused = refused
        self._names = names

    def compile(self, body: str) -> Compiled:
        """The words of a body as its cubin, or NvrtcError."""
        words = [line for line in body.splitlines() if not line.startswith("#line")]
        self.asked.append(words)
        bad = [word for word in words if word in self._refused]
        if bad and self._names:
            raise NvrtcError("".join(f"{word}.cu(7): error: {word} is wrong\n" for word in bad))
        if bad:
            raise NvrtcError("something is wrong\n")
        return Compiled(cubin=" ".join(words).encode(), log="")


@pytest.fixture(autouse=True)
def _read_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(cubin: bytes) -> tuple[DeviceFunction, ...]:
        return tuple(
            DeviceFunction(
                symbol=word,
                registers=0,
                stack_bytes=0,
                shared_bytes=0,
                parameter_bytes=0,
                parameters=(),
                code=FROM_A_TABLE if "table" in word else PLAIN,
            )
            for word in cubin.decode().split()
        )

    monkeypatch.setattr(grouping, "read_cubin", read)


def _members(*words: str) -> list[Member]:
    return [Member(name=f"{word}.cu", text=word, symbols=(word,)) for word in words]


def test_as_many_as_asked_for_are_compiled_together() -> None:
    """A fixed size gives groups of that size, and a smaller one at the end; order is kept."""
    nvrtc = Nvrtc()
    attempts = compile_in_groups(_members(*"abcde"), GroupSize(2), nvrtc.compile)
    expected = [["a", "b"], ["c", "d"], ["e"]]
    assert nvrtc.asked == expected
    assert [attempt.cubin for attempt in attempts] == [b"a b", b"a b", b"c d", b"c d", b"e"]


def test_whoever_is_named_is_blamed_alone() -> None:
    """Two culprits of four are compiled alone, each with its message, and the others together."""
    nvrtc = Nvrtc("b", "d")
    attempts = compile_in_groups(_members(*"abcd"), GroupSize(4), nvrtc.compile)
    expected = [["a", "b", "c", "d"], ["b"], ["d"], ["a", "c"]]
    assert nvrtc.asked == expected
    assert [attempt.cubin for attempt in attempts] == [b"a c", b"", b"a c", b""]
    assert attempts[1].log == "b.cu(7): error: b is wrong\n"


def test_without_names_a_group_is_halved() -> None:
    """The one culprit of eight is found by halves, and it alone has no cubin."""
    nvrtc = Nvrtc("f", names=False)
    attempts = compile_in_groups(_members(*"abcdefgh"), GroupSize(8), nvrtc.compile)
    expected = [True, True, True, True, True, False, True, True]
    assert [bool(attempt.cubin) for attempt in attempts] == expected
    assert len(nvrtc.asked) == 7


def test_being_named_is_no_proof() -> None:
    """A source that another one spoils is named as well, and is built once it stands alone."""
    nvrtc = Nvrtc("a")

    def spoil(body: str) -> Compiled:
        try:
            return nvrtc.compile(body)
        except NvrtcError as error:
            raise NvrtcError(f"{error}b.cu(1): error: a brace is missing\n") from error

    attempts = compile_in_groups(_members(*"abc"), GroupSize(3), spoil)
    expected = [b"", b"b", b"c"]
    assert [attempt.cubin for attempt in attempts] == expected


def test_code_that_reads_a_shared_table_is_compiled_alone() -> None:
    """Its place in the table depends on the others; whoever reads none shares the group's cubin."""
    nvrtc = Nvrtc()
    attempts = compile_in_groups(_members("a", "table", "c"), GroupSize(3), nvrtc.compile)
    expected = [b"a table c", b"table", b"a table c"]
    assert [attempt.cubin for attempt in attempts] == expected


@pytest.mark.parametrize(("alone_s", "each_s", "expected"), [(0.5, 0.2, 8), (0.2, 0.5, 1)])
def test_what_pays_is_found_out(alone_s: float, each_s: float, expected: int) -> None:
    """One alone and one group are timed, after one that makes the headers; the better way is kept."""
    size = GroupSize()
    assert size.choose(24) == 1
    size.note(1, 5.0)
    assert size.choose(23) == 1
    size.note(1, alone_s)
    assert size.choose(22) == 8
    size.note(8, 8 * each_s)
    assert size.choose(14) == expected


def test_a_member_has_its_own_part_of_a_log() -> None:
    """What ptxas says of its functions and what NVRTC says of its lines, and nothing of the others."""
    log = (
        'kernel.cu: using precompiled header file "x"\n'
        "a.cu(3): warning #177-D: variable x is never used\n      int x;\n          ^\n"
        "b.cu(9): warning #177-D: variable y is never used\n"
        "ptxas info    : Compiling entry function 'a' for 'sm_80'\n"
        "ptxas info    : Used 28 registers\n"
        "ptxas info    : Compiling entry function 'b' for 'sm_80'\n"
        "ptxas info    : Used 16 registers\n"
    )
    expected = (
        "b.cu(9): warning #177-D: variable y is never used\n"
        "ptxas info    : Compiling entry function 'b' for 'sm_80'\n"
        "ptxas info    : Used 16 registers\n"
    )
    assert own_part(log, _members("b")[0]) == expected
