"""Who owns an attempt: its wrapper, or a revocation; decided once, by an operation that stays atomic on NFS.

A claim is a hard link from `claim` to a uniquely named file. The reply of link(2) may be lost on NFS, so the winner is
told by the link count of the unique file, not by the call's success (open(2), on O_EXCL).
"""

import json
import os
from typing import NamedTuple, Optional

from koalapy_adapters.layout import read_json

CLAIMED, REVOKED = "claimed", "revoked"


class Claim(NamedTuple):
    """The owner of an attempt: `kind` is claimed (by a wrapper) or revoked (given up); `by` says who wrote it."""

    kind: str
    by: str


def take(attempt: str, claim: Claim) -> Claim:
    """Claim the attempt; the answer is the claim that holds, which is the given one only if this call won.

    Raises OSError if the directory cannot be written; then nothing may be assumed.
    """
    unique = os.path.join(attempt, "claim.%s" % os.urandom(16).hex())
    with open(unique, "w") as file:
        json.dump({"kind": claim.kind, "by": claim.by}, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        try:
            os.link(unique, os.path.join(attempt, "claim"))
        except FileExistsError:
            pass
        won = os.stat(unique).st_nlink == 2
    finally:
        os.unlink(unique)
    if won:
        return claim
    held = held_by(attempt)
    if held is None:
        raise OSError("the claim in %s was neither won nor lost" % attempt)
    return held


def held_by(attempt: str) -> Optional[Claim]:
    """The claim that holds, None if nobody has claimed the attempt."""
    data = read_json(os.path.join(attempt, "claim"))
    return None if data is None else Claim(data["kind"], data["by"])
