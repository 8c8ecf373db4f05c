"""`koala`: the command line of koalapy. A command's module is imported only when the command is used."""

import os
import signal
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_group

from koalapy import __version__
from koalapy.cli.options import use_json
from koalapy.cli.signals import ending
from koalapy.cli.times import use_utc

# In the order of `koala --help`: the module of koalapy.cli that has the command, and a short description.
COMMANDS = {
    "up": ("up", "Start koalad."),
    "down": ("up", "Stop koalad; jobs run on, unless --cancel."),
    "status": ("status", "Show koalad's state, and what it recovered."),
    "grids": ("status", "List grids whose koalad runs on this machine."),
    "clusters": ("clusters", "Show the processors of each cluster."),
    "cluster": ("cluster", "Add, drain or remove a cluster."),
    "pilots": ("pilots", "Hold processors for many jobs, as a cluster of their own."),
    "reload": ("reload", "Read the grid file again; jobs run on."),
    "sites": ("sites", "Show neighbouring sites, and link this one with others."),
    "leases": ("leases", "Show what is lent to other sites and borrowed of them."),
    "config": ("config", "Check the grid file, or show its schema."),
    "init": ("init", "Examine head nodes, and write a grid file."),
    "service": ("service", "Run koalad as a systemd service."),
    "doctor": ("doctor", "Examine each cluster, and advise what to change."),
    "top": ("top", "Watch clusters, queue, jobs and sweeps."),
    "usage": ("usage", "Sum up processor time by user, cluster, job or day."),
    "login": ("login", "Answer the questions of cluster logins."),
    "clean": ("clean", "Remove jobs and directories by their tags."),
    "maintenance": ("maintenance", "Run maintenance tasks, or show their last runs."),
    "repair": ("repair", "Correct or drop unreadable records."),
    "bugreport": ("bugreport", "Pack a bug report, without secrets."),
    "run": ("run", "Run a program now, and pass its output through."),
    "sweep": ("sweep", "Run a program for each of many parameters."),
    "submit": ("submit", "Submit job files."),
    "match": ("match", "Show on which clusters a job would fit now."),
    "resubmit": ("submit", "Submit a job once more."),
    "jobs": ("jobs", "List jobs, the newest last."),
    "show": ("show", "Show one job in full, with its history."),
    "logs": ("logs", "Print the output of a job's processes."),
    "fetch": ("fetch", "Fetch files that a job left on its clusters."),
    "attach": ("attach", "Attach to the terminal of an interactive job."),
    "forward": ("forward", "Bring a port of a running job to this machine."),
    "explain": ("explain", "Explain why a job waits, or why it failed."),
    "wait": ("wait", "Wait until jobs are final."),
    "cancel": ("cancel", "Cancel jobs."),
    "hold": ("hold", "Keep jobs from starting, and sweeps from going on."),
    "release": ("hold", "Let held jobs start again."),
    "runners": ("runners", "Show sweeps: their nodes and their progress."),
    "results": ("results", "List the results of a sweep's parameters."),
    "demo": ("demo", "Co-allocate jobs on three clusters of this machine."),
    "sim": ("sim", "Simulate: traces, experiments, chaos."),
    "man": ("man", "Write the manual pages."),
    "testgrid": ("testgrid", "Run real clusters in containers, for tests."),
}


class Commands(TyperGroup):
    """The group of all COMMANDS, which imports only the module of the command that is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command of this name; None if there is none."""
        if name not in COMMANDS:
            return None
        self.commands.update(commands_of(COMMANDS[name][0]))
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see entry.py: a command reports its interrupt
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command = self.commands[name]
        command.short_help = COMMANDS[name][1]
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command. Raises UsageError for an unknown name, and suggests a similar one."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            meant = next(iter(get_close_matches(args[0], COMMANDS)), None)
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean '{meant}'?" if meant else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


def commands_of(module: str) -> dict[str, Any]:
    """Return the commands and groups of commands of a module, by name."""
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
    ctx: typer.Context,
    grid: Annotated[
        str | None,
        typer.Option(
            "--grid",
            "-g",
            metavar="FILE|NAME",
            help="Grid file, or the name of a grid whose koalad runs; also accepted after the command.",
        ),
    ] = None,
    utc: Annotated[bool, typer.Option("--utc", help="Show times in UTC, not in local time.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """koalapy, a co-allocating meta-scheduler."""
    use_utc(utc)
    use_json(False)
    if grid is not None:
        of_command = {"grid": grid}
        ctx.default_map = dict.fromkeys(COMMANDS, of_command) | {
            "config": {"check": of_command},
            "cluster": dict.fromkeys(("add", "remove", "resume"), of_command),
            "pilots": of_command | dict.fromkeys(("open", "close"), of_command),
            "leases": of_command | {"end": of_command},
            "sites": of_command | dict.fromkeys(("init", "invite", "join", "remove", "check", "rotate"), of_command),
            "sim": {},
        }


def main() -> None:
    try:
        _command()
    except KeyboardInterrupt:  # before the command has started, or after it has ended
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
    """Flush standard output now, because an error at Python's end could not be reported in words."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _leave(error)


def _leave(error: OSError) -> NoReturn:
    """End with status 1, because the reader has closed the output or the output cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        print(f"koala: The output cannot be written: {error.strerror}.", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
