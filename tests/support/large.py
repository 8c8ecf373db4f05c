"""A file of more than 4 GiB, most of it zeros, and who has ever held how much of it in memory."""

import os
from pathlib import Path

SIZE = (4 << 30) + 12_345
MARKS = {0: b"first", (4 << 30) - 3: b"across", SIZE - 4: b"last"}  # all else are zeros
MEMORY = 200 << 10  # KiB that nobody of koalapy's may ever have held


def make(path: Path) -> None:
    """Takes no room here."""
    with path.open("wb") as file:
        file.truncate(SIZE)
        for at, words in MARKS.items():
            os.pwrite(file.fileno(), words, at)


def marks(path: Path) -> dict[int, bytes]:
    with path.open("rb") as file:
        return {at: os.pread(file.fileno(), len(words), at) for at, words in MARKS.items()}


def most_kib(process: int) -> int:
    """The most that it has held so far; 0 for one that has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(status.partition("VmHWM:")[2].partition("kB")[0] or 0)
