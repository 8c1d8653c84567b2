"""From a kernel's space to the configs that are tried."""

import asyncio
import contextlib
import re

import msgspec
import pytest

from tileyard.base.errors import KernelFileError, UsageError
from tileyard.base.model import Draw, Span, Value
from tileyard.frontend.declare import KernelInfo
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.space import CHUNK, OpenSpace, open_space
from tileyard.workers.protocol import (
    Accepted,
    AuthorReply,
    AuthorRequest,
    CheckConfigs,
    DescribeKernels,
    ExpandSpace,
    Failed,
    Kernels,
    Space,
)

GEMM = KernelInfo(
    name="gemm",
    file="gemm.py",
    style="tileyard",
    parameters=("M", "N", "bm", "bn", "dtype"),
    required=("M", "N", "bm", "bn"),
    defaults={"dtype": "float32"},
    tunable=("bm", "bn"),
    shapes={"big": {"M": 1024, "N": 1024}, "small": {"M": 64, "N": 64}},
)


class PlainAuthor:
    """An author of one kernel whose ``where`` accepts products of at most ``limit``."""

    cores = (0,)

    def __init__(self, *kernels: KernelInfo, space: Space, limit: int = 10**9) -> None:
        self.kernels = kernels
        self.space = space
        self.limit = limit
        self.checks = 0

    async def begin(self) -> None:
        """Nothing to start."""

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """Answer from plain values."""
        match request:
            case DescribeKernels():
                return Kernels(kernels=self.kernels)
            case ExpandSpace():
                return self.space
            case CheckConfigs(configs=configs):
                self.checks += 1
                return Accepted(
                    accepted=tuple(int(c["bm"]) * int(c["bn"]) <= self.limit for c in configs)
                )
            case _:
                return Failed(message=f"not asked here: {request}")

    async def close(self) -> None:
        """Nothing was started."""


AXES: dict[str, tuple[Value, ...]] = {"bm": (16, 32, 64), "bn": (8, 16)}


def opened(author: PlainAuthor, *, target: str = "cpu", **request: object) -> OpenSpace:
    """The space that a request opens for a target."""
    made = TuneRequest(**request)  # type: ignore[arg-type]  # fields of the request
    return asyncio.run(open_space(author, made, targets=(target,)))


def test_axes_are_multiplied_out_in_order() -> None:
    """A mapping of axes gives every combination, the last axis fastest."""
    space = opened(PlainAuthor(GEMM, space=Space(axes=AXES)))
    expected = [(16, 8), (16, 16), (32, 8), (32, 16), (64, 8), (64, 16)]
    assert [(c["bm"], c["bn"]) for c in space.configs] == expected
    assert list(space.configs[0]) == ["bm", "bn"]
    assert space.arguments == {"M": 1024, "N": 1024}


def test_where_is_asked_and_obeyed() -> None:
    """Configs that the author rejects are not tried."""
    space = opened(PlainAuthor(GEMM, space=Space(axes=AXES), limit=256))
    expected = [(16, 8), (16, 16), (32, 8)]
    assert [(c["bm"], c["bn"]) for c in space.configs] == expected
    assert space.size == 6


def test_a_list_of_configs_is_taken_as_it_is() -> None:
    """A kernel may list its configs instead of spanning a product."""
    configs: tuple[dict[str, Value], ...] = ({"bm": 16, "bn": 8}, {"bm": 64, "bn": 16})
    space = opened(PlainAuthor(GEMM, space=Space(configs=configs)))
    expected = list(configs)
    assert space.configs == expected


def test_values_given_by_hand_replace_an_axis() -> None:
    """An override changes one axis and leaves the others."""
    space = opened(PlainAuthor(GEMM, space=Space(axes=AXES)), overrides={"bm": (128,)})
    expected = [(128, 8), (128, 16)]
    assert [(c["bm"], c["bn"]) for c in space.configs] == expected


