"""``tileyard config``: shows the settings that differ from the defaults, and where each comes from."""

import os
from typing import TYPE_CHECKING

import typer

from tileyard.base.model import Record
from tileyard.base.settings import VARIABLES
from tileyard.show.defaults import Defaults
from tileyard.show.typed import AsJson

if TYPE_CHECKING:
    from tileyard.show.console import Console


class Row(Record):
    """A setting: a key of the project's file or an environment variable, its value, and its source."""

    setting: str
    value: object
    source: str


class Configuration(Record):
    """The project's file, if any, and the settings in force that differ from the defaults."""

    file: str | None
    settings: tuple[Row, ...]


def config(context: typer.Context, *, json: AsJson = False) -> int:
    """Show the settings that differ from their defaults, their values, and where each comes from.

    The command line wins over environment variables, these over the table of a verb in the project's file,
    and that over the file's top level. The file is the nearest tileyard.toml, or pyproject.toml with a table
    [tool.tileyard], from the working directory up to the root of the repository.

    Exit status: 0, 2 for a file that is wrong.
    """
    from tileyard.devices.declared import read_devices
    from tileyard.devices.foreign import read_queues
    from tileyard.show.opening import load_settings, present

    settings = load_settings()  # refuses what cannot be used, as do these
    read_devices(settings)
    read_queues(settings)
    present(list_settings(context.obj.defaults), json, _print)
    return 0


def list_settings(defaults: Defaults) -> Configuration:
    """The environment variables that are set, then the defaults of the file in its order."""
    rows = [
        Row(setting=name, value=os.environ[name], source="environment")
        for name in VARIABLES
        if os.environ.get(name)
    ]
    found = {one.place.keys: one for settings in defaults.of.values() for one in settings.values()}
    rows += [
        Row(setting=one.key, value=one.value, source=one.where)
        for one in sorted(found.values(), key=lambda one: one.line)
    ]
    return Configuration(file=str(defaults.file) if defaults.file else None, settings=tuple(rows))


def _print(console: "Console", found: Configuration) -> None:
    from tileyard.show.console import new_table, print_table, say

    if found.settings:
        columns = ("setting", "value", "from")
        table = new_table(columns, left=columns)
        for row in found.settings:
            table.add_row(row.setting, _show(row.value), row.source)
        print_table(console, table)
    else:
        say(console, "every setting has its default")
    say(console, f"project file: {found.file or 'none'}", style="dim")


def _show(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
