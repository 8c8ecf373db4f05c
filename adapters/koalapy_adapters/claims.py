"""Who owns an attempt: its wrapper, or a revocation; decided once, by an operation that stays atomic on NFS.

A claim is a hard link from `claim` to a uniquely named file. The reply of link(2) may be lost on NFS, so the winner is
told by the link count of the unique file, not by the call's success (open(2), on O_EXCL).
"""

import json
import os
from typing import NamedTuple, Optional

from koalapy_adapters.files import DISK, Files
from koalapy_adapters.layout import read_json

CLAIMED, REVOKED = "claimed", "revoked"


class Claim(NamedTuple):
    """The owner of an attempt: `kind` is claimed (by a wrapper) or revoked (given up); `by` says who wrote it."""

    kind: str
    by: str


def take(attempt: str, claim: Claim, files: Files = DISK) -> Claim:
    """Claim the attempt; the answer is the claim that holds, which is the given one only if this call won.

    Raises OSError if the directory cannot be written; then nothing may be assumed.
    """
    unique = os.path.join(attempt, "claim.%s" % files.unpredictable(16))
    try:
        files.write(unique, json.dumps({"kind": claim.kind, "by": claim.by}).encode())
        try:
            files.link(unique, os.path.join(attempt, "claim"))
        except FileExistsError:
            pass
        won = files.links(unique) == 2
    finally:
        _tidy(unique, files)
    if won:
        return claim
    held = held_by(attempt, files)
    if held is None:
        raise OSError("the claim in %s was neither won nor lost" % attempt)
    return held


def held_by(attempt: str, files: Files = DISK) -> Optional[Claim]:
    """The claim that holds, None if nobody has claimed the attempt. Raises ValueError for what is no claim."""
    path = os.path.join(attempt, "claim")
    data = read_json(path, files)
    if data is None:
        return None
    kind, by = (data.get("kind"), data.get("by")) if isinstance(data, dict) else (None, None)
    if kind not in (CLAIMED, REVOKED) or not isinstance(by, str):
        raise ValueError("what lies in %s is not a claim" % path)
    return Claim(kind, by)


def _tidy(unique: str, files: Files) -> None:
    """A name that stays behind does no harm: the claim is decided, and the attempt's directory goes as a whole."""
    try:
        files.unlink(unique)
    except OSError:
        pass
