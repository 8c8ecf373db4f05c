"""What Ctrl-C does to a command that tidies up, or has said its last word while the interpreter is still ending."""

import os
import signal
import subprocess
import sys

import pytest

from koalapy.cli.signals import interruptible_once, uninterrupted

LINGERING = """
import sys, threading, time
from koalapy.cli.main import main
def linger():
    threading.main_thread().join()
    print("ending", flush=True)
    time.sleep(60)
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
    _, errors = koala.communicate(timeout=30)
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
