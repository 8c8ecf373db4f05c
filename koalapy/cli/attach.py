"""`koala attach`: the terminal of an interactive job, or its standard input."""

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from koalapy.cli import options
from koalapy.cli.attached_terminal import ESCAPE, FIRST, AttachedTerminal, Detached, Screen, escape_of
from koalapy.cli.ends import OWN_FAILURE, exit_status_of, own_failures, print_end
from koalapy.cli.explain import explained_of
from koalapy.cli.follow import follow_output
from koalapy.cli.output import DONE, errors_reported, print_message
from koalapy.cli.progress import StateLines
from koalapy.cli.signals import interruptible
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.client.following import RECONNECT_S
from koalapy.model.errors import RequestError
from koalapy.model.request import Interactive

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job

app = typer.Typer()


@app.command()
def attach(
    job: options.JobId,
    take: Annotated[
        bool, typer.Option("--take", help="Take the terminal over from a client that is attached.")
    ] = False,
    others: Annotated[
        bool, typer.Option("--others", help="Show the output of other ranks too, from its beginning.")
    ] = False,
    escape: options.Escape = ESCAPE,
    reconnect: options.Reconnect = RECONNECT_S,
    grid: options.Grid = None,
) -> None:
    """Attach to the terminal of rank 0 of an interactive job, or to its standard input.

    What the terminal showed last is shown again. Every key goes to the program, Ctrl-C too; ^] d detaches, and the job
    runs on. The exit status is the program's; 125 is a failure of koala itself, and 0 follows ^] d.
    """
    with own_failures(), errors_reported(), Grid(grid) as koalad, interruptible():
        attached = AttachedTerminal(koalad, job, Screen(sys.stdout.buffer), take, escape_of(escape), reconnect)
        document = koalad.show(job)
        kind = document["request"]["job"].get("interactive", "")
        if not kind or document["job"]["finished_at"] is not None:
            koalad.terminal(job)  # refuses, with the reason
        if kind == Interactive.TERMINAL and not (sys.stdin.isatty() and sys.stdout.isatty()):
            message = f"Job {job} has a terminal, and there is none here to show it."
            raise RequestError("no_terminal", message, f"Use `koala attach {job}` in a terminal.")
        try:
            follow_attended(attached, kind, others, None)
        except (Detached, KeyboardInterrupt) as left:
            leave(job, left)
        except NotReachable:
            print_message(f"koala: job {job} goes on; `koala attach {job}` comes back to it.")
            raise
        found = koalad.show(job)["job"]
        if found["state"] != "done":
            print_end(found, explained_of(koalad, found), output_shown=True)
    raise typer.Exit(exit_status_of(found))


def follow_attended(attached: AttachedTerminal, kind: str, others: bool, prefix: bool | None) -> None:
    """Attach to the terminal, or the standard input, whenever its program runs, until the job is final.

    `others`: the output of other ranks is shown too. `prefix`: see Grid.output; with a terminal, None has labels.
    Raises Detached if the person leaves, and KoalaError.
    """
    states, ended = StateLines(attached.koalad), False

    def attend(found: "Job") -> None:
        nonlocal ended
        ended = found["components"][0]["exit_status"] is not None
        if not attached.has_begun:
            states.print_changes(found)
        attached.attend(found)

    koalad, job, patience_s = attached.koalad, attached.job, attached.reconnect_s
    if kind == Interactive.INPUT:
        return follow_output(koalad, job, attached.screen, sys.stderr.buffer, attend, prefix, patience_s)
    shown = attached.screen if others else None
    follow_output(koalad, job, shown, shown, attend, prefix is not False, patience_s, without=FIRST)
    if ended and not attached.has_shown_all:
        print_message(f"koala: not all that the program showed was seen here: `koala logs {job}` has it.")


def leave(job: int, why: BaseException) -> NoReturn:
    """Print that the job continues, and end the command: with 0 if the person detached.

    Raises typer.Exit.
    """
    taken = isinstance(why, Detached) and why.is_taken
    what = f"another client has taken over the terminal of job {job}" if taken else f"detached from job {job}"
    print_message(f"koala: {what}, which runs on. `koala attach {job}` comes back, `koala cancel {job}` ends it.")
    raise typer.Exit(OWN_FAILURE if taken else DONE)