def test_an_argument_fixes_a_tunable_parameter() -> None:
    """--arg on a tunable parameter takes it out of the search."""
    space = opened(PlainAuthor(GEMM, space=Space(axes=AXES)), arguments={"bn": 16})
    expected = {16}
    assert {c["bn"] for c in space.configs} == expected
    assert "bn" not in space.arguments


def test_a_named_shape_and_then_arguments() -> None:
    """Arguments given by hand go over those of the named shape."""
    space = opened(PlainAuthor(GEMM, space=Space(axes=AXES)), shape="small", arguments={"N": 96})
    expected = {"M": 64, "N": 96}
    assert space.arguments == expected


def test_fewer_trials_than_points_are_a_seeded_sample() -> None:
    """The same seed gives the same configs, each of them once."""
    author = PlainAuthor(GEMM, space=Space(axes={"bm": tuple(range(1, 101)), "bn": (1, 2)}))
    first = opened(author, strategy="random", trials=20)
    again = opened(author, strategy="random", trials=20)
    other = opened(author, strategy="random", trials=20, seed=1)
    expected = 20
    assert len({str(config) for config in first.configs}) == expected
    assert first.configs == again.configs
    assert first.configs != other.configs


def test_a_huge_space_is_sampled_without_being_listed() -> None:
    """A space of 10^12 points is opened by drawing from it, in chunks."""
    wide = tuple(range(1, 10**4 + 1))
    author = PlainAuthor(GEMM, space=Space(axes={"bm": wide, "bn": wide, "z": wide}))
    space = opened(author, strategy="random", trials=300)
    expected = 10**12
    assert space.size == expected
    first = len(space.configs)
    asyncio.run(space.draw(299))
    assert (first, len(space.configs), space.is_whole) == (CHUNK, 300, True)
    assert author.checks == 2


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"kernel": "gemv"}, "there is no kernel 'gemv' (there are: gemm)"),
        ({"shape": "huge"}, "gemm has no shape 'huge' (it has: big, small)"),
        ({"arguments": {"Q": 1}}, "gemm has no argument 'Q'"),
        ({"overrides": {"bq": (1,)}}, "gemm has no config key 'bq'"),
        ({"overrides": {"bm": ()}}, "no value is given to try for bm"),
        (
            {"overrides": {"bm": (8,)}, "arguments": {"bm": 8}},
            "bm of gemm is given as an argument and as a config key",
        ),
        ({"budget_s": 0.0}, "the budget is 0, which is enough for no config"),
        ({"device_budget_s": 0.0}, "the device budget is 0, which is enough for no config"),
        ({"trials": 0}, "the number of trials is 0, which is enough for no config"),
    ],
)
def test_wrong_requests_name_what_exists(request_fields: dict[str, object], message: str) -> None:
    """An unknown kernel, shape, argument or key is named beside existing ones, as is an empty choice."""
    expected = message
    with pytest.raises((UsageError, KernelFileError)) as caught:
        opened(PlainAuthor(GEMM, space=Space(axes=AXES)), **request_fields)
    assert expected in str(caught.value)


def test_a_where_that_rejects_everything_is_said() -> None:
    """An empty space is an error that counts what was rejected."""
    expected = "no config of gemm is left to try: all 6 are rejected"
    with pytest.raises(UsageError, match=expected):
        opened(PlainAuthor(GEMM, space=Space(axes=AXES), limit=0))
    large = {name: tuple(range(1, 301)) for name in ("bm", "bn")}
    expected = r"no config of gemm is left to try: the first 3[23],\d{3} of 90,000 are rejected"
    for strategy in ("grid", "random", "local"):
        with pytest.raises(UsageError, match=expected):
            opened(PlainAuthor(GEMM, space=Space(axes=large), limit=0), strategy=strategy)


