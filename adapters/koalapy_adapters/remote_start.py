"""The command that mpirun takes for ssh: `remote-start HOST WORD...` runs the words on another node of the component.

The node agents start the command: this node's asks that of the other node, through the wrapper. As with ssh, the user's
shell there reads the words, joined by blanks; the exit status is the command's, or 255 if it could not be started.
"""

import sys
from typing import List

from koalapy_adapters.rendezvous import Misuse, ask, socket_path

NOT_STARTED = 255


def main(argv: List[str]) -> int:
    """Run a command on another node, and wait for its end. `argv`: the arguments after the word remote-start."""
    words = list(argv)
    while words and words[0].startswith("-"):
        del words[0]  # an option of ssh or rsh without a value, such as -x
    if len(words) < 2:
        return _fail("Name a node of this component and a command.")
    try:
        answer = ask(socket_path(), {"start": words[0], "command": " ".join(words[1:])})
    except Misuse as error:
        return _fail(str(error))
    except OSError as error:
        return _fail("The node agent does not answer (%s). The component is probably being ended." % error)
    if "error" in answer:
        return _fail(answer["error"])
    sys.stderr.write(answer["words"])
    return int(answer["exit_status"])


def _fail(message: str) -> int:
    sys.stderr.write("koala remote-start: %s\n" % message)
    return NOT_STARTED
