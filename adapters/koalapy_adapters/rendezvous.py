"""The command KOALA_RENDEZVOUS: `put KEY VALUE`, `get KEY`, `barrier NAME COUNT`, sent to this node's agent.

There is one key space per attempt of the job, across its components. The first value of a key stays. `get` waits until
there is a value and prints it. `barrier` waits until COUNT have arrived, and can be used again. Exit status: 0 done, 1
the agent is gone or refused, 2 wrong usage.
"""

import json
import os
import socket
import sys
from typing import Any, Dict, List

USAGE = """usage: $KOALA_RENDEZVOUS put KEY VALUE
       $KOALA_RENDEZVOUS get KEY
       $KOALA_RENDEZVOUS barrier NAME COUNT"""
MAX_KEY, MAX_VALUE, MAX_COUNT = 1 << 10, 1 << 16, 1000000
_RESERVED = "barrier/"


class Misuse(Exception):
    """Wrong usage; the text states what is wrong."""


def main(argv: List[str]) -> int:
    """Send one request and print its answer.

    `argv`: the arguments after the word rendezvous. Returns the exit status.
    """
    try:
        request = _request([_text(word) for word in argv])
        answer = ask(socket_path(), request)
    except Misuse as error:
        return _fail(2, str(error))
    except OSError as error:
        return _fail(1, "The node agent does not answer (%s). The component is probably being ended." % error)
    if "error" in answer:
        return _fail(1, answer["error"])
    if "value" in answer:
        sys.stdout.buffer.write(answer["value"].encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()
    return 0


def _request(argv: List[str]) -> Dict[str, Any]:
    command, words = (argv[0], argv[1:]) if argv else ("", [])
    if command == "put" and len(words) == 2:
        _check(words[0], "key", MAX_KEY)
        _check(words[1], "value", MAX_VALUE)
        if words[0].startswith(_RESERVED):
            raise Misuse("Keys that begin with %s are the barriers' own. Choose another key." % _RESERVED)
        return {"put": words[0], "value": words[1]}
    if command == "get" and len(words) == 1:
        _check(words[0], "key", MAX_KEY)
        return {"get": words[0]}
    if command == "barrier" and len(words) == 2:
        _check(words[0], "name", MAX_KEY - 64)
        if not (words[1].isdigit() and 0 < int(words[1]) <= MAX_COUNT):
            raise Misuse(
                "The count %r is not a number from 1 to %d. Give the number of processes that must arrive."
                % (words[1], MAX_COUNT)
            )
        return {"barrier": words[0], "count": int(words[1])}
    raise Misuse("This is not understood.\n" + USAGE)


def _text(word: str) -> str:
    """Decode an argument as UTF-8, whatever this node's locale made of it. Raises Misuse if it is not UTF-8."""
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeDecodeError:
        raise Misuse("Keys and values are UTF-8 text, and this is none. Encode it, with base64 for instance.") from None


def _check(text: str, what: str, limit: int) -> None:
    size = len(text.encode("utf-8"))
    if size > limit:
        raise Misuse("The %s is %d bytes long, the limit is %d. Pass large data by a file." % (what, size, limit))
    if not text and what != "value":
        raise Misuse("The %s is empty. Give it a name." % what)


def socket_path() -> str:
    """Return the path of the agent's socket. Raises Misuse if the environment does not name it."""
    path = os.environ.get("KOALA_SOCKET")
    if not path:
        raise Misuse("KOALA_SOCKET is not set. Call this from a component's program, with its environment.")
    return path


def ask(path: str, request: Dict[str, Any]) -> Dict[str, Any]:
    """Send a request and wait for the agent's answer, without a time limit. Raises OSError if the agent goes away."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            part = connection.recv(1 << 16)
            if not part:
                raise ConnectionResetError("it closed the connection")
            data += part
    answer: Dict[str, Any] = json.loads(data.decode())
    return answer


def _fail(status: int, message: str) -> int:
    sys.stderr.write("koala rendezvous: %s\n" % message)
    return status