def test_missing_arguments_are_named() -> None:
    """A required parameter without a value is named with the option that gives it."""
    bare = KernelInfo(
        name="k", file="k.py", style="jit", parameters=("M", "bm"), required=("M", "bm")
    )
    with pytest.raises(UsageError, match=r"k needs a value for M, bm .*--arg M=VALUE"):
        opened(PlainAuthor(bare, space=Space()))


def test_several_kernels_ask_for_a_name() -> None:
    """A file with several kernels needs FILE::NAME."""
    other = KernelInfo(name="gemv", file="", style="jit", parameters=(), required=())
    with pytest.raises(KernelFileError, match="2 kernels: gemm, gemv"):
        opened(PlainAuthor(GEMM, other, space=Space(axes=AXES)))


def test_the_pipeline_is_an_axis_of_the_space() -> None:
    """Given by hand or declared, it is in each config; TileLang's own is one for every target."""
    both = ("tilelang", "tileyard")
    author = PlainAuthor(GEMM, space=Space(axes={"bm": (16,), "bn": (8, 16)}))
    space = opened(author, target="cuda:sm_80", overrides={"pipeline": both})
    configs = [(c["bn"], c["pipeline"]) for c in space.configs]
    assert configs == [(8, both[0]), (8, both[1]), (16, both[0]), (16, both[1])]
    declared = PlainAuthor(GEMM, space=Space(axes={**AXES, "pipeline": both}))
    assert opened(declared, target="cuda:sm_90a").size == 12
    assert opened(declared, overrides={"pipeline": both[:1]}).size == 6


@pytest.mark.parametrize(
    ("target", "name", "message"),
    [
        ("cpu", "tileyard", "cpu has no pipelines, so it cannot heed pipeline=tileyard"),
        ("cpu:x86-64-v3", "sm_80", "cpu:x86-64-v3 has no pipelines"),
        ("cuda:sm_120", "tileyard", "there is no pipeline for cuda:sm_120"),
        ("cuda:sm_80", "swift", "there is no pipeline 'swift'"),
        ("cuda:sm_80", 3, "there is no pipeline '3'"),
    ],
)
def test_a_pipeline_that_a_target_has_not_is_refused(
    target: str, name: Value, message: str
) -> None:
    """Before anything is built, wherever in the space it is."""
    listed = PlainAuthor(GEMM, space=Space(configs=({"bm": 16, "bn": 8, "pipeline": name},)))
    with pytest.raises(UsageError, match=message):
        opened(listed, target=target)
    with pytest.raises(UsageError, match=message):
        opened(
            PlainAuthor(GEMM, space=Space(axes=AXES)),
            target=target,
            overrides={"pipeline": (name,)},
        )


def test_a_parameter_called_pipeline_is_the_kernels_own() -> None:
    """Its values are no names of pipelines; as an argument, only such a kernel takes it."""
    own = msgspec.structs.replace(GEMM, parameters=(*GEMM.parameters, "pipeline"))
    author = PlainAuthor(own, space=Space(axes={**AXES, "pipeline": ("deep", "flat")}))
    assert opened(author).size == 12
    with pytest.raises(UsageError, match="has no argument 'pipeline'"):
        opened(PlainAuthor(GEMM, space=Space(axes=AXES)), arguments={"pipeline": "tileyard"})


def test_a_reference_that_is_missing_is_not_timed() -> None:
    """The option is refused before anything is built."""
    with pytest.raises(UsageError, match="--time-reference has no effect: gemm has no reference"):
        opened(PlainAuthor(GEMM, space=Space(axes=AXES)), time_reference=True)


