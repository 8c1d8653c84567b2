"""Pipelines of the user's own: what a file selects, and the messages for bad ones."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.passes.infer_shared_layouts import InferSharedLayouts
from tileyard.passes.inject_pipeline import InjectPipeline
from tileyard.passes.pipeline import FOLLOWS, PASSES, PIPELINES, read_pipeline
from tileyard.passes.plan_pipeline import PlanPipeline
from tileyard.passes.version_buffers import VersionBuffers


def named(*names: str) -> str:
    """A file with passes without options."""
    return "".join(f'[[passes]]\nname = "{name}"\n' for name in names)


def test_a_file_has_passes_with_options() -> None:
    """Options that it leaves out are those of the architecture."""
    text = named("plan-pipeline", "version-buffers", "inject-pipeline", "infer-shared-layouts")
    found = read_pipeline(
        text.replace('"plan-pipeline"', '"plan-pipeline"\narchitecture = "sm_90a"'), "f"
    )
    assert found == (
        PlanPipeline("sm_90a"),
        VersionBuffers(),
        InjectPipeline(),
        InferSharedLayouts("sm_80"),
    )


@pytest.mark.parametrize("name", PIPELINES)
def test_named_pipelines_can_be_written_as_files(name: str) -> None:
    """All their passes have names, and their orders are possible ones."""
    passes = PIPELINES[name]
    assert read_pipeline(named(*(one.name for one in passes)) or "passes = []", "f", name) == passes


def test_every_pass_that_others_need_is_known() -> None:
    """The rules of the order name passes."""
    assert {*FOLLOWS, *(name for names in FOLLOWS.values() for name in names)} <= {*PASSES}


KNOWN = ", ".join(PASSES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (named("inline"), f"mine.toml: pass 1: there is no pass 'inline' (there are {KNOWN})"),
        ("[[passes]]\nstage = 1", f"mine.toml: pass 1: it has no name (there are {KNOWN})"),
        (
            named("find-copies", "inject-pipeline", "plan-pipeline"),
            "mine.toml: pass 2, inject-pipeline: it must follow plan-pipeline",
        ),
        (
            named("plan-pipeline", "inject-pipeline", "version-buffers"),
            "mine.toml: pass 2, inject-pipeline: it must follow version-buffers",
        ),
        (
            named("version-buffers"),
            "mine.toml: pass 1, version-buffers: it must follow plan-pipeline",
        ),
        (
            named("find-copies", "plan-pipeline", "find-copies"),
            "mine.toml: pass 3, find-copies: it is pass 1 already",
        ),
        (
            named("plan-pipeline") + "depth = 2",
            "mine.toml: pass 1, plan-pipeline: there is no option 'depth' (it has architecture)",
        ),
        (
            named("find-copies") + "depth = 2",
            "mine.toml: pass 1, find-copies: there is no option 'depth' (it has none)",
        ),
        (
            named("plan-pipeline") + "architecture = 80",
            "mine.toml: pass 1, plan-pipeline: option architecture: Expected `str`, got `int`",
        ),
        ("passes = 1", "mine.toml: Expected `array`, got `int` - at `$.passes`"),
        ("pass = []", "mine.toml: Object contains unknown field `pass`"),
        (
            f'architecture = "sm_1"\n{named("plan-pipeline")}',
            "mine.toml: pass 1, plan-pipeline: there are no rules for architecture 'sm_1' (there "
            "are those of sm_80, sm_90a)",
        ),
    ],
)
def test_what_is_wrong_is_one_line(text: str, said: str) -> None:
    """With the file, the entry, and what it must follow."""
    with pytest.raises(UsageError) as raised:
        read_pipeline(text, "mine.toml")
    assert str(raised.value) == said
