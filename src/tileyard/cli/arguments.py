"""What is looked at before any command is: the working directory, and whether help is asked for."""

import os


def has_folder() -> bool:
    """Whether there is a working directory, which every command reads."""
    try:
        return bool(os.getcwd())  # noqa: PTH109 - pathlib costs a lease 5 ms
    except OSError:
        return False


def asks_for_help(arguments: list[str]) -> bool:
    """Whether help is requested among the options of a command, before a user's own command or script."""
    ours = arguments[:2] if arguments[:1] == ["exec"] else arguments
    return "--help" in (ours[: ours.index("--")] if "--" in ours else ours)
