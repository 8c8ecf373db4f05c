"""Requests of koalad to a KCM about files: files to the staging cache, and files that attempts leave."""

from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple, Type

from koalapy_adapters.messages.fields import Content, Count, Flag, Name, Rows, Tag, Whole, many, row

if TYPE_CHECKING:
    Files = Rows
    Positions = List[List[int]]
else:
    Files = many(row(Name, Count))  # content hash, size
    Positions = many(row(Count, Count))  # rank, bytes


class Want(NamedTuple):
    """Ask which of these files, [content hash, size] each, the staging cache lacks. The others count as used.

    Answered by Done, with details `missing`, [index, bytes that are there of it] each. If the file system reports them,
    its `free` and `total` bytes follow.
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
    """Read a file of the attempt from `offset`. Chunks come on stream `id`; then Fetched.

    `where`: output (stdout of all processes), errors, work (`path`), slot (the output of a Launcher's slot; `path`:
    slot-3.out), or batch (the output of the wrapper itself). `size`: at most so many bytes of a slot's output, which
    has no digest.
    `positions`, of output and errors: [rank, bytes to pass over] for each rank's file. With them, a line of JSON,
    [rank, size], precedes every part on the stream. With `follow`, the stream goes on until the attempt has ended.
    Without `follow`, `size` bounds the bytes of each rank's file: of a longer file come its begin and its end.
    The line before the first part of that end is [rank, size, bytes that were left out before it].
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
    """List the files that match these patterns (see trees) in the attempt's working directory.

    Lines of JSON, trees.Found each, come on stream `id`; then Fetched.
    """

    id: Count
    tag: Tag
    patterns: List[Content]


class Stat(NamedTuple):
    """Ask which of these paths exist in the working directory. Answered by Done; details: {path: size in bytes}."""

    id: Count
    tag: Tag
    paths: List[Content]


class DiskUse(NamedTuple):
    """Ask how much of the shared directory the store takes up, or one attempt of it. Answered by Done, within 40 s.

    Its details: `bytes` on disk, `attempts`, the directories of attempts, `staged_bytes` of the staging cache, and
    `whole`: false if there was too much to count, so that there are more bytes.
    """

    id: Count
    tag: Name = ""


MESSAGES: Tuple[Type[Any], ...] = (Want, Store, StoreMany, Fetch, FetchMany, ListFiles, Stat, DiskUse)
