"""Torque's queues: see `pbs`."""

from koalapy_adapters.examination import pbs, slurm

COMMANDS = pbs.COMMANDS

queues = pbs.queues
accounts = pbs.accounts
try_access = pbs.try_access
lowest = slurm.lowest  # Maui and Moab do not show their priorities
span = pbs.span
