"""Torque's queues: see `pbs`."""

from koalapy_adapters.examination import pbs

COMMANDS = pbs.COMMANDS

queues = pbs.queues
accounts = pbs.accounts
try_access = pbs.try_access
span = pbs.span
