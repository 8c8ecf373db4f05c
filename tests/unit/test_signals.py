"""What Ctrl-C does to a command that has said its last word, while the interpreter is still ending."""

import signal
import subprocess
import sys

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


def test_an_interrupt_after_the_last_word_is_no_traceback() -> None:
    koala = subprocess.Popen(
        [sys.executable, "-c", LINGERING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert koala.stdout is not None
    assert [koala.stdout.readline().split()[0], koala.stdout.readline()] == ["koala", "ending\n"]
    koala.send_signal(signal.SIGINT)
    _, errors = koala.communicate(timeout=30)
    assert (koala.returncode, errors) == (-signal.SIGINT, "")
