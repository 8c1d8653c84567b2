"""What a script's tuner answers a study: its configs, its kernels, its inputs.

The kernels are the script's own closures, so they are elaborated here, in its process; building and timing
them is the study's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import msgspec

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.decoding import decode_json
from tileyard.errors import InvalidProgramError, TileyardError, UnsupportedError, UsageError
from tileyard.frontend.blame import blame_user
from tileyard.frontend.tilelang import MadeKernel, make_kernel
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.model import (
    Elaborated,
    GoldenKey,
    KernelInfo,
    Limits,
    Record,
    TensorSpec,
    Trial,
    Value,
)
from tileyard.scripts.cpu_work import as_cpu_work
from tileyard.workers.author import describe_failure
from tileyard.workers.failure_protocol import FindFailure
from tileyard.workers.golden import RECORD_KIND, GoldenRecord
from tileyard.workers.protocol import (
    Accepted,
    AuthorReply,
    AuthorRequest,
    CheckConfigs,
    CheckSync,
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    ExpandSpace,
    Golden,
    Kernels,
    MakeGolden,
    ShowPasses,
    Space,
)
from tileyard.workers.tensors import to_numpy

PLAIN = (bool, int, float, str)


class StudyOrder(Record):
    """A study of a script's tuner: of which kernel, of how many configs, and what one may take."""

    kernel: str
    configs: int
    limits: Limits


RunStudy = Callable[[StudyOrder, Callable[[AuthorRequest], AuthorReply]], Sequence[Trial]]
"""Carries a study out, and shows it to people: the trials, those that may win first, the best of them foremost.

Raises TileyardError.
"""


@dataclass(kw_only=True)
class TunerAuthor:
    """Answers for one tuner: ``elaborate`` gives the PrimFunc of a config, by its number.

    ``positions`` says which parameters of one are returned; ``supply`` gives the tensors for all the
    others, in order, of the config with that number. ``identity`` stands for what ``supply`` gives, None
    where nobody can say.

    Of configs that are the same work on a CPU, since they differ in stages or threads only, the study hears
    of the first.
    """

    kernel: str
    configs: Sequence[Mapping[str, object]]
    elaborate: Callable[[int], Any]
    positions: Callable[[Any], Sequence[int] | None]
    supply: Callable[[int], Sequence[object]]
    identity: str | None
    objects: ObjectStore
    _numbers: dict[str, int] = field(default_factory=dict)
    _tried: list[dict[str, Value]] = field(default_factory=list)
    _made: dict[int, Elaborated | TileyardError] = field(default_factory=dict)
    _alike: dict[str, tuple[int, Sequence[int]]] = field(default_factory=dict)

    def open(self) -> int:
        """Elaborate all configs; how many the study is to try.

        Raises TileyardError where there can be none, since not even one has sizes that are fixed.
        """
        known: set[str] = set()
        for number, config in enumerate(self.configs):
            named = {
                key: value if isinstance(value, PLAIN) else repr(value)
                for key, value in config.items()
            }
            try:
                made = self._elaborate(number)
            except TileyardError as error:
                self._made[number] = error
            else:
                self._made[number] = made
                if made.kernel.program in known:
                    continue
                known.add(made.kernel.program)
            self._numbers[canonical_json(named)] = number
            self._tried.append(named)
        if not known:
            raise next(error for error in self._made.values() if isinstance(error, TileyardError))
        return len(self._tried)

    def answer(self, request: AuthorRequest) -> AuthorReply:
        """Carry out one request; what the script does wrong becomes a failure of the case."""
        try:
            return self._answer(request)
        except (TileyardError, MemoryError) as error:
            return describe_failure(error, request)

    def number(self, config: Mapping[str, Value]) -> int:
        """Which of the tuner's configs the study means."""
        return self._numbers[canonical_json(dict(config))]

    def _answer(self, request: AuthorRequest) -> AuthorReply:
        match request:
            case DescribeKernels():
                names = tuple(dict.fromkeys(key for config in self._tried for key in config))
                return Kernels(
                    kernels=(
                        KernelInfo(
                            name=self.kernel,
                            file="",
                            style="autotune",
                            parameters=names,
                            required=(),
                            tunable=names,
                        ),
                    )
                )
            case ExpandSpace():
                return Space(configs=tuple(self._tried))
            case CheckConfigs(configs=configs):
                return Accepted(accepted=(True,) * len(configs))
            case ElaborateConfig(config=config):
                made = self._made[self.number(config)]
                if isinstance(made, TileyardError):
                    raise made
                return ElaboratedConfig(elaborated=made)
            case MakeGolden():
                return self._make_inputs(request)
            case CheckSync() | ShowPasses() | FindFailure():
                raise UsageError("kernels of a script's tuner are not checked")
            case _:
                assert_never(request)

    def _elaborate(self, number: int) -> Elaborated:
        with blame_user():
            func = self.elaborate(number)
        positions = self.positions(func)
        made = make_kernel(func, positions)
        specs = fixed_specs(made)
        self._alike.setdefault(canonical_json(specs), (number, tuple(positions or ())))
        return Elaborated(kernel=as_cpu_work(made.kernel), lines=made.lines, specs=specs)

    def _make_inputs(self, request: MakeGolden) -> Golden:
        number, returned = self._alike[canonical_json(request.specs)]
        known = None
        if self.identity is not None:
            parts = ("script", self.identity, canonical_json(request.specs))
            known = GoldenKey(digest_parts(*parts))
            data = self.objects.get_record(RECORD_KIND, known)
            record = None if data is None else decode_json(data, GoldenRecord)
            if record is not None and all(map(self.objects.has, record.inputs)):
                return Golden(
                    key=known, inputs=record.inputs, outputs=(), reused=True, is_identified=True
                )
        with blame_user():
            tensors = list(self.supply(number))
        taken = [spec for place, spec in enumerate(request.specs) if place not in returned]
        arrays = [
            to_numpy(tensor)
            for spec, tensor in zip(taken, tensors, strict=True)
            if spec.role != "out"
        ]
        inputs = tuple(put_array(self.objects, array) for array in arrays)
        key = known or GoldenKey(digest_parts("script content", *inputs))
        if known is not None:
            record = GoldenRecord(inputs=inputs, outputs=())
            self.objects.put_record(RECORD_KIND, known, msgspec.json.encode(record))
        return Golden(key=key, inputs=inputs, outputs=(), is_identified=known is not None)


def fixed_specs(made: MadeKernel) -> tuple[TensorSpec, ...]:
    """The tensors of a kernel that takes nothing else. Raises UnsupportedError where sizes are open."""
    if made.kernel.refusal is not None:
        raise UnsupportedError(made.kernel.refusal.message)
    if made.signature.dims or scalar_params(made.signature):
        raise UnsupportedError("sizes and numbers that are given with each call are not covered")
    try:
        return tuple(tensor_specs(made.signature, {}))
    except TileyardError as error:
        raise InvalidProgramError(str(error)) from error
