"""`koala login`: answers the questions of a cluster's login, such as a second factor. `koala up` asks them too."""

import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from koalapy_adapters.connections.asking import Question

from koalapy.cli import options
from koalapy.cli.output import FAILED, errors, errors_reported, out, print_json, print_message
from koalapy.client import Grid
from koalapy.model.errors import RequestError

if TYPE_CHECKING:
    from koalapy.answers.clusters import Asked, Login, Prompt

app = typer.Typer()

_LOGIN_REQUIRED = "login_required"


@app.command()
def login(
    clusters: Annotated[
        list[str] | None,
        typer.Argument(metavar="CLUSTER…", help="Clusters to log in to. Default: all that are not connected."),
    ] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Answer login prompts: a second factor, a password, the passphrase of a key.

    koalad then keeps the connection open. If standard input is not a terminal, each of its lines is one answer.
    """
    with errors_reported(), Grid(grid) as koalad:
        wanted = clusters or [each["cluster"] for each in koalad.logins() if each["state"] != "connected"]
        found = [koalad.login(each, answers) for each in wanted]
    if json:
        print_json({"schema": "koala.logins/1", "logins": found})
    elif not found:
        out.print("all clusters are connected")
    failed = [each for each in found if each["state"] != "connected"]
    if not json:
        for each in found:
            print_login(each)
    raise typer.Exit(FAILED if failed else 0)


def log_in_where_asked(koalad: Grid, timeout_s: float) -> None:
    """Ask on a terminal, else print how to answer. Clusters that are unreachable within `timeout_s` are skipped."""
    asking = [each for each in koalad.await_logins(timeout_s) if each["state"] == _LOGIN_REQUIRED]
    for each in asking:
        if sys.stdin.isatty() and errors.is_terminal:
            print_login(koalad.login(each["cluster"], answers))
        else:
            reason = each["reason"]
            print_message(f"{each['cluster']} needs you to log in: {reason['message'] if reason else ''}".rstrip())
            print_message(f"Answer with `koala login {each['cluster']}`.")


def print_login(found: "Login") -> None:
    """Print the state of the login."""
    if found["state"] == "connected":
        out.print(f"{found['cluster']} is connected")
    elif found["reason"]:
        print_message(f"koala: {found['cluster']}: {found['reason']['message']}")
        print_message(found["reason"]["advice"])


def answers(question: "Asked") -> Sequence[str]:
    """Return one answer for each prompt, from the terminal, or else from the lines of standard input."""
    for text in (question["title"], question["instructions"]):
        if text.strip():
            errors.print(text.rstrip())
    return [_ask(prompt) if sys.stdin.isatty() else _read_line(prompt) for prompt in question["prompts"]]


class AtTerminal:
    """Asks the person at the terminal, one question at a time, for commands that log in themselves."""

    _one = threading.Lock()

    def present(self) -> bool:
        return sys.stdin.isatty() and errors.is_terminal

    def ask(self, question: Question) -> Sequence[str]:
        prompts: list[Prompt] = [{"text": prompt.text, "echo": prompt.echo} for prompt in question.prompts]
        with self._one:
            return answers({"title": question.title, "instructions": question.instructions, "prompts": prompts})


@contextmanager
def terminal_kept() -> Iterator[None]:
    """Restore the terminal's mode afterwards, even if a thread still waits for a hidden answer."""
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    try:
        yield
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _ask(prompt: "Prompt") -> str:
    """Ask the question; the answer is shown only if the server allows it."""
    return errors.console.input(f"{prompt['text'].rstrip()} ", markup=False, emoji=False, password=not prompt["echo"])


def _read_line(prompt: "Prompt") -> str:
    line = sys.stdin.readline()
    if not line:
        message = f"Standard input ended before an answer to '{prompt['text'].strip()}'."
        raise RequestError("no_answer", message, "Run `koala login` on a terminal, or give one answer per line.")
    return line.rstrip("\r\n")
