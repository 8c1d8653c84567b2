"""Checks a kernel's synchronization at small sizes: chooses and elaborates them, makes inputs, runs."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.clock import Clock
from tileyard.base.errors import (
    BindError,
    InvalidProgramError,
    KernelFault,
    TileyardError,
    UnsupportedError,
    UsageError,
    UserCodeError,
)
from tileyard.base.model import Diagnostic, SourceLine, TensorSpec, Value
from tileyard.base.wording import count_of
from tileyard.frontend.declare import guess_value
from tileyard.frontend.found import TILELANGS, Found, bind_numbers, lower_open
from tileyard.ir.specs import scalar_params, tensor_specs
from tileyard.sync.blocks import Effort, check_program
from tileyard.sync.changes import Form, form_of
from tileyard.sync.dependences import find_reordered
from tileyard.sync.extents import measure
from tileyard.sync.findings import Finding, sieve
from tileyard.sync.recorder import Form as Recorded
from tileyard.sync.recorder import Tally
from tileyard.sync.recurrence import Seen, find_period
from tileyard.sync.shapes import Instance, Measured, Stretch, plan_instances
from tileyard.sync.words import describe_race, in_plan
from tileyard.targets.base import Array
from tileyard.workers.golden import GoldenMaker
from tileyard.workers.protocol import CheckSync, MakeGolden, SyncChecked
from tileyard.workers.sync_check import name_place, require_small

if TYPE_CHECKING:
    from tileyard.frontend.tilelang import Lowered, MadeKernel

BUDGET_S = 60.0

GUESSES = (64, 128, 256, 1024, 32, 16, 8, 4, 2, 1)
"""Values that are tried for arguments without a given value."""

FEW_STAGES = 2

ELABORATED_WITHIN = 5.0
"""Times the limit of a check that nobody asked for: after it no further size is elaborated."""

_REFUSALS = (UserCodeError, UsageError, UnsupportedError, InvalidProgramError, BindError)


def check_sizes(
    found: Found, request: CheckSync, objects: ObjectStore, clock: Clock | None = None
) -> SyncChecked:
    """Check one config, as planned for an architecture if given, and as written. ``found`` has the
    functions named. Raises as elaborating does, and UsageError if it fails by itself.
    """
    return _Check(found, request, objects, clock or Clock()).run()


def _guess(names: Sequence[str]) -> Iterator[dict[str, Value]]:
    """Values for the arguments with these names: the same for all, and then with one that is 1."""
    for guess in GUESSES if names else (0,):
        yield {name: guess_value(name, guess) for name in names}
    for guess, one in itertools.product(GUESSES[:2], names):
        if isinstance(guess_value(one, guess), int):
            yield {name: 1 if name == one else guess_value(name, guess) for name in names}


class _Check:
    def __init__(
        self, found: Found, request: CheckSync, objects: ObjectStore, clock: Clock
    ) -> None:
        self._found = found
        self._request = request
        self._objects = objects
        self._clock = clock
        self._made: dict[str, MadeKernel | TileyardError] = {}
        self._guessed: tuple[str, ...] = ()
        self._tally = Tally()
        self._skipped: dict[str, TileyardError] = {}
        self._late: list[str] = []
        has_heads = not request.is_unasked
        self._effort = Effort(is_traced=request.with_timeline, has_heads=has_heads, clock=clock)
        self._seen: dict[str, Seen] = {}
        self._start_s = self._cost = 0.0
        self._budget_s = request.limit_s or BUDGET_S
        wait_s = ELABORATED_WITHIN * self._budget_s if request.is_unasked else math.inf
        self._elaborated_until_s = clock.monotonic_s() + wait_s

    def run(self) -> SyncChecked:
        """Plan the instances, and check as many as time allows. Unasked, say why there are none."""
        try:
            unchecked, lines = self._run()
        except _REFUSALS as error:
            if not self._request.is_unasked:
                raise
            unchecked, lines = [str(error)], {}
        tally = self._tally
        sieved = sieve(tally.findings, lines)
        return SyncChecked(
            kernel=self._found.name,
            config=dict(self._request.config),
            blocks=tally.blocks,
            grid=tally.grid,
            findings=sieved.findings,
            suppressed=sieved.suppressed,
            unused=sieved.unused,
            unchecked=tuple(unchecked),
            instances=tuple(tally.instances),
            trips=tally.trips(),
            periods=tally.periods,
            notes=self._list_notes(),
        )

    def _run(self) -> tuple[list[str], dict[int, SourceLine]]:
        """Check the instances; what was not checked, and the lines of the kernel."""
        arguments, lowered = self._begin()
        written = self._make(arguments)
        if isinstance(written, TileyardError):  # its loops decide which sizes there are
            raise written
        unchecked = [name_place(each.where, each.message) for each in lowered.given_up]
        if not unchecked:  # otherwise nothing is certain about the rest
            sizes = {
                name: value
                for name, value in {**self._found.parameters.defaults, **arguments}.items()
                if type(value) is int and name not in self._request.config
            }
            plan = plan_instances(
                sizes,
                lambda some: self._measure({**arguments, **some}),
                are_given=arguments == self._request.arguments and not self._request.guessed,
            )
            wanted = plan.instances
            if self._request.is_unasked:  # nobody says that there are results for nothing
                wanted = tuple(one for one in wanted if 0 not in one.shown.values()) or wanted
            self._check_all(wanted, arguments)
            for stretch in () if self._request.is_unasked else plan.stretches:
                self._look_for_period(stretch, arguments)
            unchecked += self._left_out(plan.refused)
            if plan.is_cut:
                unchecked.append("further trip counts: there are too many to look at")
        return unchecked, lowered.written_lines

    def _list_notes(self) -> tuple[Diagnostic, ...]:
        made = [one for one in self._made.values() if not isinstance(one, TileyardError)]
        notes = [note for one in reversed(made) for note in reversed(one.notes)]
        return tuple({note.where: note for note in notes}.values())[::-1]

    # ---- elaboration ------------------------------------------------------------------------

    def _begin(self) -> tuple[dict[str, Value], "Lowered"]:
        """The arguments, completed by the first guess that the kernel takes."""
        given, parameters = dict(self._request.arguments), self._found.parameters
        known = {*given, *self._request.config, *parameters.default_values}
        guessed = [name for name in parameters.names if name not in known]
        guessed += self._request.guessed
        self._guessed = tuple(guessed)
        errors: list[TileyardError] = []
        for guesses in _guess(guessed):
            arguments = {**given, **guesses}
            made = self._make(arguments, self._request.architecture)
            if not isinstance(made, TileyardError):
                if made.lowered is None:
                    refusal = made.kernel.refusal
                    raise UsageError(refusal.message if refusal else "it has no Program")
                if not guessed or self._has_blocks(arguments):
                    return self._with_few_stages(arguments, guessed), made.lowered
                made = UsageError("its grid is empty at the sizes that were tried")
            errors.append(made)
            if len(errors) >= len(GUESSES) and isinstance(errors[0], UnsupportedError):
                raise errors[0]  # no size changes its operations
        if guessed:
            raise UsageError(f"it needs a value for {', '.join(guessed)}: {errors[0]}")
        raise errors[0]

    def _has_blocks(self, arguments: dict[str, Value]) -> bool:
        measured = self._measure(arguments)
        return measured is None or min(measured.grid, default=1) > 0

    def _with_few_stages(self, arguments: dict[str, Value], guessed: list[str]) -> dict[str, Value]:
        """Replace guesses that set the depth of a pipeline, which is never as deep as a size is large."""
        for name in guessed:
            if isinstance(arguments[name], str):
                continue
            shallow = {**arguments, name: FEW_STAGES}
            before, after = self._measure(arguments), self._measure(shallow)
            if before is not None and after is not None and before.depths != after.depths:
                arguments = shallow
        return arguments

    def _make(
        self, arguments: dict[str, Value], architecture: str = ""
    ) -> "MadeKernel | TileyardError":
        """The kernel at these arguments, elaborated once per set of its own; or why it cannot be."""
        parameters = self._found.parameters
        own = {k: v for k, v in {**parameters.defaults, **arguments}.items() if k in parameters.own}
        key = canonical_json([own, architecture])
        try:
            self._found.require(arguments, self._request.config)
        except _REFUSALS as error:  # which may depend on the other arguments, too
            return error
        try:
            if key not in self._made:
                if self._made and self._clock.monotonic_s() > self._elaborated_until_s:
                    return UsageError("there is no time to elaborate it")
                self._made[key] = lower_open(
                    self._found,
                    arguments,
                    self._request.config,
                    pipeline=f"{TILELANGS}{architecture}" if architecture else "",
                )
            made = self._made[key]
            if isinstance(made, TileyardError):
                return made
            numbers = bind_numbers(self._found, made.signature, arguments, self._guessed)
            return replace(made, numbers=numbers)
        except _REFUSALS as error:
            self._made.setdefault(key, error)
            return error

    def _measure(self, arguments: dict[str, Value]) -> Measured | None:
        """Measure the loops that the user wrote, even if the kernel is planned for an architecture."""
        made = self._make(arguments)
        if isinstance(made, TileyardError) or made.lowered is None:
            return None
        try:
            return measure(
                made.lowered.written,
                made.lowered.written_lines,
                made.integers,
                is_planned=bool(self._request.architecture),
            )
        except (KernelFault, BindError):
            return None

    # ---- instances --------------------------------------------------------------------------

    def _check_all(self, instances: tuple[Instance, ...], arguments: dict[str, Value]) -> None:
        """Check the cheapest instance first, and skip those that would take longer than the time left."""
        self._start_s = self._clock.monotonic_s()
        for one in instances:
            if self._request.until_first and self._tally.findings:
                return
            if not self._has_time(one):
                self._late.append(one.text)
                continue
            self._check_one(one, arguments)
        if not self._tally.instances and self._skipped:
            raise UsageError(str(next(iter(self._skipped.values()))))

    def _check_one(self, one: Instance, arguments: dict[str, Value]) -> None:
        try:
            self._check({**arguments, **one.sizes}, one)
        except (*_REFUSALS, KernelFault) as error:
            self._skipped[one.text] = error
        self._cost += one.cost

    def _has_time(self, one: Instance) -> bool:
        spent_s = self._clock.monotonic_s() - self._start_s
        expected_s = spent_s / self._cost * one.cost if self._cost else 0.0
        return spent_s + expected_s <= self._budget_s

    def _limit(self) -> Effort:
        left_s = math.inf
        if self._request.limit_s:
            left_s = max(self._start_s + self._budget_s - self._clock.monotonic_s(), 0.0)
        return replace(self._effort, limit_s=left_s)

    def _look_for_period(self, stretch: Stretch, arguments: dict[str, Value]) -> None:
        """Run a loop as often as is necessary to know that it repeats, if it does and there is time."""
        found = {trips: stretch.at(trips) for trips in stretch.trips}

        def form_at(trips: int) -> Form | None:
            instance = stretch.at(trips)
            if instance is None:
                return None
            made = self._make({**arguments, **instance.sizes}, self._request.architecture)
            if isinstance(made, TileyardError) or made.lowered is None:
                return None
            return form_of(made.lowered.written, made.integers)

        while not self._tally.findings:
            if any(one is not None and one.text not in self._seen for one in found.values()):
                return  # there was no time for it, or nothing is known about it
            seen = {n: None if one is None else self._seen[one.text] for n, one in found.items()}
            if sum(one is not None for one in seen.values()) < 2:
                return
            period = find_period(seen, form_at)
            if period.iterations:
                some = [self._measure({**arguments, **one.sizes}) for one in found.values() if one]
                self._tally.add_period(period.iterations, [one for one in some if one])
            most = 2 * max(stretch.trips)
            if period.missing is None or period.missing in found or period.missing > most:
                return
            instance = found[period.missing] = stretch.at(period.missing)
            if instance is not None and not self._has_time(instance):
                return
            if instance is not None and instance.text not in self._seen:
                self._check_one(instance, arguments)

    def _check(self, arguments: dict[str, Value], instance: Instance) -> None:
        made = self._make(arguments, self._request.architecture)
        if isinstance(made, TileyardError):
            raise made
        lowered = made.lowered
        if lowered is None or lowered.given_up:
            raise UsageError("it has operations that are not checked")
        program, lines = lowered.written, lowered.written_lines
        specs = tensor_specs(program, made.integers)
        scalars = tuple(made.numbers[var.name] for var in scalar_params(program))
        if self._request.is_unasked:
            require_small(program, specs)
        has_sums = 0 not in instance.shown.values()  # an empty sum is not defined
        effort = replace(
            self._limit(),
            is_compared=has_sums and self._is_compared,
        )
        inputs = self._make_inputs(arguments, specs, scalars)
        checked = check_program(program, lines, inputs, scalars, effort)
        if not (checked.is_whole or checked.findings):
            self._late.append(instance.text)
            return
        if self._request.architecture:
            plain = tuple(map(in_plan, checked.findings))
            checked = msgspec.structs.replace(checked, findings=plain)
            planned = Recorded(program, lines)
            self._tally.add_findings(self._reordered(arguments, planned, inputs), instance.text)
        self._tally.add_findings(tuple(map(describe_race, lowered.races)), instance.text)
        if not has_sums:
            kept = tuple(one for one in checked.findings if one.kind != "uninitialised")
            checked = msgspec.structs.replace(checked, findings=kept)
        self._tally.add(program, lines, checked, instance)
        form = form_of(program, made.integers)
        if form is not None:
            self._seen[instance.text] = Seen(form=form, runs=checked.heads)
        measured = None if self._request.is_unasked else self._measure(arguments)
        if measured is not None:
            self._tally.add_trips(measured)

    @property
    def _is_compared(self) -> bool:
        return self._request.is_compared and self._found.recipe.reference is not None

    def _make_inputs(
        self,
        arguments: dict[str, Value],
        specs: tuple[TensorSpec, ...],
        scalars: tuple[Value, ...],
    ) -> list[Array]:
        """The inputs, once the reference has taken them; it is not run for an unasked check."""
        golden = MakeGolden(
            kernel=self._found.name, arguments=arguments, specs=specs, scalars=scalars
        )
        reference = None if self._request.is_unasked else self._found.recipe.reference
        maker = GoldenMaker(
            found=self._found, function=reference, request=golden, objects=self._objects
        )
        return maker.try_out()

    def _reordered(
        self, arguments: dict[str, Value], planned: Recorded, inputs: list[Array]
    ) -> tuple[Finding, ...]:
        """The accesses whose order differs from the written one."""
        made = self._make(arguments)
        if isinstance(made, TileyardError) or made.lowered is None:
            return ()
        written = Recorded(made.lowered.written, made.lowered.written_lines)
        scalars = [made.numbers[var.name] for var in scalar_params(written.program)]
        return tuple(find_reordered(written, planned, inputs, scalars))

    def _left_out(self, refused: tuple[Instance, ...]) -> Iterator[str]:
        yield from self._tally.untaken()
        skipped = [*(one.text for one in refused), *self._skipped]
        if skipped:
            why = next(iter(self._skipped.values()), None)
            reason = f": {why}" if why else ""
            yield (
                f"{count_of(len(skipped), 'choice')} of sizes that the kernel refuses: "
                f"{'; '.join(skipped)}{reason}"
            )
        if self._late:
            yield f"not within {self._budget_s:g} s: {'; '.join(self._late)}"
