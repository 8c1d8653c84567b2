"""The command line: passes each command its arguments, and turns failures into one line."""

import itertools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import tileyard
from tileyard.base.errors import NoEffectError, TileyardError, UsageError
from tileyard.cli.arguments import asks_for_help, has_folder
from tileyard.show.defaults import Defaults, Verbs, read_defaults
from tileyard.show.guarding import INTERRUPTED, explain, say
from tileyard.show.typed import list_options, typed
from tileyard.show.values import refuse_dash
from tileyard.verbs.agent import command as agent
from tileyard.verbs.check.command import check
from tileyard.verbs.ci.command import ci
from tileyard.verbs.compile.command import bundle
from tileyard.verbs.compile.command import compile as compile_command
from tileyard.verbs.doctor import command as doctor
from tileyard.verbs.exec import help as exec_help
from tileyard.verbs.lease import devices_command as devices
from tileyard.verbs.lease import help as lease_help
from tileyard.verbs.look import command as look
from tileyard.verbs.passes import command as passes
from tileyard.verbs.records.command import cache, choices, config, history, report, trials
from tileyard.verbs.reduce.command import reduce
from tileyard.verbs.regress.command import regress
from tileyard.verbs.serve.command import serve
from tileyard.verbs.site import command as site
from tileyard.verbs.strategies import command as strategies
from tileyard.verbs.test.command import test
from tileyard.verbs.trace import command as trace_command
from tileyard.verbs.tune.command import tune

app = typer.Typer(
    name="tileyard",
    help="Builds, checks, tunes and tests tile kernels; needs an accelerator only while one runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: drawing it costs a fifth of a second
    context_settings={"help_option_names": ["-h", "--help"]},
)


class OnceCommand(TyperCommand):
    """A command that refuses an option given twice, unless it may be: otherwise the last would count. It also
    refuses empty arguments and files: otherwise they would be all records, or the working directory. A file
    called - is refused where it would not be standard input or output.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (typer hides its type)
        """Parse as usual, after a look at what is given."""
        self._refuse_missing_values(args)
        values, _, given = self.make_parser(ctx).parse_args(list(args))
        self._refuse_wrong_values(ctx, values)
        for param in given:
            may_repeat = getattr(param, "multiple", False) or getattr(param, "count", False)
            if given.count(param) > 1 and not may_repeat:
                raise typer.BadParameter(f"{param.opts[0]} is given twice")
        return super().parse_args(ctx, args)

    def _refuse_wrong_values(self, ctx: Any, values: Mapping[str, Any]) -> None:  # noqa: ANN401 (as above)
        params: list[Any] = list(self.params)
        for param in params:
            given = values.get(param.name)
            given = given if isinstance(given, list | tuple) else [given]
            path = re.match(r"\[?(FILE|DIR|SUITE)\b(?!.*-)", param.metavar or "")
            is_argument = param.param_type_name == "argument"
            if path:
                used, _ = param.consume_value(ctx, values)  # also from the file or the environment
                for one in used if isinstance(used, list | tuple) else [used]:
                    refuse_dash(one, path[1] if is_argument else param.opts[0])
            if "" not in given:
                continue
            if is_argument:
                first = re.split(r"\.\s+(?=[A-Z])", param.help or "")[0]
                raise typer.BadParameter(f"{param.metavar} is empty ({first.rstrip('.')})")
            if param.type_descriptor.annotation in (Path, list[Path]):
                raise typer.BadParameter(f"{param.opts[0]} is empty: it takes a path")

    def _refuse_missing_values(self, args: list[str]) -> None:
        """Refuse an option in the place of another one's value, which it would be taken for."""
        takes_value = {
            flag: not getattr(param, "is_flag", False)
            for param in self.params
            for flag in param.opts
            if param.param_type_name == "option"
        }
        words = iter(itertools.takewhile(lambda word: word != "--", args))
        for word in words:
            if takes_value.get(word) and (value := next(words, "")) in takes_value:
                raise typer.BadParameter(f"{word} needs a value, and {value} is an option")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tileyard {tileyard.__version__}")
        raise typer.Exit


