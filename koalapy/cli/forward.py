"""`koala forward`: brings a port of a running job to this machine, for as long as the command runs."""

import re
import sys
from contextlib import suppress
from typing import Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_error, print_json, print_message
from koalapy.cli.signals import interruptible
from koalapy.client import Grid
from koalapy.client.forwarding import LOOPBACK
from koalapy.model.errors import RequestError

app = typer.Typer()

_JOB = re.compile(r"(\d{1,15})(?::(\d{1,9}))?", re.ASCII)
_LISTEN = re.compile(r"(?:(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+)):)?(\d{1,5})", re.ASCII)
_LAST_PORT = 65535


@app.command()
def forward(
    job: Annotated[
        str, typer.Argument(metavar="ID[:COMPONENT]", help="A running job.", autocompletion=options.complete_jobs)
    ],
    port: Annotated[int, typer.Argument(min=1, max=_LAST_PORT, metavar="PORT", help="Port of 127.0.0.1 on the node.")],
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", "-l", metavar="[ADDRESS:]PORT", help="Where to listen here. Default: 127.0.0.1, a free port."
        ),
    ] = None,
    rank: Annotated[
        int, typer.Option("--rank", min=0, metavar="N", help="Rank in the component, on whose node the port is.")
    ] = 0,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Bring a port of a running job to this machine, as ssh -L does.

    Several connections may be open at once. The command ends with Ctrl-C, or when the job ends.
    """
    with errors_reported(), Grid(grid) as koalad:
        number, component = _job_of(job)
        address = _address_of(listen)
        with (
            suppress(KeyboardInterrupt),
            interruptible(),
            koalad.forward(
                number, port, component=component, rank=rank, listen=address, failed=print_error
            ) as forwarding,
        ):
            host, own = forwarding.address
            shown = f"[{host}]:{own}" if ":" in host else f"{host}:{own}"
            place = forwarding.document
            if json:
                print_json({**place, "schema": "koala.forward/1", "address": shown})
                sys.stdout.flush()
            else:
                out.print(f"{shown} is port {port} of job {number}, component {place['component']}.")
            ended = koalad.wait([number])[0]
            print_message(f"Job {number} is {ended['state']}.")


def _job_of(text: str) -> tuple[int, int | None]:
    """Return a job's id, and a component's number if there is one. Raises RequestError."""
    match = _JOB.fullmatch(text)
    if match is None:
        raise RequestError("bad_id", f"{text!r} is neither ID nor ID:COMPONENT.", "Write 7, or 7:0.")
    return int(match[1]), None if match[2] is None else int(match[2])


def _address_of(text: str | None) -> tuple[str, int]:
    """Return the address and port to listen on. Raises RequestError."""
    if text is None:
        return LOOPBACK, 0
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[3]) > _LAST_PORT:
        raise RequestError("bad_option", f"--listen {text!r} is not [ADDRESS:]PORT.", "Write --listen 8080.")
    host = match[1] or match[2] or LOOPBACK
    return LOOPBACK if host == "localhost" else host, int(match[3])
