"""Makes inputs and reference outputs once for each identity, and finds them again in the object store."""

import functools
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.keys import canonical_json, digest_parts
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import DamagedError, UserCodeError
from tileyard.base.model import Digest, GoldenKey, Measurement, Record, TensorSpec
from tileyard.base.wording import count_of
from tileyard.frontend.blame import blame_user
from tileyard.frontend.closure import PACKAGE, examine
from tileyard.frontend.found import Found
from tileyard.frontend.reads import WATCH, would_read_again
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
RECIPE = "3"
"""The version of the way golden results are made; a change to this module that changes them raises it."""


class GoldenRecord(Record):
    """The object store's record of a golden result. With a doubt about what it ``reads`` it is not kept."""

    inputs: tuple[Digest, ...]
    outputs: tuple[Digest, ...]
    reads: Footprint


@dataclass(frozen=True, kw_only=True)
class GoldenMaker:
    """Makes or finds one golden result; ``function``: the reference. Raises UsageError and UserCodeError."""

    found: Found
    function: Callable[..., object] | None
    request: MakeGolden
    objects: ObjectStore

    def make(self) -> Golden:
        """Look the result up by its key; compute it if it is new, has no key, or read what has changed.

        If it read anything, its own content is in its key.
        """
        reference = self._bind()
        rests = self._examine(reference)
        key = None if rests.doubts else GoldenKey(rests.key(f"{RECORD_KIND} {RECIPE}"))
        if key is None and self.request.only_identified:
            return Golden(key=GoldenKey(""), inputs=(), outputs=())
        known = None if key is None or self.request.anew else _find(self.objects, key, rests.code)
        record = known or self._compute(reference, rests.code)
        is_identified = key is not None and not record.reads.doubts
        if key is not None and is_identified and known is None:
            self.objects.put_record(RECORD_KIND, key, msgspec.json.encode(record))
        if key is None or record.reads != Footprint():
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

    def _examine(self, reference: Reference | None) -> Footprint:
        """What the result depends on, with a doubt if the user's code has no identity."""
        request, recipe = self.request, self.found.recipe
        given = recipe.inputs or recipe.supply
        rests = Footprint(
            parts={
                "specs": canonical_json(request.specs),
                "draw": canonical_json(request.draw),
                "NumPy": np.__version__,
                "torch": _torch_version(),
                "threads": str(request.threads),
            }
        )
        if given is None:
            rests.put("inputs", input_key(request.specs))
        else:
            rests.add(examine((given, self.found.complete(request.arguments)), "inputs"))
        if reference is not None:
            rests.add(examine((reference.function, dict(reference.by_name)), "reference"))
        return rests

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
            is_one = len(wanted) == 1 and hasattr(given, "dtype")
            arrays = [given] if is_one else list(given)  # type: ignore[call-overload]
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
        return is_ref_prog or f"{PACKAGE}torch" in examine(reference.function, "reference").parts


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
    record = objects.decode_record(RECORD_KIND, key, GoldenRecord)
    if record is None:
        return None
    try:
        for digest in (*record.inputs, *record.outputs):
            objects.path(digest)
    except DamagedError:
        return None
    return record if would_read_again(record.reads, code) else None


@functools.cache
def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
