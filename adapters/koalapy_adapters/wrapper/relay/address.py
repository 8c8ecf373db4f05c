"""The file in which a KCM states where its relay is."""

import os
from typing import List, NamedTuple

from koalapy_adapters import layout
from koalapy_adapters.files import DISK, Files


class RelayAddress(NamedTuple):
    """Where the relay is, by its file: at a port of one of these addresses, or at a directory (see message_files).

    Neither where there is no such file. `touched`: its time of change, which a KCM that lives changes. `secret`: by
    which that KCM and we know each other. `last`: addresses to try when none of the others is it.
    """

    addresses: List[str] = []
    port: int = 0
    directory: str = ""
    touched: float = 0.0
    secret: str = ""
    last: List[str] = []


def read_relay_address(path: str, files: Files = DISK) -> RelayAddress:
    try:
        data = layout.read_json(path, files)
        if data is None:
            return RelayAddress()
        post = str(data.get("post") or "")
        directory = os.path.join(os.path.dirname(path), os.path.basename(post)) if post else ""
        addresses, last = ([str(address) for address in data.get(key) or []] for key in ("addresses", "last"))
        return RelayAddress(addresses, int(data["port"]), directory, files.modified(path), str(data["secret"]), last)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return RelayAddress()  # a KCM may be about to write it; it is read again
