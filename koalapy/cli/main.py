"""`koala`: the command line of koalapy."""

from typing import Annotated

import typer

from koalapy import __version__
from koalapy.cli import demo, grid, jobs, run, testgrid

app = typer.Typer(
    help="Run one job across all the clusters you have accounts on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(grid.app)
app.add_typer(jobs.app)
app.add_typer(run.app)
app.add_typer(demo.app)
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
    app()


if __name__ == "__main__":
    main()
