"""Forks the agent for the wrapper's own node, without the cost of a new interpreter."""

import os
from typing import NamedTuple


class Forked(NamedTuple):
    """The agent on the wrapper's own node: its pid, and the ends of the pipes to and from it."""

    pid: int
    commands: int
    answers: int


def fork_agent(directory: str) -> Forked:
    """The agent gets this private directory. Returns in the wrapper only."""
    command_read, commands = os.pipe()
    answers, answer_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(command_read)
        os.close(answer_write)
        return Forked(pid, commands, answers)
    status = 70
    try:
        os.close(commands)
        os.close(answers)
        from koalapy_adapters.wrapper.agent import node_agent

        status = node_agent.serve(0, command_read, answer_write, directory)
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)
