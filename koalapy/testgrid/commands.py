"""Runs a command in a container without losing any of its output.

Under load the engine may lose either end of a short command's output. Therefore a shell starts the command once the
output is being read, and ends once all output has arrived.
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
    """Return the exit status, and the output including standard error. Raises docker.errors.APIError."""
    end = token_hex(16)
    variables = {**environment, "TESTGRID_ARGV": shlex.join(argv), "TESTGRID_END": end}
    made = api.exec_create(container, ["sh", "-c", _AROUND], stdin=True, user=user, environment=variables)
    with _streams(api, made["Id"]) as plug:
        output, status = _output(plug, end.encode())
    if status is None:
        status = api.exec_inspect(made["Id"])["ExitCode"]
        assert status is not None, "it has ended"
    return status, output


def _output(plug: Any, end: bytes) -> tuple[bytes, int | None]:
    """Return the command's output and exit status. The status is None if the surrounding shell was killed too."""
    output, looked = bytearray(), 0
    plug.sendall(b"\n")
    for _, data in frames_iter(plug, tty=False):  # type: ignore[no-untyped-call]
        output += data
        at = output.find(end, looked)
        if at >= 0 and b"." in output[at + len(end) :]:
            plug.sendall(b"\n")  # lets the surrounding shell end
            return bytes(output[:at]), int(output[at + len(end) :].split(b".")[0])
        looked = max(0, len(output) - len(end)) if at < 0 else at
    return bytes(output), None


@contextmanager
def _streams(api: APIClient, exec_id: str) -> Iterator[Any]:
    holder: Any = api.exec_start(exec_id, socket=True)
    plug = getattr(holder, "_sock", holder)
    plug.settimeout(None)
    try:
        yield plug
    finally:
        holder.close()
        plug.close()  # otherwise it stays open until it is garbage-collected
