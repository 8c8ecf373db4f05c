"""Run on a compute node by `python3 -c`, before anything else of ours: what the node sees of the shared directory and
of the relay. Nothing that it needs lies in either. Its source is sent as it stands here; an old Python can read it.

Its exit status reports the rest where no file can: OURS + the sum of what is wrong.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# Annotations would keep an old Python from reporting its version.

import errno
import json
import os
import select
import socket
import sys
import time

OLDEST = (3, 6)
TOO_OLD = 80
OURS = 64  # an exit status from here on is ours
NOT_SEEN, OTHER_CONTENT, NOT_WRITABLE, NO_RELAY = 1, 2, 4, 8
APPEARS_S, CONNECTS_S = 10.0, 5.0
ANSWER = "probe.json"  # in the attempt's working directory


def look(directory, nonce, patience):
    """0 if the directory shows the attempt that the head node wrote there; a network file system may be late."""
    deadline = time.time() + patience
    while True:
        wrong = look_once(directory, nonce)
        if not wrong or time.time() > deadline:
            return wrong
        time.sleep(0.2)


def look_once(directory, nonce):
    try:
        with open(os.path.join(directory, "component.json")) as file:
            component = json.load(file)
    except (IOError, OSError, ValueError):
        return NOT_SEEN
    return 0 if component["program"]["arguments"] == [nonce] else OTHER_CONTENT


def connect(addresses, port):
    """(the address that answers, or "", the errors of the others); all are tried at once."""
    errors, trying = {}, {}
    for address in addresses:
        plug = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        plug.setblocking(False)
        number = plug.connect_ex((address, port))
        if number in (0, errno.EINPROGRESS):
            trying[plug] = address
        else:
            errors[address] = os.strerror(number)
    deadline = time.time() + CONNECTS_S
    while trying and time.time() < deadline:
        ready = select.select([], list(trying), [], max(0, deadline - time.time()))[1]
        for plug in ready:
            address = trying.pop(plug)
            number = plug.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            plug.close()
            if not number:
                return address, errors
            errors[address] = os.strerror(number)
    errors.update((address, "no answer") for address in trying.values())
    return "", errors


def answer(directory, document):
    path = os.path.join(directory, "work", ANSWER)
    temporary = "%s.%d" % (path, os.getpid())
    try:
        with open(temporary, "w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
        return 0
    except (IOError, OSError):
        return NOT_WRITABLE


def main(order):
    if sys.version_info[:2] < OLDEST:
        return TOO_OLD
    wrong = look(order["directory"], order["nonce"], APPEARS_S)
    reached, errors = connect(order["addresses"], order["port"]) if order["addresses"] else ("", {})
    if order["addresses"] and not reached:
        wrong |= NO_RELAY
    document = {
        "wrong": wrong,
        "node": os.uname()[1],
        "python": "%d.%d.%d" % sys.version_info[:3],
        "clock": int(time.time() * 1e6),
        "reached": reached,
        "errors": errors,
    }
    if not wrong & (NOT_SEEN | OTHER_CONTENT):
        wrong |= answer(order["directory"], document)
    return OURS + wrong


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
