"""The compile steps that tests declare with their markers, each once however many tests share it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import TileyardError, UsageError
from tileyard.base.model import Value
from tileyard.base.wording import find_similar
from tileyard.frontend.blame import blame_user, call_by_name, parameters_of
from tileyard.frontend.declare import kernel as declare_kernel
from tileyard.frontend.declare import user_function
from tileyard.frontend.discover import find_declared
from tileyard.frontend.found import Found
from tileyard.frontend.parameters import to_plain
from tileyard.frontend.recipes import read_recipe
from tileyard.pytest_plugin.bodies import hands_on_parameter, may_compile
from tileyard.pytest_plugin.far_records import BodyStep, Declared, FunctionStep, KernelStep, Step
from tileyard.show.words import parse_duration_s

KERNEL, FUNCTION = "tile_kernel", "tile_compile"
HOOK = "pytest_tileyard_compile_steps"
_KERNEL_OPTIONS = frozenset({"kernel", "name", "arguments", "target", "out_idx", "check_sync"})
_DECLARATIONS = ("inputs", "runs", "env")
_FUNCTION_OPTIONS = frozenset({"function", "name", "limit", *_DECLARATIONS})


class DeclaredSteps:
    """The steps of the selected tests, by marker name or from bodies; ``refusals``: why some are invalid."""

    def __init__(self, items: Iterable[pytest.Item], target: str, build_limit_s: float) -> None:
        self.steps: dict[str, Step] = {}
        self.refusals: dict[str, str] = {}
        self.kernels: dict[str, dict[str, str]] = {}
        self.functions: dict[str, dict[str, str]] = {}
        self.bodies: dict[str, list[str]] = {}
        self._target = target
        self._build_limit_s = build_limit_s
        self._known: dict[object, str] = {}
        self._found: dict[int, Found] = {}
        # in an order that is the same in every process of a run, so that the ids are equal
        for item in sorted(items, key=lambda item: item.nodeid):
            try:
                self._read(item)
            except TileyardError as error:
                self.refusals[item.nodeid] = f"invalid compile step: {error}"

    def _read(self, item: pytest.Item) -> None:
        for kind, named in ((KERNEL, self.kernels), (FUNCTION, self.functions)):
            # the farthest first, so that a test's own marker replaces its module's of that name
            for marker in reversed(list(item.iter_markers(kind))):
                read = self._read_kernel if kind == KERNEL else self._read_function
                name, identity, step = read(item, marker, f"{item.nodeid}#{kind}")
                named.setdefault(item.nodeid, {})[name] = self._add(identity, step)
        for name, step in self._ask_tree(item):
            self.functions.setdefault(item.nodeid, {})[name] = self._add((HOOK, name), step)
        if item.nodeid not in self.kernels:
            for number, (function, values) in enumerate(_bodies_of(item)):
                body = BodyStep(id=f"{item.nodeid}#body:{number}", function=function, values=values)
                step_id = self._add((id(function), _show(values)), body)
                self.bodies.setdefault(item.nodeid, []).append(step_id)

    def _ask_tree(self, item: pytest.Item) -> Iterator[tuple[str, FunctionStep]]:
        with blame_user():
            answers = item.ihook.pytest_tileyard_compile_steps(item=item)
            found = [step for steps in answers for step in steps]
        for given in found:
            match given:
                case (str(key), function, Mapping() as values, *rest) if key and callable(function):
                    step = FunctionStep(
                        id=f"{item.nodeid}#{HOOK}:{key}",
                        function=function,
                        values=dict(values),
                        limit_s=self._build_limit_s,
                        declared=_read_declared(item, _find_declaration(rest, key)),
                    )
                case _:
                    raise UsageError(f"{HOOK} yields {given!r}", "yield (key, function, arguments)")
            known = self.steps.get(self._known.get((HOOK, key), ""), step)
            if isinstance(known, FunctionStep) and (
                known.function is not function
                or _show(known.values) != _show(step.values)
                or known.declared != step.declared
            ):
                raise UsageError(
                    f"{HOOK} yields {key!r} with another function or other arguments than for {known.id}",
                    "equal keys are one step",
                )
            yield key, step

    def _add(self, identity: object, step: Step) -> str:
        """Add a step unless an equal one exists; returns the id of the one that is used."""
        first = self._known.setdefault(identity, step.id)
        if first == step.id:
            self.steps[step.id] = step
        return first

    def _read_kernel(
        self, item: pytest.Item, marker: pytest.Mark, prefix: str
    ) -> tuple[str, object, KernelStep]:
        values = _values_of(item)
        kernel = _find_subject(marker, "kernel", values)
        options = {key: marker.kwargs[key] for key in _KERNEL_OPTIONS & marker.kwargs.keys()}
        own = {key: value for key, value in marker.kwargs.items() if key not in _KERNEL_OPTIONS}
        given = options.get("arguments")
        if callable(given):
            given = call_by_name(given, values, f"arguments of {item.nodeid}")
        if given is not None and not isinstance(given, Mapping):
            raise UsageError(
                f"arguments must be a mapping, or a function that returns one: {given!r}"
            )
        target = str(options.get("target") or self._target)
        out_idx = _read_positions(options.get("out_idx"))
        name = str(options.get("name") or _name_of(kernel))
        arguments: dict[str, Value] = {}
        source: Found | Any = kernel
        if type(kernel).__name__ != "PrimFunc":
            source = self._find(kernel)
            taken = {key: value for key, value in values.items() if key in source.parameters.names}
            arguments = {
                key: to_plain(value) for key, value in {**taken, **(given or {}), **own}.items()
            }
        elif own or given:
            raise UsageError(f"{name} is a PrimFunc, which takes no arguments: {', '.join(own)}")
        check_sync = options.get("check_sync")
        if not (check_sync is None or isinstance(check_sync, bool)):
            raise UsageError(f"check_sync is True, False or None, not {check_sync!r}")
        identity = (id(kernel), canonical_json(arguments), target, out_idx, check_sync)
        step = KernelStep(
            id=f"{prefix}:{name}",
            source=source,
            arguments=arguments,
            target=target,
            out_idx=out_idx,
            check_sync=check_sync,
        )
        return name, identity, step

    def _find(self, kernel: object) -> Found:
        """The kernel, read once: a plain function that returns a PrimFunc counts as one."""
        if id(kernel) not in self._found:
            declared = kernel
            if read_recipe(kernel) is None:
                if not callable(kernel):
                    raise UsageError(
                        f"{kernel!r} is not a kernel", "give a function that returns a PrimFunc"
                    )
                declared = declare_kernel(kernel)
            self._found[id(kernel)] = find_declared(declared)
        return self._found[id(kernel)]

    def _read_function(
        self, item: pytest.Item, marker: pytest.Mark, prefix: str
    ) -> tuple[str, object, FunctionStep]:
        values = _values_of(item)
        function = _find_subject(marker, "function", values)
        if not callable(function):
            raise UsageError(f"{FUNCTION} takes a function, not {function!r}")
        own = {k: value for k, value in marker.kwargs.items() if k not in _FUNCTION_OPTIONS}
        limit = marker.kwargs.get("limit")
        name = str(marker.kwargs.get("name") or _name_of(function))
        named = {parameter.name for parameter in parameters_of(function) or ()}
        taken = {key: value for key, value in values.items() if key in named}
        step = FunctionStep(
            id=f"{prefix}:{name}",
            function=function,
            values={**taken, **own},
            limit_s=parse_duration_s(str(limit)) if limit else self._build_limit_s,
            declared=_read_declared(
                item, {key: marker.kwargs[key] for key in _DECLARATIONS if key in marker.kwargs}
            ),
        )
        return name, (id(function), _show(step.values), step.declared), step


def _find_subject(marker: pytest.Mark, key: str, values: Mapping[str, object]) -> Any:  # noqa: ANN401
    """The subject of the marker: the value itself, or the test parameter of that name."""
    given = [*marker.args, *(marker.kwargs[name] for name in (key,) if name in marker.kwargs)]
    if not given and (near := find_similar(key, marker.kwargs)):
        raise UsageError(f"{marker.name} has no {key}=, but {near}=", f"did you mean {key}=?")
    if len(given) != 1:
        raise UsageError(f"{marker.name} takes one {key}, not {len(given)}", f"write {key}=...")
    (subject,) = given
    if not isinstance(subject, str):
        return subject
    if subject not in values:
        raise UsageError(
            f"{marker.name} names {subject!r}, which is not a parameter of the test",
            f"they are {', '.join(values)}" if values else "the test has none",
        )
    return values[subject]


def _find_declaration(given: Sequence[object], key: str) -> Mapping[str, object]:
    match given:
        case []:
            return {}
        case [Mapping() as declaration]:
            known = ", ".join(_DECLARATIONS)
            for name in declaration.keys() - set(_DECLARATIONS):
                near = find_similar(str(name), _DECLARATIONS)
                hint = f"did you mean {near!r}?" if near else ""
                raise UsageError(f"{HOOK} declares {name!r} for {key!r}, not one of {known}", hint)
            return declaration
        case _:
            raise UsageError(f"{HOOK} yields {given!r} after the arguments of {key!r}")


def _read_declared(item: pytest.Item, given: Mapping[str, object]) -> Declared | None:
    if not given:
        return None
    texts: dict[str, tuple[str, ...]] = {}
    for name, value in given.items():
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise UsageError(f"{name} takes a list of texts, not {value!r}", f'{name}=["..."]')
        texts[name] = tuple(value)
    return Declared(root=item.config.rootpath, **texts)


def _values_of(item: pytest.Item) -> dict[str, object]:
    spec = getattr(item, "callspec", None)
    return {} if spec is None else dict(spec.params)


def _show(values: Mapping[str, object]) -> tuple[tuple[str, int, str], ...]:
    """A key for values that have their own comparison, or none."""
    return tuple(sorted((key, id(value), repr(value)) for key, value in values.items()))


def _bodies_of(item: pytest.Item) -> Iterator[tuple[Callable[..., object], dict[str, object]]]:
    """The test's function and those of its fixtures that are worth reading, with their arguments."""
    values = _values_of(item)
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    functions = {name: found[-1].func for name, found in fixtures.items() if found}
    functions = {
        name: function
        for name, function in functions.items()
        if not str(function.__module__).startswith(("_pytest.", "tileyard."))
    }
    for name, function in {**functions, "": getattr(item, "function", None)}.items():
        if function is None or not may_compile(function):
            continue
        named = {parameter.name for parameter in parameters_of(function) or ()}
        # what a fixture makes of its parameter is not the parameter
        taken = {
            key: values[key]
            for key in named & values.keys()
            if key not in functions or hands_on_parameter(functions[key])
        }
        if name in values and "request" in named:
            taken["request"] = SimpleNamespace(param=values[name])
        yield function, taken


def _name_of(given: object) -> str:
    attrs = getattr(given, "attrs", None)
    if type(given).__name__ == "PrimFunc" and attrs is not None:
        return str(dict(attrs.items()).get("global_symbol") or "kernel")
    return str(getattr(user_function(given), "__name__", None) or "kernel")


def _read_positions(given: object) -> tuple[int, ...] | None:
    if given is None:
        return None
    if isinstance(given, int):
        return (given,)
    if isinstance(given, (list, tuple)) and all(isinstance(item, int) for item in given):
        return tuple(given)
    raise UsageError(f"out_idx must be positions of parameters, not {given!r}")
