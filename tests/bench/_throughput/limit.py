"""Runs on a node: so many processes that do nothing but start a program and wait for it, again and again.

`limit.py PROCESSES TASKS BEGIN`: each of them runs TASKS from the instant BEGIN on. Prints when the last was done.
"""

import os
import sys
import time

ARGV = ["/bin/true"]


def main() -> None:
    processes, tasks, begin = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    for _ in range(processes):
        if os.fork() == 0:
            loop(tasks, begin)
            os._exit(0)
    for _ in range(processes):
        os.wait()
    print(time.time())


def loop(tasks: int, begin: float) -> None:
    time.sleep(max(0.0, begin - time.time()))
    for _ in range(tasks):
        os.waitpid(os.posix_spawn(ARGV[0], ARGV, os.environ), 0)


if __name__ == "__main__":
    main()
