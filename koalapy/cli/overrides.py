"""The option -o of commands that read job files."""

from collections.abc import Sequence
from typing import Annotated

import typer

from koalapy.cli.output import BAD_INPUT, print_message

Override = Annotated[
    list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="Change a key of the job; KEY= unsets it.")
]


def overrides_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the values of `-o KEY=VALUE`, by key. Ends the command for a pair without `=`."""
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        print_message(f"koala: {wrong[0]!r} is not KEY=VALUE. Write it like -o priority=5.")
        raise typer.Exit(BAD_INPUT)
    return dict(pair.split("=", 1) for pair in pairs)
