"""Runs a command or sendmail for a notification: no shell, a time-out, and its last words for the reason."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from koalapy.model.errors import Reason
from koalapy.model.notification import Mail, Outcome, Program
from koalapy.model.textfile.words import visible_line

_TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h: nothing was done, and a later try may succeed
_GRACE_S = 2.0  # between SIGTERM and SIGKILL
_LAST_WORDS = 400  # bytes of standard error that a reason quotes
_DRAINED_S = 0.5  # for standard error that a process in the background keeps open
_SENDMAIL_PATH = "/usr/sbin:/usr/lib:/usr/local/sbin"


async def run_command(to: Program, document: bytes, variables: Mapping[str, str]) -> tuple[Outcome, Reason | None]:
    """Run a command with the document on its standard input, in the home directory.

    Its environment is koalad's with `variables`. Returns the outcome and, unless it was sent, the reason. A call that
    is cancelled ends the command and its process group.
    """
    path = _found(os.path.expanduser(to.words[0]), os.environ.get("PATH", os.defpath))
    if path is None:
        advice = "Write an absolute path, or a program on koalad's PATH."
        return Outcome.REFUSED, _reason(f"The {to} was not found.", advice)
    return await _run([path, *to.words[1:]], document, dict(os.environ) | dict(variables), str(to))


async def deliver_mail(to: Mail, mail: bytes) -> tuple[Outcome, Reason | None]:
    """Give a mail to sendmail. Returns the outcome and, unless it was sent, the reason. Cancelled as run_command."""
    path = _found("sendmail", f"{os.environ.get('PATH', os.defpath)}:{_SENDMAIL_PATH}")
    if path is None:
        advice = "Install a mail transfer agent there, such as msmtp-mta or postfix, or use a webhook or a command."
        return Outcome.REFUSED, _reason("koalad's host has no sendmail.", advice)
    return await _run([path, "-i", to.address], mail, dict(os.environ), "sendmail")


def _found(program: str, path: str) -> str | None:
    return shutil.which(program, path=path)


async def _run(
    words: Sequence[str], content: bytes, environment: Mapping[str, str], called: str
) -> tuple[Outcome, Reason | None]:
    reader, errors = os.pipe()
    output = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reader, "rb", 0)
    )
    with tempfile.TemporaryFile() as given, contextlib.closing(transport):
        given.write(content)
        given.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=given, stdout=asyncio.subprocess.DEVNULL, stderr=errors, env=environment,
                cwd=Path.home(), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            why = error.strerror or type(error).__name__
            return Outcome.REFUSED, _reason(f"The {called} could not be started: {why}.", "Correct it.")
        finally:
            os.close(errors)
        words_task = asyncio.create_task(_last_words(output))
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        await asyncio.wait({words_task}, timeout=_DRAINED_S)
        last = words_task.result() if words_task.done() else ""
        words_task.cancel()
        return _judge(status, last, called)


async def _last_words(output: asyncio.StreamReader) -> str:
    """Read to the end, and return the first bytes in one visible line."""
    kept = b""
    while piece := await output.read(1 << 16):
        kept = (kept + piece)[:_LAST_WORDS]
    return visible_line(kept.decode(errors="replace").strip())


def _judge(status: int, last: str, called: str) -> tuple[Outcome, Reason | None]:
    if status == 0:
        return Outcome.SENT, None
    quoted = f": {last}" if last else "."
    if status == _TEMPORARY:
        message = f"The {called} ended with exit status 75, a temporary failure{quoted}"
        return Outcome.NOT_TAKEN, _reason(message, "koalad tries again, with longer and longer waits between.")
    if status < 0:
        message = f"The {called} was killed by {signal.Signals(-status).name}{quoted}"
        return Outcome.UNKNOWN, _reason(message, "It is not run again, since it may have done its work.")
    message = f"The {called} ended with exit status {status}{quoted}"
    return Outcome.REFUSED, _reason(message, "It is not run again; exit status 75 asks for another try.")


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process group: SIGTERM, a grace, SIGKILL."""
    for each, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, each)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), wait_s)
            return


def _reason(message: str, advice: str) -> Reason:
    return Reason("notification_failed", "request", message, advice)
