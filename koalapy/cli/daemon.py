"""Starting koalad detached from the terminal, and hearing from it when it is ready."""

import json
import os
import select
import subprocess
import sys

from koalapy.cli.output import say
from koalapy.client import Grid, NotReachable
from koalapy.locations import Locations
from koalapy.model.errors import OurError, RequestError

_READY_S = 60.0


def start(locations: Locations) -> bool:
    """Start koalad of this grid file; False if it runs already. Raises KoalaError with koalad's own words."""
    if is_up(locations):
        return False
    locations.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    reader, writer = os.pipe()
    with locations.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "koalapy.cli.koalad", "--grid", str(locations.grid_file), "--ready-fd", str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writer,),
            start_new_session=True,
            cwd="/",
        )
    os.close(writer)
    try:
        answer = _read_answer(reader)
    finally:
        os.close(reader)
    if "error" in answer:
        process.wait()
        kind = RequestError if answer["whose"] == "request" else OurError
        raise kind(answer["code"], answer["error"], answer["advice"])
    return True


def is_up(locations: Locations) -> bool:
    try:
        with Grid(locations.grid_file or locations.grid) as koalad:
            koalad.status()
    except NotReachable:
        return False
    return True


def _read_answer(reader: int) -> dict[str, str]:
    """koalad's one line: {"pid": …} or {"error", "advice", "code", "whose"}."""
    data = b""
    while not data.endswith(b"\n"):
        if not select.select([reader], [], [], _READY_S)[0]:
            say("koala: koalad takes long to start.")
            break
        piece = os.read(reader, 65_536)
        if not piece:
            break
        data += piece
    if not data.endswith(b"\n"):
        raise OurError("not_started", "koalad ended before it was ready.", "The end of its koalad.log says why.")
    return dict(json.loads(data))
