"""Makes inputs and reference outputs once for each identity, and finds them again in the object store."""

import functools
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.decoding import decode_json
from tileyard.base.draws import USUAL_DRAW
from tileyard.base.errors import DamagedError, UserCodeError
from tileyard.base.model import Digest, GoldenKey, Measurement, Record, TensorSpec
from tileyard.base.wording import count_of
from tileyard.frontend.blame import blame_user
from tileyard.frontend.closure import Closure, examine
from tileyard.frontend.found import Found
from tileyard.frontend.reads import WATCH, Reads
from tileyard.ir.dtypes import find_dtype
from tileyard.measure.calls import CalledLaunch
from tileyard.measure.inputs import input_key, make_input
from tileyard.measure.sampling import measure
from tileyard.targets.base import Array
from tileyard.workers.protocol import Golden, MakeGolden
from tileyard.workers.reference import Reference, bind_reference
from tileyard.workers.tensors import keep_on_cpu, to_numpy
from tileyard.workers.threads import cap_threads

RECORD_KIND = "golden"
RECIPE = "2"
"""The version of the way golden results are made; a change to this module that changes them raises it."""


class GoldenRecord(Record):
    """The record of a golden result. ``reads``: None if a file changed meanwhile, so that it is not kept."""

    inputs: tuple[Digest, ...]
    outputs: tuple[Digest, ...]
    reads: Reads | None


