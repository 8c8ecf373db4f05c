"""Torque's failure messages, and whose move each is: the PBS family's, and Slurm's where it imitates Torque."""

from typing import Tuple

from koalapy_adapters.batch import pbs_errors, slurm_errors
from koalapy_adapters.batch.classify import Verdict
from koalapy_adapters.errors import RequestError

# Slurm's qsub prints the usage over an option of ours that a later one dropped, too; sbatch's words come first.
REFUSALS: Tuple[Verdict, ...] = (
    Verdict(
        r"(?m)^unknown option|sbatch: (unrecognized|invalid|ambiguous) option|option '.*' (requires|doesn't allow) an",
        RequestError,
        "bad_native",
        "The command does not know one of its options.",
        "Correct `native` in the job or grid file: one option of qsub in each line, such as `-l matlab=1`.",
    ),
    *(each._replace(words=r"(?s)sbatch: error.*(?:%s)" % each.words) for each in slurm_errors.REFUSALS),
    *pbs_errors.REFUSALS,
)
