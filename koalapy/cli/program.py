"""The executable of a command line: a program of the nodes' PATH, an absolute path there, or a file here."""

from pathlib import Path

from koalapy.model.errors import RequestError


def executable_of(name: str) -> tuple[str, list[str]]:
    """Return the executable and the files to stage in for it. Raises RequestError if a named file is not here."""
    if "/" not in name or name.startswith("/"):
        return name, []
    if not Path(name).is_file():
        advice = "Name a program of the nodes' PATH, an absolute path there, or a file here."
        raise RequestError("no_such_file", f"There is no file {name}.", advice)
    from koalapy.languages.paths import landing  # late: an error in an option needs none of this

    return f"./{landing(name)}", [name]
