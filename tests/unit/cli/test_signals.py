"""Signals at bad moments: while a command tidies up, when it has printed all, and as koalad begins to wait."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from koalapy.cli.signals import interruptible_once, uninterrupted
from koalapy.koalad.process import on_a_thread

LINGERING = """
import sys, threading, time
from koalapy.cli.main import main
def linger():
    threading.main_thread().join()
    print("ending", flush=True)
    time.sleep(600)
threading.Thread(target=linger).start()
sys.argv = ["koala", "--version"]
main()
"""

BETWEEN = """
import os, signal, sys
from koalapy.cli import main
ending, once = main.ending, [lambda: os.kill(os.getpid(), signal.SIGINT)]
def interrupted():
    while once:
        once.pop()()
    ending()
main.ending = interrupted
sys.argv = ["koala", "--version"]
main.main()
"""


def test_an_interrupt_between_the_last_word_and_the_end_is_no_traceback() -> None:
    koala = subprocess.run([sys.executable, "-c", BETWEEN], capture_output=True, text=True)
    assert (koala.returncode, koala.stderr) == (-signal.SIGINT, "")
    assert koala.stdout.startswith("koala ")


def test_an_interrupt_after_the_last_word_is_no_traceback() -> None:
    koala = subprocess.Popen(
        [sys.executable, "-c", LINGERING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert koala.stdout is not None
    assert [koala.stdout.readline().split()[0], koala.stdout.readline()] == ["koala", "ending\n"]
    koala.send_signal(signal.SIGINT)
    _, errors = koala.communicate(timeout=120)
    assert (koala.returncode, errors) == (-signal.SIGINT, "")


def test_what_is_tidied_up_after_an_interrupt_is_not_cut_short_by_another() -> None:
    tidied: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        work(tidied)
    assert tidied == ["within", "after"]


def work(tidied: list[str]) -> None:
    with uninterrupted():
        try:
            with interruptible_once():
                try:
                    interrupt()
                finally:
                    interrupt()
                    tidied.append("within")
        finally:
            interrupt()
            tidied.append("after")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_event_is_set_by_a_signal_also_while_whoever_waits_for_it_has_its_lock() -> None:
    event = threading.Event()
    before = signal.signal(signal.SIGTERM, on_a_thread(event.set))
    try:
        with event._cond:  # type: ignore[attr-defined]  # as `wait` does for a moment
            signal.raise_signal(signal.SIGTERM)
        assert event.wait(120)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interrupt_while_koala_is_imported_leaves_no_traceback() -> None:
    begin = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['koala', '--version']\n"
        "from koalapy.cli.entry import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--nonsense"], ["jbs"]])
def test_what_needs_no_command_imports_none(arguments: list[str]) -> None:
    begin = (
        "import atexit, sys\n"
        f"sys.argv = ['koala', *{arguments!r}]\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from koalapy.cli.entry import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, timeout=60)
    assert done.returncode == (0 if arguments[0] in ("--help", "--version") else 2)
    assert not {"httpx", "rich.table", "yaml", "koalapy.client", "koalapy.cli.jobs"} & set(done.stderr.split())
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
