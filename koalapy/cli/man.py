"""`koala man`: writes the manual pages, one for each command, from the text of `koala COMMAND --help`."""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from koalapy import __version__
from koalapy.cli.output import errors_reported, print_message
from koalapy.koalad.__main__ import app as koalad
from koalapy.model.errors import OurError

app = typer.Typer()

_INSTALLED = Path(sys.prefix) / "share" / "man" / "man1"  # man derives this directory from the bin/ directory in PATH
_ESCAPED = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", "…": "..."}


@app.command()
def man(
    ctx: typer.Context,
    to: Annotated[
        Path, typer.Option(metavar="DIR", help="Write into this directory.", show_default="that of this installation")
    ] = _INSTALLED,
) -> None:
    """Write the manual pages of koala and of each of its commands.

    `pip install` installs them as well: `man koala` and `man koala-submit` show them while koala is on the PATH.
    """
    with errors_reported():
        written = pages(("koala", ctx.find_root().command), ("koalad", get_command(koalad)))
        try:
            to.mkdir(parents=True, exist_ok=True)
            for name, text in written.items():
                (to / name).write_text(text)
        except OSError as error:
            message = f"The manual pages cannot be written to {to}: {error.strerror}."
            raise OurError("not_written", message, "Name another directory with --to.") from error
    print_message(f"{len(written)} manual pages are in {to}.")


def pages(*commands: tuple[str, Any]) -> dict[str, str]:
    """Return pages in roff's man macros, by file name such as koala-submit.1. `commands`: (name, command) of each."""
    contexts = (command.make_context(name, [], resilient_parsing=True) for name, command in commands)
    return {
        f"{_page_of(each)}.1": "\n".join(_lines(each)) + "\n"
        for context in contexts
        for each in _with_commands(context)
    }


def _with_commands(context: Any) -> Iterator[Any]:
    """Yield a command's context, and those of its subcommands."""
    yield context
    for name, command in _commands(context).items():
        yield from _with_commands(command.make_context(name, [], parent=context, resilient_parsing=True))


def _commands(context: Any) -> dict[str, Any]:
    group = context.command
    names = group.list_commands(context) if hasattr(group, "list_commands") else []
    return {name: group.get_command(context, name) for name in names}


def _page_of(context: Any) -> str:
    return str(context.command_path).replace(" ", "-")


def _lines(context: Any) -> Iterator[str]:
    command, name, commands = context.command, _page_of(context), _commands(context)
    params: dict[str, list[Any]] = {"argument": [], "option": []}
    for each in command.get_params(context):
        params[each.param_type_name].append(each)
    yield f'.TH {name.upper()} 1 "" "koalapy {__version__}" "koalapy"'
    yield from _section("NAME", f"{_escaped(name)} \\- {_escaped(_in_short(command))}")
    words = ["[OPTION…]", *map(_argument, params["argument"]), *(["COMMAND …"] if commands else [])]
    yield from _section("SYNOPSIS", f"\\fB{_escaped(context.command_path)}\\fR {_escaped(' '.join(words))}")
    yield from _section("DESCRIPTION", *_paragraphs(command.help))
    for kind, each_one in params.items():
        records = [(each, record) for each in each_one if (record := each.get_help_record(context))]
        items = [(_term(each, shown), text) for each, (shown, text) in records]
        if items:
            yield from _section(f"{kind.upper()}S", *_items(items))
    if commands:
        items = [(f"{name}-{each}(1)", f"{_in_short(found)}.") for each, found in commands.items()]
        yield from _section("COMMANDS", *_items(items))
    if context.parent is not None:
        yield from _section("SEE ALSO", f"\\fB{_escaped(_page_of(context.parent))}\\fR(1)")


def _in_short(command: Any) -> str:
    """Return a short description of a command: that of `koala --help`, or the first sentence of its own help."""
    return re.split(r"\.\s|\.$", command.short_help or " ".join(command.help.split()))[0]


def _argument(param: Any) -> str:
    value = _value_of(param)
    return value if param.required or value.startswith("[") else f"[{value}]"


def _term(param: Any, shown: str) -> str:
    if param.param_type_name == "argument":
        return _value_of(param)
    names = ", ".join(sorted([*param.opts, *param.secondary_opts], key=lambda name: name.startswith("--")))
    return names if param.is_flag else f"{names} {_value_of(param, shown)}"


def _value_of(param: Any, shown: str = "") -> str:
    """Return the placeholder of an option's value: its choices as `shown` by its help, or a name."""
    choices = re.search(r"[\w-]+(\|[\w-]+)+", shown)
    name = choices.group() if choices else param.name.upper()
    return param.metavar or (f"{name}…" if param.nargs == -1 else name)


def _section(title: str, *lines: str) -> Iterator[str]:
    yield f".SH {title}"
    yield from lines


def _items(items: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in items:
        yield from (".TP", f"\\fB{_escaped(term)}\\fR", _escaped(text))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        yield _escaped(paragraph)


def _escaped(text: str) -> str:
    """Return a line of roff that shows this text, and in which no dot begins a request."""
    line = "".join(
        _ESCAPED.get(each) or (each if each.isascii() else f"\\[u{ord(each):04X}]") for each in " ".join(text.split())
    )
    return f"\\&{line}" if line.startswith(".") else line
