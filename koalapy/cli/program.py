"""A program as a command line names it: of the nodes' PATH, an absolute path there, or a file here."""

from pathlib import Path

from koalapy.model.errors import RequestError


def executable_of(name: str) -> tuple[str, list[str]]:
    """The executable, and what is to be staged in for it. Raises RequestError for a file that is not here."""
    if "/" not in name or name.startswith("/"):
        return name, []
    if not Path(name).is_file():
        advice = "Name a program of the nodes' PATH, an absolute path there, or a file here."
        raise RequestError("no_such_file", f"There is no file {name}.", advice)
    from koalapy.languages.paths import landing  # late: no wrong option waits for what reads job files

    return f"./{landing(name)}", [name]