@dataclass(frozen=True, kw_only=True)
class GoldenMaker:
    """Makes or finds one golden result; ``function``: the reference. Raises UsageError and UserCodeError."""

    found: Found
    function: Callable[..., object] | None
    request: MakeGolden
    objects: ObjectStore

    def make(self) -> Golden:
        """Find the result by its key, or compute it. If it read anything, its content is in its key."""
        reference = self._bind()
        key, code = self._derive_key(reference)
        if key is None and self.request.only_identified:
            return Golden(key=GoldenKey(""), inputs=(), outputs=())
        known = None if key is None or self.request.anew else _find(self.objects, key, code)
        record = known or self._compute(reference, code)
        is_identified = key is not None and record.reads is not None
        if key is not None and is_identified and known is None:
            self.objects.put_record(RECORD_KIND, key, msgspec.json.encode(record))
        if key is None or record.reads != Reads():
            content = (*record.inputs, "to", *record.outputs)
            key = GoldenKey(digest_parts("golden content", key or "", *content))
        return Golden(
            key=key,
            inputs=record.inputs,
            outputs=record.outputs,
            reused=known is not None,
            is_identified=is_identified,
            measurement=self._time(reference),
        )

    def try_out(self) -> list[Array]:
        """The inputs, once the reference has taken them; nothing is kept."""
        reference = self._bind()
        with cap_threads(self.request.threads), keep_on_cpu():
            inputs = self._make_inputs()
            self._run(reference, inputs)
        return inputs

    def _time(self, reference: Reference | None) -> Measurement | None:
        """The time of the reference in this process; None if there is none, or it is not asked for."""
        if reference is None or self.request.timing is None:
            return None
        with cap_threads(self.request.threads), keep_on_cpu():
            call = reference.bind(self._make_inputs(), prefers_torch=self._prefers_torch(reference))
            return measure(CalledLaunch(call), self.request.timing)

    # ---- identity ---------------------------------------------------------------------------

    def _derive_key(self, reference: Reference | None) -> tuple[GoldenKey | None, frozenset[str]]:
        """The identity of the result, None if the user's code has none, and the files of that code."""
        given = self._examine_inputs()
        inputs = given.digest
        behaviour = Closure(digest=Digest("none"), modules=frozenset())
        if inputs and self.request.draw != USUAL_DRAW:
            inputs = digest_parts(inputs, canonical_json(self.request.draw))
        if reference is not None:
            behaviour = examine((reference.function, dict(reference.by_name)))
        code = given.files | behaviour.files
        if not inputs or not behaviour.digest:
            return None, code
        request = self.request
        key = GoldenKey(
            digest_parts(
                RECORD_KIND,
                RECIPE,
                inputs,
                behaviour.digest,
                canonical_json(request.specs),
                np.__version__,
                _torch_version(),
                str(request.threads),
            )
        )
        return key, code

    def _examine_inputs(self) -> Closure:
        recipe = self.found.recipe
        given = recipe.inputs or recipe.supply
        if given is None:
            return Closure(digest=Digest(input_key(self.request.specs)), modules=frozenset())
        return examine((given, self.found.complete(self.request.arguments)))

    # ---- content ----------------------------------------------------------------------------

    def _compute(self, reference: Reference | None, code: Iterable[str]) -> GoldenRecord:
        is_edge = self.request.draw.edges is not None
        usual = np.geterr()
        quiet = np.errstate(**dict.fromkeys(usual, "ignore") if is_edge else usual)
        with cap_threads(self.request.threads), keep_on_cpu(), quiet:
            inputs = self._make_inputs()
            outputs = self._run(reference, inputs)
            outputs = self._round(outputs) if is_edge else outputs
        return GoldenRecord(
            inputs=tuple(put_array(self.objects, array) for array in inputs),
            outputs=tuple(put_array(self.objects, array) for array in outputs),
            reads=WATCH.tell(code, self.objects.root),
        )

    def _round(self, outputs: Sequence[Array]) -> list[Array]:
        """Convert floats to the kernel's own dtype, which may overflow when the reference's does not."""
        specs = (spec for spec in self.request.specs if spec.role != "in")
        dtypes = [find_dtype(spec.dtype) for spec in specs]
        return [
            array.astype(dtype.numpy) if dtype.is_float else array
            for array, dtype in zip(outputs, dtypes, strict=bool(outputs))
        ]

    def _make_inputs(self) -> list[Array]:
        specs, draw = self.request.specs, self.request.draw
        wanted = [(index, spec) for index, spec in enumerate(specs) if spec.role != "out"]
        with WATCH.reading():
            given = self.found.supply_inputs(self.request.arguments, specs, draw.seed)
        if given is None:
            return [make_input(index, spec, draw) for index, spec in wanted]
        what = f"inputs of {self.found.name}"
        if isinstance(given, Mapping):
            names = [spec.name for _, spec in wanted]
            unknown = [str(name) for name in given if name not in names]
            if unknown:
                raise UserCodeError(f"{what}: {unknown[0]} is not one of {', '.join(names)}")
            return [
                _fit(spec, given[spec.name], what)
                if spec.name in given
                else make_input(index, spec, draw)
                for index, spec in wanted
            ]
        with blame_user(what):
            arrays = (
                [given]  # a single array
                if len(wanted) == 1 and hasattr(given, "dtype")
                else list(given)  # type: ignore[call-overload]
            )
        if len(arrays) != len(wanted):
            arrays_given, tensors = (
                count_of(len(arrays), "array"),
                count_of(len(wanted), "input tensor"),
            )
            raise UserCodeError(f"{what}: {arrays_given} for {tensors}")
        return [_fit(spec, array, what) for (_, spec), array in zip(wanted, arrays, strict=True)]

    def _bind(self) -> Reference | None:
        if self.function is None:
            return None
        what = f"reference of {self.found.name}"
        arguments = self.found.complete(self.request.arguments)
        return bind_reference(self.function, what, self.request.specs, arguments)

    def _run(self, reference: Reference | None, inputs: Sequence[Array]) -> list[Array]:
        if reference is None:
            return []
        with WATCH.reading():
            return reference.run(inputs, prefers_torch=self._prefers_torch(reference))

    def _prefers_torch(self, reference: Reference) -> bool:
        # TileLang calls a ref_prog with tensors, whatever its code names.
        recipe = self.found.recipe
        is_ref_prog = recipe.style == "autotune" and self.function is recipe.reference
        return is_ref_prog or "torch" in examine(reference.function).modules


def _fit(spec: TensorSpec, given: object, what: str) -> Array:
    """A user's input in the parameter's dtype. Raises UserCodeError if it does not fit."""
    with blame_user(what):
        array = to_numpy(given)
    if array.shape != spec.shape:
        raise UserCodeError(
            f"{what}: {spec.name} has the shape {array.shape}, the kernel takes {spec.shape}"
        )
    dtype = find_dtype(spec.dtype)
    if array.dtype == dtype.numpy:
        return array
    is_whole = array.dtype.kind in "biu"
    if not dtype.is_float and not is_whole:
        raise UserCodeError(f"{what}: {spec.name} is {array.dtype}, the kernel takes {spec.dtype}")
    with blame_user(what):
        return array.astype(dtype.numpy)


def _find(objects: ObjectStore, key: GoldenKey, code: Iterable[str]) -> GoldenRecord | None:
    """The recorded result, if what it read is unchanged, and all its arrays exist and are undamaged."""
    data = objects.get_record(RECORD_KIND, key)
    if data is None:
        return None
    try:
        record = decode_json(data, GoldenRecord)
        for digest in (*record.inputs, *record.outputs):
            objects.path(digest)
    except (msgspec.DecodeError, DamagedError):
        return None
    return record if record.reads is not None and record.reads.is_current(code) else None


@functools.cache
def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