@app.callback()
def _begin(
    context: typer.Context,
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Read the options before the command, and the project's defaults for those after it."""
    given: Given = context.obj
    if not has_folder():  # then only help is shown
        given.defaults = Defaults()
    if given.defaults is None:
        try:
            given.defaults = read_defaults(os.environ, Path.cwd(), list_verbs(context.command))
        except UsageError:
            if not asks_for_help(given.arguments):  # help is needed to fix a bad file
                raise
            given.defaults = Defaults()
    context.default_map = given.defaults.as_map()


def list_verbs(command: Any) -> Verbs:  # noqa: ANN401 (typer hides its type)
    """The options of all verbs, also of those that parse their arguments themselves."""
    others = {("lease",): lease_help.OPTIONS, ("exec",): exec_help.OPTIONS}
    return list_options(command) | others


@dataclass
class Given:
    """A command line, and the defaults of its options once they are read."""

    arguments: list[str]
    defaults: Defaults | None = None

    def run(self) -> object:
        """Carry it out. A default without effect on the requested command is dropped."""
        while True:
            try:
                return app(self.arguments, prog_name="tileyard", standalone_mode=False, obj=self)
            except NoEffectError as error:
                known = self.defaults or Defaults()
                if not known.drop(error.option, self.arguments):
                    raise

    def explain(self, message: str) -> str:
        """A message, with the places at which the options that it names are set."""
        return (self.defaults or Defaults()).explain(message, self.arguments)


COMMANDS: tuple[tuple[str, Callable[..., int | None], str | None], ...] = (
    ("demo", tune.demo, None),
    ("tune", tune.tune, None),
    ("run", tune.run_config, None),
    ("test", test.run_suite, None),
    ("check", check.check, None),
    ("look", look.look, None),
    ("passes", passes.passes, None),
    ("reduce", reduce.reduce, None),
    ("compile", compile_command.compile_configs, None),
    ("plan", test.plan, None),
    ("history", history.history, None),
    ("site", site.site, None),
    ("show", trials.show, None),
    ("report", report.report, None),
    ("trace", trace_command.trace, None),
    ("export", choices.export, None),
    ("import", choices.import_, None),
    ("inspect", compile_command.inspect, None),
    ("regress", regress.regress, None),
    (
        "static",
        regress.regress,
        "Compare what two compilers made of the same kernels: short for regress --static.",
    ),
    ("bisect", regress.bisect, None),
    ("doctor", doctor.doctor, None),
    ("config", config.config, None),
    ("lease", lease_help.describe, "Run any command while holding devices."),
    ("exec", exec_help.describe, "Run a script that was written for a GPU on the CPU."),
    ("bundle", bundle.bundle, None),
    ("run-artifact", compile_command.run_artifact, None),
    ("serve", serve.serve, None),
    ("agent", agent.agent, None),
)
"""Commands by name; with a description if their docstring does not give one."""

for _name, _function, _help in COMMANDS:
    app.command(_name, help=_help)(typed(_function))
GROUPS = (
    ("trials", trials.app),
    ("strategies", strategies.app),
    ("devices", devices.app),
    ("ci", ci.app),
    ("cache", cache.app),
)
for _name, _group in GROUPS:
    app.add_typer(_group, name=_name)
for _typer in (app, *(group.typer_instance for group in app.registered_groups)):
    for _command in _typer.registered_commands if _typer else ():
        _command.cls = OnceCommand

USAGE = 2


def main(arguments: list[str]) -> int:
    """Run one command, except those that ``entry`` carries out itself, and return its exit status."""
    given = Given(arguments)
    try:
        status = given.run()
    except typer.TyperException as error:
        return say(given.explain(error.format_message()), USAGE)
    except TileyardError as error:
        return say(given.explain(str(error)), error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - the last resort: say that it is a bug of ours
        return explain(error)
    return status if isinstance(status, int) else 0
