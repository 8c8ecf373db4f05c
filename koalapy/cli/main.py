"""`koala`: the command line of koalapy."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from koalapy import __version__
from koalapy.cli import demo, doctor, grid, init, jobs, login, run, runners, sim, sweep, testgrid, unknown

app = typer.Typer(
    help="Run one job across all the clusters you have accounts on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(grid.app)
app.add_typer(init.app)
app.add_typer(doctor.app)
app.add_typer(login.app)
app.add_typer(unknown.app)
app.add_typer(run.app)
app.add_typer(sweep.app)
app.add_typer(jobs.app)
app.add_typer(runners.app)
app.add_typer(demo.app)
app.add_typer(sim.app, name="sim", help="The simulated world: chaos, from a seed.")
app.add_typer(testgrid.app, name="testgrid", help="The dockerised mini-multicluster.")


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
        app()
    except SystemExit:
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