@pytest.mark.parametrize(
    ("draw", "fields", "reference", "expected"),
    [
        (Draw(seed=1), {}, "", "--seeds has no effect: gemm has no reference"),
        (
            Draw(edges="zeros"),
            {"inputs": "drawn"},
            "golden",
            "--edge-values has no effect: gemm has a function for its inputs",
        ),
        (
            Draw(seed=1),
            {"inputs": "given", "has_reference": True},
            "",
            "--seeds has no effect: the function for the inputs of gemm takes no rng",
        ),
        (Draw(seed=1), {"inputs": "drawn", "has_reference": True}, "", ""),
    ],
)
def test_inputs_that_cannot_be_had_are_refused(
    draw: Draw, fields: dict[str, object], reference: str, expected: str
) -> None:
    """Before anything is built, in a line that names the option."""
    author = PlainAuthor(msgspec.structs.replace(GEMM, **fields), space=Space(axes=AXES))
    with pytest.raises(UsageError) if expected else contextlib.nullcontext() as refused:
        opened(author, draws=(draw,), reference=reference)
    assert str(refused.value if refused else "") == expected


# ---- constraints ---------------------------------------------------------------------------------------


def test_constraints_are_solved_and_not_asked() -> None:
    """Only valid configs are drawn, in the order of the space, and the author has no question to answer."""
    space = Space(axes=AXES, constraints=("bm * bn <= 256", "M % (bm * 2) == 0"), asks_where=False)
    author = PlainAuthor(GEMM, space=space)
    found = opened(author, arguments={"M": 96})
    assert [(c["bm"], c["bn"]) for c in found.configs] == [(16, 8), (16, 16)]
    assert (found.size, found.points.product, author.checks) == (2, 6, 0)
    assert found.describe_choice() == "6 points, 2 valid (33 %); trying all"
    narrowed = opened(author, arguments={"M": 96}, where=("bn > 8",))
    assert narrowed.configs == [{"bm": 16, "bn": 16}]


@pytest.mark.slow
def test_functions_are_asked_about_valid_configs_only() -> None:
    """In chunks; how many they exclude is said, of a space that is not drawn to its end as well."""
    wide = tuple(range(1, 1001))
    space = Space(axes={"bm": wide, "bn": wide}, constraints=("bm % 8 == 0",))
    author = PlainAuthor(GEMM, space=space, limit=250_000)
    found = opened(author, trials=300, strategy="random")
    assert all(int(config["bm"]) % 8 == 0 for config in found.configs)
    points = (
        "1,000,000 points, 125,000 within the constraints (12 %)"  # of which some are not valid
    )
    begins = f"{points}; `where` accepts "
    said = found.describe_choice()
    assert said == f"{begins}{len(found.configs)} of the first 256; trying at most 300"
    asyncio.run(found.draw(300))
    assert found.describe_choice() == f"{points}; trying 300 of 125,000 configs (at most 300)"
    plain = opened(PlainAuthor(GEMM, space=Space(axes=AXES), limit=256))
    assert plain.describe_choice() == "trying 3 of 6 configs (3 excluded by `where`)"
    asyncio.run(plain.begin_with([("--default", {"bm": 8, "bn": 8})]))
    assert plain.describe_choice() == "trying 4 of 6 configs (3 excluded by `where`)"
    assert opened(PlainAuthor(GEMM, space=Space(axes=AXES))).describe_choice() == ""


