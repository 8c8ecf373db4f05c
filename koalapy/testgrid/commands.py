"""A command in a container, of whose output nothing is lost.

Under load the engine may lose either end of what a command says that is over in no time. So a shell around it begins
when it is told that somebody reads, and ends when it is told that all was read. The command line travels in the
environment: else `pgrep -f` and `pkill -f` would find the shell.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any

from docker import APIClient
from docker.utils.socket import frames_iter

_AROUND = """
read -r go
eval "set -- $TESTGRID_ARGV"; end=$TESTGRID_END; unset TESTGRID_ARGV TESTGRID_END
"$@" </dev/null 2>&1
status=$?
echo "$end$status."
read -r over
exit $status
"""


def run(
    api: APIClient, container: str, argv: Sequence[str], user: str, environment: Mapping[str, str]
) -> tuple[int, bytes]:
    """Its exit status and all that it wrote, standard error in between. Raises docker.errors.APIError."""
    end = token_hex(16)
    variables = {**environment, "TESTGRID_ARGV": shlex.join(argv), "TESTGRID_END": end}
    made = api.exec_create(container, ["sh", "-c", _AROUND], stdin=True, user=user, environment=variables)
    with _streams(api, made["Id"]) as plug:
        output, status = _said(plug, end.encode())
    if status is None:
        status = api.exec_inspect(made["Id"])["ExitCode"]
        assert status is not None, "it has ended"
    return status, output


def _said(plug: Any, end: bytes) -> tuple[bytes, int | None]:
    """All that the command says, and its exit status; None where it was ended together with what is around it.

    What its children say that outlast it is nobody's.
    """
    said, looked = bytearray(), 0
    plug.sendall(b"\n")
    for _, data in frames_iter(plug, tty=False):  # type: ignore[no-untyped-call]
        said += data
        at = said.find(end, looked)
        if at >= 0 and b"." in said[at + len(end) :]:
            plug.sendall(b"\n")  # what is around the command may end now
            return bytes(said[:at]), int(said[at + len(end) :].split(b".")[0])
        looked = max(0, len(said) - len(end)) if at < 0 else at
    return bytes(said), None


@contextmanager
def _streams(api: APIClient, exec_id: str) -> Iterator[Any]:
    holder: Any = api.exec_start(exec_id, socket=True)
    plug = getattr(holder, "_sock", holder)
    plug.settimeout(None)
    try:
        yield plug
    finally:
        holder.close()
        plug.close()  # else it lives on until it is collected
