"""Infers a kernel's arguments from the arrays of a call, by the shapes that studies have seen."""

from collections.abc import Iterable, Sequence
from typing import Any

from tileyard.base.errors import UsageError
from tileyard.base.model import TensorSpec, Value
from tileyard.base.wording import count_of, show_value
from tileyard.ir.dtypes import array_name
from tileyard.store.choices import Choice

Shapes = tuple[tuple[tuple[int, ...], str], ...]
"""Shape and dtype of each array that a kernel is called with."""


def infer_arguments(name: str, known: Iterable[Choice], shapes: Shapes) -> dict[str, Value]:
    """The arguments for arrays of these shapes: each the size or dtype that equals it in all known choices,
    or else its common value in all. Raises UsageError naming an argument that is neither.
    """
    examples = [
        (choice.arguments, shapes_like(choice.tensors)[0])
        for choice in known
        if len(shapes_like(choice.tensors)[0]) == len(shapes)
    ]
    if not examples:
        raise UsageError(
            f"the arguments of {name} for {describe_shapes(shapes)} are not known",
            "give arguments=",
        )
    wanted = _facts_of(shapes)
    found: dict[str, Value] = {}
    for argument in examples[0][0]:
        values = [arguments[argument] for arguments, _ in examples]
        facts = [_facts_of(own) for _, own in examples]
        places = [
            place
            for place in wanted
            if all(
                _is_same(one.get(place), value) for one, value in zip(facts, values, strict=True)
            )
        ]
        answers = {wanted[place] for place in places} or set(values)
        if len(answers) != 1:
            raise UsageError(
                f"{argument} of {name} cannot be told from {describe_shapes(shapes)}",
                "give arguments=",
            )
        found[argument] = answers.pop()
    return found


def _is_same(fact: Value | None, value: Value) -> bool:
    """Whether a size or dtype equals this argument: True does not equal a size of 1."""
    return type(fact) is type(value) and fact == value


def _facts_of(shapes: Shapes) -> dict[tuple[int, int], Value]:
    """The size of each dimension by array and dimension, and the dtype of each array as dimension -1."""
    facts: dict[tuple[int, int], Value] = {}
    for number, (shape, dtype) in enumerate(shapes):
        facts |= {(number, dimension): size for dimension, size in enumerate(shape)}
        facts[number, -1] = dtype
    return facts


def find_misfit(name: str, known: Iterable[Choice], shapes: Shapes) -> str:
    """How arrays differ in number or dtype from those of all known choices; empty if only their sizes do."""
    tensors = [choice.tensors for choice in known]
    fitting = [own for each in tensors for own in shapes_like(each) if len(own) == len(shapes)]
    if tensors and not fitting:
        names = [tensor.name for tensor in tensors[0] if tensor.role != "out"]
        takes = f"{count_of(len(names), 'input array')} ({', '.join(names)})"
        return f"{name} takes {takes}, not {count_of(len(shapes), 'array')}"
    for number, (_, dtype) in enumerate(shapes):
        tuned = sorted({own[number][1] for own in fitting})
        if tuned and dtype not in tuned:
            return f"array {number} is {dtype}, but {name} was tuned for {' and '.join(tuned)}"
    return ""


def shapes_like(tensors: Sequence[TensorSpec]) -> tuple[Shapes, Shapes]:
    """The two ways in which a kernel is called: with its inputs alone, and with all its tensors."""
    shapes = [((tuple(one.shape), array_name(one.dtype)), one.role) for one in tensors]
    return (
        tuple(shape for shape, role in shapes if role != "out"),
        tuple(shape for shape, _ in shapes),
    )


def list_shapes(arguments: Sequence[Any]) -> Shapes:
    """The shapes and dtypes of the arrays among the arguments; numbers have none."""
    return tuple(
        (tuple(one.shape), str(one.dtype).removeprefix("torch."))
        for one in arguments
        if hasattr(one, "shape")
    )


def describe_shapes(shapes: Shapes) -> str:
    """The shapes as text for messages: ``float32[4, 512]``."""
    texts = [f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in shapes]
    return ", ".join(texts) or show_value(())
