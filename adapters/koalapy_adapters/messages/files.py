"""What koalad asks a KCM of files: of the staging cache, where they come in, and of attempts, which leave some."""

from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple, Type

from koalapy_adapters.messages.fields import Content, Count, Flag, Name, Rows, Tag, Whole, many, row

if TYPE_CHECKING:
    Files = Rows
    Positions = List[List[int]]
else:
    Files = many(row(Name, Count))  # content hash, size
    Positions = many(row(Count, Count))  # rank, bytes


class Want(NamedTuple):
    """Which of these files, [content hash, size] each, the staging cache lacks; those it has count as used now.

    Answered by Done, with details `missing`, [index, bytes that are there of it] each, and, where the file system
    tells, its `free` and `total` bytes.
    """

    id: Count
    files: Files


class Store(NamedTuple):
    """Begin to store a file by its content hash (sha256, hex) in the staging cache; chunks follow on stream `id`.

    They begin at `offset`: so much of it was there. Answered by Done(have=True) at once if the file is there already,
    else by Done after the last chunk was verified. What has come of it stays if the connection is cut.
    """

    id: Count
    digest: Name
    size: Count
    offset: Count = 0


class StoreMany(NamedTuple):
    """The same for small files, [content hash, size] each: their contents follow on stream `id` one after the other."""

    id: Count
    files: Files


class Fetch(NamedTuple):
    """Read a file of the attempt from `offset`: `where` is output (stdout of all processes), errors, work (`path`),
    slot (what a Launcher's slot wrote; `path`: slot-3.out), or batch (what the wrapper itself says).

    Chunks come on stream `id`; then Fetched. `size`: so many bytes at most of what a slot wrote, which has no digest.
    `positions`, of output and errors: bytes of each rank's file that are passed over, [rank, bytes] each. With them
    every stretch on the stream is preceded by a line of JSON, [rank, size], and with `follow` it goes on until the
    attempt has ended. Without `follow`, `size` bounds what comes of each rank's file: of a longer one its begin and its
    end, and the line before the first stretch of that end is [rank, size, bytes that were left out before it].
    """

    id: Count
    tag: Tag
    where: Name
    path: Content = ""
    offset: Count = 0
    follow: Flag = False
    size: Whole = -1
    positions: Optional[Positions] = None


class FetchMany(NamedTuple):
    """Read small files of the attempt's working directory: of each, on stream `id`, a line of JSON and its bytes.

    The line is [size, mode, mtime_ns], or null for what is no plain file there. Then Fetched, whose digest is the
    whole stream's.
    """

    id: Count
    tag: Tag
    paths: List[Content]


class ListFiles(NamedTuple):
    """What these patterns (see trees) name in the attempt's working directory.

    Lines of JSON, trees.Found each, come on stream `id`; then Fetched.
    """

    id: Count
    tag: Tag
    patterns: List[Content]


class Stat(NamedTuple):
    """Which of these paths exist in the attempt's working directory. Answered by Done with details = {path: size}."""

    id: Count
    tag: Tag
    paths: List[Content]


class DiskUse(NamedTuple):
    """How much of the shared directory the store takes up. Answered by Done, within 40 s.

    Its details: `bytes` on disk, `attempts`, the directories of attempts, `staged_bytes` of the staging cache, and
    `whole`: false if there was too much to count, so that there are more bytes.
    """

    id: Count


MESSAGES: Tuple[Type[Any], ...] = (Want, Store, StoreMany, Fetch, FetchMany, ListFiles, Stat, DiskUse)
