"""The file that takes what a runner prints is there for as long as the runner."""

from pathlib import Path

from tileyard.engine.runners import GENERAL, RunnerOutput


def test_last_words_go_to_the_log_of_the_case(tmp_path: Path) -> None:
    """They are added to what is in it, and the file is gone."""
    output = RunnerOutput(tmp_path)
    output.path.parent.mkdir(exist_ok=True)
    output.path.write_text("last words\n")
    (tmp_path / "logs" / "r").mkdir()
    (tmp_path / "logs" / "r" / "c.log").write_text("built\n")
    expected = "built\nlast words\n"
    output.close("logs/r/c.log")
    assert (tmp_path / "logs" / "r" / "c.log").read_text() == expected
    assert not output.path.exists()


def test_what_no_case_said_is_kept_in_one_file(tmp_path: Path) -> None:
    """For all runners together; those that said nothing, or never began, leave nothing."""
    expected = "one\ntwo\n"
    for text in ("one\n", "", None, "two\n"):
        output = RunnerOutput(tmp_path)
        output.path.parent.mkdir(exist_ok=True)
        if text is not None:
            output.path.write_text(text)
        output.close()
        output.close()
    assert (tmp_path / GENERAL).read_text() == expected
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [Path(GENERAL).name]


def test_words_that_cannot_be_put_anywhere_else_stay(tmp_path: Path) -> None:
    """Nothing that was said is lost because of a folder that is in the way."""
    expected = "last words\n"
    output = RunnerOutput(tmp_path)
    output.path.parent.mkdir(exist_ok=True)
    output.path.write_text(expected)
    (tmp_path / "logs" / "c.log").mkdir()
    output.close("logs/c.log")
    assert output.path.read_text() == expected
