"""What once went wrong in pipelines of others, text in and text out: ``texts/NAME.txt``.

A text begins with comments: what went wrong, and the values of parameters that are not random. The heading of
a pipeline, such as ``==== sm_80``, is followed by the Program that it makes. ``python -m
tests.passes.test_texts`` writes these anew.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.passes.cases import faults_of, make_array, reasons_of
from tests.samples import choose_cases, list_contents, sampled

from tileyard.ir.nodes import Scalar, Tensor
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.verify import verify
from tileyard.passes.pipeline import run_pipeline

FOLDER = Path(__file__).with_name("texts")
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
PIPELINES = ("sm_80", "sm_90a")
_RULE = "==== "


@dataclass(frozen=True, kw_only=True)
class Text:
    """A Program in text, what pipelines make of it by their names, and the values of parameters."""

    why: str
    written: str
    values: dict[str, int]
    made: dict[str, str]


@functools.cache
def read_text(name: str) -> Text:
    """The parts of a file."""
    first, *rest = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split(_RULE)
    why, _, written = first.partition("\n\n")
    found = re.findall(r"^# (\w+) = (-?\d+)$", why, re.MULTILINE)
    made = dict(part.split("\n", 1) for part in rest)
    return Text(
        why=why,
        written=f"{written.rstrip()}\n",
        values={key: int(value) for key, value in found},
        made={key: f"{text.rstrip()}\n" for key, text in made.items()},
    )


def describe(written: str, pipeline: str) -> str:
    """What a pipeline makes of a Program, behind the reasons for what it leaves."""
    steps = run_pipeline(read_program(written), pipeline)
    return "".join(f"# {reason}\n" for reason in reasons_of(steps)) + print_program(
        steps[-1].program
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_writes_what_the_text_has(name: str) -> None:
    """Statement by statement, for each pipeline of which the text has something."""
    text = read_text(name)
    for pipeline, made in text.made.items():
        assert describe(text.written, pipeline) == made


def list_made(name: str, pipeline: str) -> set[str]:
    """What is in a text, and in what a pipeline makes of it, if that is written there."""
    text = read_text(name)
    texts = (text.written, text.made.get(pipeline, text.written))
    return {f"{pipeline} {one}" for t in texts for one in list_parts(t)}


@functools.cache
def list_parts(text: str) -> set[str]:
    """What is in a Program."""
    return list_contents(read_program(text))


TEXTS = {f"{pipeline} {name}": (pipeline, name) for pipeline in PIPELINES for name in NAMES}
SHOWING = [TEXTS[key] for key in choose_cases({key: list_made(*TEXTS[key][::-1]) for key in TEXTS})]
"""Texts with every operation, scalar type and statement, for each pipeline; others are compared as text."""


@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "name"), sampled(TEXTS.values(), SHOWING))
def test_a_text_keeps_its_meaning(name: str, pipeline: str) -> None:
    """Each pass leaves the results as they were, and its synchronization is right."""
    text = read_text(name)
    program = read_program(text.written)
    verify(program)
    assert print_program(program) == text.written
    arrays = []
    for number, param in enumerate(program.params):
        if isinstance(param, Tensor) and param.role != "out":
            array = make_array(param, number)
            value = text.values.get(param.buffer.name)
            arrays.append(array if value is None else np.full_like(array, value))
    scalars = [text.values[one.var.name] for one in program.params if isinstance(one, Scalar)]
    assert faults_of(run_pipeline(program, pipeline), arrays, scalars) == []


def main() -> None:
    """Write the texts anew."""
    for name in NAMES:
        text = read_text(name)
        made = (f"\n{_RULE}{one}\n{describe(text.written, one)}" for one in text.made)
        new = "".join((f"{text.why}\n\n{text.written}", *made))
        (FOLDER / f"{name}.txt").write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
