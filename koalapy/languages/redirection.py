"""Redirects standard input, output and error of a program to files, with a small shell."""

from collections.abc import Mapping


def redirecting(names: Mapping[str, str]) -> list[str]:
    """Return the words that precede a program to open files for it; [] without files.

    `names`: the file of each operator of the shell, such as `2>` or `>>`. The file names and the program are arguments
    of the shell's script, never a part of it.
    """
    if not names:
        return []
    files = [f'{operator}"${place}"' for place, operator in enumerate(names, 1)]
    output = next((names[operator] for operator in (">", ">>") if operator in names), None)
    if output is not None and output in (names.get("2>"), names.get("2>>")):
        files = [file for file in files if not file.startswith("2>")] + ["2>&1"]
    opened = f"exec {' '.join(files)}; shift {len(names)}"
    return ["sh", "-c", f'{opened}; exec "$@"', "sh", *names.values()]