def test_a_billion_points_are_opened() -> None:
    """One in thousands is valid; none of the others is seen."""
    numbers = Span(first=1, last=1024, step=1)
    constraints = ("bm * bn == 5040", "z % bm == 0")
    space = Space(
        axes=dict.fromkeys(("bm", "bn", "z"), numbers), constraints=constraints, asks_where=False
    )
    found = opened(PlainAuthor(GEMM, space=space), trials=50)
    asyncio.run(found.draw(50))
    assert len({str(config) for config in found.configs}) == 50
    for config in found.configs:
        assert int(config["bm"]) * int(config["bn"]) == 5040
        assert int(config["z"]) % int(config["bm"]) == 0
    assert found.points.product == 2**30
    pairs = [bm for bm in range(1, 1025) if 5040 % bm == 0 and 5040 // bm <= 1024]
    assert found.size == sum(1024 // bm for bm in pairs)


@pytest.mark.slow
def test_of_a_space_that_is_too_large_to_be_solved_a_part_is_searched() -> None:
    """The share of valid points is estimated then, with its interval."""
    axes = dict.fromkeys(("bm", "bn"), Span(first=1, last=5000, step=1))
    space = Space(axes=axes, constraints=("bm < bn",), asks_where=False)
    found = opened(PlainAuthor(GEMM, space=space), trials=20)
    assert found.points.diagram is not None
    assert found.points.diagram.is_part
    assert all(int(config["bm"]) < int(config["bn"]) for config in found.configs)
    begins = (
        r"25,000,000 points, about 1[23],000,000 valid \((between [\d.]+ and [\d.]+ %)\); a random "
    )
    assert re.match(begins, found.describe_choice())


def test_what_does_not_count_has_its_first_value() -> None:
    """So no two configs differ only there, and constraints on it do not apply."""
    axes: dict[str, tuple[Value, ...]] = {"bm": (1, 2), "bn": (8, 16, 32)}
    space = Space(axes=axes, conditions={"bn": "bm > 1"}, constraints=("bn > 8",))
    found = opened(PlainAuthor(GEMM, space=space))
    expected = [(1, 8), (2, 16), (2, 32)]
    assert [(config["bm"], config["bn"]) for config in found.configs] == expected
    pinned = opened(PlainAuthor(GEMM, space=space), overrides={"bn": (32,)})
    assert [(c["bm"], c["bn"]) for c in pinned.configs] == [(1, 32), (2, 32)]


def test_constraints_hold_for_listed_configs() -> None:
    """A parameter that one of them lacks has its default."""
    configs: tuple[dict[str, Value], ...] = (
        {"bm": 16, "bn": 8},
        {"bm": 64, "bn": 16, "dtype": "float16"},
        {"bm": 32, "bn": 16},
    )
    space = Space(configs=configs, constraints=("dtype == 'float32' and bm > 16",))
    assert opened(PlainAuthor(GEMM, space=space)).configs == [configs[2]]


@pytest.mark.parametrize(
    ("constraints", "fields", "message"),
    [
        (
            ("bm > 64", "bn > 8"),
            {},
            "no config of gemm is valid: where of gemm 'bm > 64' excludes each of its 6 points",
        ),
        (
            ("bm >= 32", "bn > 1"),
            {"where": ("bm + bn < 40",)},
            "where of gemm 'bm >= 32' and --where 'bm + bn < 40' contradict each other, together they"
            " exclude each of its 6 points",
        ),
        (
            ("M % bm == 0",),
            {"arguments": {"M": 100}},
            "no config of gemm is valid for M=100: where of gemm 'M % bm == 0' excludes each of",
        ),
        (
            ("M % 64 == 0",),
            {"arguments": {"M": 100}},
            "no config of gemm is valid for M=100: where of gemm 'M % 64 == 0' excludes each of",
        ),
        (
            ("bm < 64",),
            {"overrides": {"bm": (64,), "bn": (8,)}},
            "where of gemm 'bm < 64' excludes its only point",
        ),
        (
            ("bm // (bn - bn) > 1",),
            {},
            "where of gemm 'bm // (bn - bn) > 1' excludes each of its 6 points",
        ),
        (
            ("bmm > 64",),
            {},
            "where of gemm: constraint 'bmm > 64' names 'bmm', which is no parameter or argument of gemm"
            " with a value (did you mean bm?)",
        ),
        ((), {"where": ("bm >",)}, "--where: constraint 'bm >': invalid syntax, at column"),
        (
            ("dtype > 3",),
            {},
            "where of gemm: constraint 'dtype > 3': > cannot compare dtype (text)",
        ),
    ],
)
def test_an_empty_space_names_what_empties_it(
    constraints: tuple[str, ...], fields: dict[str, object], message: str
) -> None:
    """In one line: a constraint, or the fewest that do so together."""
    space = Space(axes=AXES, constraints=constraints)
    with pytest.raises(UsageError) as refused:
        opened(PlainAuthor(GEMM, space=space), **fields)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
