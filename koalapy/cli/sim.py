"""`koala sim`: the command line of the simulated world."""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from koalapy.chaos.plan import EVENTS, TRIES, parse_faults, parse_only
from koalapy.chaos.violation import Promise
from koalapy.cli import output
from koalapy.cli.options import Json
from koalapy.cli.signals import interruptible
from koalapy.cli.sim_logs import batches, imbalance
from koalapy.cli.sim_replay import replay
from koalapy.cli.sim_run import run_experiment
from koalapy.common.extras import need_extra
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError

if TYPE_CHECKING:  # the world is imported on use: other commands start without it
    from koalapy.chaos.run import Proof, Result

app = typer.Typer(
    name="sim",
    help="Run koalapy's own code in a simulated world, with a virtual clock and simulated clusters.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.command("run")(run_experiment)
app.command("replay")(replay)
app.command("imbalance")(imbalance)
app.command("batches")(batches)

Seed = Annotated[int, typer.Option("--seed", help="The first seed; everything in a run follows from its seed.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="How many seeds, one after the other.")]
Events = Annotated[int, typer.Option("--events", min=1, help="Events of each run before all faults end.")]
Only = Annotated[
    str | None, typer.Option("--only", metavar="NUMBERS", help="Only these actions of the seed: 3,17,40-42.")
]
Faults = Annotated[
    str | None,
    typer.Option("--faults", metavar="NAMES", help="Only these faults: node_lost,kcm_killed; see `koala sim list`."),
]
Sites = Annotated[
    int, typer.Option("--sites", min=1, max=5, help="So many linked sites, each with a koalad and a grid of its own.")
]
Tries = Annotated[int, typer.Option("--tries", min=0, help="Runs made to find a shorter list of actions.")]


@app.command("list", short_help="List experiments, and the faults and promises of chaos.")
def list_all(as_json: Json = False) -> None:
    """List all experiments, and the actions, faults and promises of chaos."""
    from koalapy.chaos import site_actions
    from koalapy.chaos.fault_schedule import BYZANTINE, FAULTS, USER_ACTIONS

    faults = [*FAULTS, *BYZANTINE, *site_actions.LINKS]
    experiments = _experiments()
    if as_json:
        chaos = {
            "user_actions": list(USER_ACTIONS),
            "faults": faults,
            "promises": [str(each) for each in Promise],
        }
        described = [{"name": name, "about": about} for name, about in experiments]
        return output.print_json({"schema": "koala.sim/1", "experiments": described, "chaos": chaos})
    output.table(["experiment", "about"], experiments)
    rows = [("promise", str(each)) for each in Promise]
    rows += [("user action", each.replace("_", " ")) for each in USER_ACTIONS]
    rows += [("fault", each.replace("_", " ")) for each in faults]
    output.table(["chaos", "what"], rows)
    return None


def _experiments() -> list[tuple[str, str]]:
    """Return the name and a description of each experiment. Without their extra, print a message and return none."""
    try:
        need_extra("experiments", "An experiment")
    except RequestError as error:
        output.print_message(f"No experiments are listed. {error.reason}")
        return []
    from koalapy.experiments import catalogue

    with output.errors_reported():
        return [(each.name, each.about) for each in catalogue.experiments()]


@app.command("chaos", short_help="Run a grid with random faults, and check every promise.")
def chaos(
    seed: Seed = 1,
    events: Events = EVENTS,
    seeds: Seeds = 1,
    only: Only = None,
    faults: Faults = None,
    sites: Sites = 1,
    tries: Tries = TRIES,
    as_json: Json = False,
) -> None:
    """Run a simulated grid with faults drawn from a seed, and check every promise after every event.

    The exit status is 1 if a promise was broken.
    """
    alone = _faults(faults, sites)
    chosen = _chosen(only, seed, events, seeds, alone, sites)
    begun = time.monotonic()
    tally = _Tally()
    proof = None
    try:
        with interruptible(), tally.shown():
            proof = _search(range(seed, seed + seeds), events, chosen, alone, tries, tally, sites)
    except KeyboardInterrupt:
        if tally.broken:
            output.print_message(f"koala: interrupted in the search for a shorter list of actions. {tally.broken}")
        else:
            output.print_message(
                f"koala: interrupted after {tally.done} of {counted_as(seeds, 'seed')}; no promise was broken."
            )
            output.print_message(f"`--seed {seed + tally.done}` goes on from there.")
        raise typer.Exit(130) from None
    if as_json:
        output.print_json(_document(seed, seeds, events, alone, tally, time.monotonic() - begun, proof, sites))
    elif proof is not None:
        _print_proof(proof)
    else:
        print(f"{tally.summary}, no violation; {tally.happened / (time.monotonic() - begun):,.0f} events/s.")
    if proof is not None:
        raise typer.Exit(1)


def _faults(names: str | None, sites: int) -> tuple[str, ...]:
    from koalapy.chaos import site_actions
    from koalapy.chaos.fault_schedule import BYZANTINE, FAULTS

    if names is None:
        return ()
    try:
        return parse_faults(names, [*FAULTS, *BYZANTINE] if sites == 1 else [*site_actions.FAULTS])
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--faults") from error


def _chosen(
    only: str | None, seed: int, events: int, seeds: int, faults: tuple[str, ...], sites: int
) -> list[int] | None:
    from koalapy.chaos.run import actions_of

    if only is None:
        return None
    if seeds > 1:
        raise typer.BadParameter("The actions are those of one seed; leave out --seeds.", param_hint="--only")
    try:
        return parse_only(only, len(actions_of(seed, events, faults, sites)))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="--only") from error


class _Tally:
    """Sums over the seeds so far, shown as a line for each seed, or as one changing line on a terminal."""

    def __init__(self) -> None:
        self.done = self.happened = self.jobs = self.programs = self.parameters = 0
        self.digest = ""  # of the last run
        self.broken = ""  # the promise that the last run broke
        self._console = output.errors
        self._status: Any = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with self._console.status("…") as self._status:
            yield

    def print(self, text: str) -> None:
        """Print a line above the progress."""
        if self._status is not None:
            self._status.update(Text(f"{text} ({self.summary})"))
        else:
            output.print_message(text)

    def add(self, result: "Result") -> None:
        self.happened += result.happened
        self.jobs += result.jobs
        self.programs += result.programs
        self.parameters += result.parameters
        self.digest = result.digest
        self.broken = f"Seed {result.seed} broke a promise: {result.violation}" if result.violation else ""
        self.done += result.violation is None
        words = "broke a promise" if result.violation else "ok"
        self.print(
            f"seed {result.seed}: {_counted(result.happened, 'event')}, {_counted(result.actions, 'action')}, "
            f"{_counted(result.jobs, 'job')}, {_counted(result.programs, 'program')}, "
            f"{_counted(result.parameters, 'parameter')}, {words}, {result.digest}"
        )

    @property
    def summary(self) -> str:
        seeds = f"{_counted(self.happened, 'event')} over {_counted(self.done, 'seed')}"
        ran = f"{_counted(self.jobs, 'job')}, {_counted(self.programs, 'program')}"
        return f"{seeds}, {ran}, {_counted(self.parameters, 'parameter')} of sweeps"


def _counted(number: int, noun: str) -> str:
    return counted_as(f"{number:,}", noun)


def _search(
    seeds: range, events: int, only: list[int] | None, faults: tuple[str, ...], tries: int, tally: _Tally, sites: int
) -> "Proof | None":
    """Find the first violation, with the shortest list of actions that shows it. None if no promise is broken."""
    from koalapy.chaos.run import actions_of, prove, run

    for seed in seeds:
        result = run(seed, events, only, faults=faults, sites=sites)
        tally.add(result)
        if result.violation is not None:
            tally.print(f"seed {seed}: {result.violation}")
            numbers = only if only is not None else list(range(len(actions_of(seed, events, faults, sites))))
            return prove(result, numbers, tries, lambda left: tally.print(f"it takes at most {left} actions"))
    return None


def _print_proof(proof: "Proof") -> None:
    violation = proof.result.violation
    assert violation is not None
    print(f"Broken: {violation.promise}.")
    output.print_line(f"{violation.details} (seed {proof.result.seed}, event {proof.result.happened:,}).")
    print(f"It takes {counted_as(len(proof.only), 'action')}:")
    for number, action in zip(proof.only, proof.actions, strict=True):
        print(f"  {number:>4}  after event {action.at:,}: {action.kind.replace('_', ' ')} (seed {action.seed})")
    print(f"See it again: {proof.command}")
    if violation.__cause__ is not None:
        output.print_line("".join(traceback.format_exception(violation.__cause__)).rstrip("\n"))


def _document(
    seed: int,
    seeds: int,
    events: int,
    faults: tuple[str, ...],
    tally: _Tally,
    seconds: float,
    proof: "Proof | None",
    sites: int,
) -> dict[str, Any]:
    return {
        "schema": "koala.chaos/1",
        "seed": seed,
        "seeds": seeds,
        "events_per_seed": events,
        "sites": sites,
        "faults": list(faults),
        "events": tally.happened,
        "jobs": tally.jobs,
        "programs": tally.programs,
        "parameters": tally.parameters,
        "digest": tally.digest,
        "events_per_second": round(tally.happened / seconds),
        "violation": _violation(proof) if proof is not None else None,
    }


def _violation(proof: "Proof") -> dict[str, Any]:
    violation = proof.result.violation
    assert violation is not None
    return {
        "seed": proof.result.seed,
        "promise": str(violation.promise),
        "details": violation.details,
        "event": proof.result.happened,
        "actions": [
            {"number": number, "after_event": action.at, "kind": action.kind, "seed": action.seed}
            for number, action in zip(proof.only, proof.actions, strict=True)
        ],
        "command": proof.command,
    }
