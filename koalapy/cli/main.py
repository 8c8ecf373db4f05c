"""`koala`: the command line of koalapy. A command's module is imported when the command is asked for."""

import os
import signal
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_group

from koalapy import __version__
from koalapy.cli.signals import ending

# As `koala --help` lists them, each with the module of koalapy.cli that has it.
COMMANDS = {
    "up": "grid",
    "down": "grid",
    "status": "grid",
    "clusters": "grid",
    "config": "grid",
    "init": "init",
    "doctor": "doctor",
    "login": "login",
    "clean": "unknown",
    "run": "run",
    "sweep": "sweep",
    "submit": "jobs",
    "resubmit": "jobs",
    "jobs": "jobs",
    "show": "jobs",
    "logs": "jobs",
    "fetch": "jobs",
    "explain": "jobs",
    "wait": "jobs",
    "cancel": "jobs",
    "hold": "jobs",
    "release": "jobs",
    "runners": "runners",
    "results": "runners",
    "demo": "demo",
    "sim": "sim",
    "testgrid": "testgrid",
}


class Commands(TyperGroup):
    """Those of COMMANDS: whoever asks for `koala jobs` does not wait for what `koala doctor` imports."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """None for what is no command. Then all are loaded, for typer looks among them for what was meant."""
        for module in [COMMANDS[name]] if name in COMMANDS else dict.fromkeys(COMMANDS.values()):
            self.commands.update(commands_of(module))
        return self.commands.get(name)


def commands_of(module: str) -> dict[str, Any]:
    """Commands and groups of commands, by name."""
    alone = typer.Typer(rich_markup_mode=None)
    alone.add_typer(import_module(f"koalapy.cli.{module}").app)
    return dict(get_group(alone).commands)


app = typer.Typer(
    cls=Commands,
    help="Run one job across all the clusters you have accounts on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"koala {__version__}")
        raise typer.Exit


@app.callback()
def koala(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it.")] = False,
) -> None:
    """koalapy, a co-allocating meta-scheduler."""


def main() -> None:
    try:
        _command()
    except KeyboardInterrupt:  # before the command has begun, or when it has ended
        ending()
        os.kill(os.getpid(), signal.SIGINT)


def _command() -> None:
    try:
        app()
    except SystemExit:
        ending()
        _flush()
        raise
    except OSError as error:
        _leave(error)


def _flush() -> None:
    """Now, and not when Python ends, where nobody can be told in words."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _leave(error)


def _leave(error: OSError) -> NoReturn:
    """The output is not wanted any more, as with `| head`, or there is no room for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        print(f"koala: The output cannot be written: {error.strerror}.", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
