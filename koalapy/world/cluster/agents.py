"""The agents of a simulated wrapper, one on each node of its job, and the lines from it to them."""

from collections.abc import Callable

from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.behaviour import ProgramPlan
from koalapy.world.cluster.agent import SimAgent
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.processes import Process

LINE = MILLISECOND  # from wrapper to agent, and back


class SimAgents:
    """The agents of a `wrapper` on the node `own`. No command reaches an agent across a network cut."""

    def __init__(self, wrapper: Process, own: SimNode) -> None:
        self._wrapper, self._own = wrapper, own
        self._agents: dict[str, SimAgent] = {}
        self._suspended = False

    @property
    def running(self) -> bool:
        """Return whether something of the program is left anywhere."""
        return any(agent.running for agent in self._agents.values())

    def add(self, agent: SimAgent) -> None:
        self._agents[agent.node.name] = agent

    def prepare(self, tag: str, plan: ProgramPlan, grace: Duration, silence: Duration) -> None:
        """`silence`: of the wrapper, after which an agent on another node ends its program."""
        for agent in self._agents.values():
            agent.prepare(tag, plan, grace, None if agent.node is self._own else silence)

    def ping(self) -> None:
        """Send a sign of life to the agents of other nodes."""
        for agent in self._agents.values():
            if agent.node is not self._own:
                self._send(agent, agent.reset_silence)

    def release(self, clusters: int) -> None:
        """Start the program on every node, in a job that uses this many clusters."""
        for agent in self._agents.values():
            self._send(agent, lambda agent=agent: agent.release(clusters))  # type: ignore[misc]

    def stop(self, grace: Duration) -> None:
        for agent in self._agents.values():
            self._send(agent, lambda agent=agent: agent.stop(grace))  # type: ignore[misc]

    def suspend(self, suspended: bool) -> None:
        """Stop the program on every node, or let it go on. An agent that is cut off obeys once it can be reached."""
        self._suspended = suspended
        for agent in self._agents.values():
            self._pass_suspension(agent)

    def _pass_suspension(self, agent: SimAgent) -> None:
        if self._reaches(agent):
            self._wrapper.after(LINE, lambda: agent.suspend(self._suspended))
        elif agent.running:
            self._wrapper.after(SECOND, lambda: self._pass_suspension(agent))

    def abandon(self, lost: Callable[[str, bool], None]) -> None:
        """Kill the agent on the wrapper's node, and the launchers of the others, which see the end of file.

        Each node is reported as lost, and whether it is sure that nothing of the program lives there.
        """
        for agent in self._agents.values():
            own = agent.node is self._own
            self._send(agent, agent.kill if own else agent.lose_wrapper)
            lost(agent.node.name, own)

    def kill_on(self, node: SimNode) -> None:
        agent = self._agents.get(node.name)
        if agent is not None:
            agent.kill()

    def lose_wrapper(self) -> None:
        """React to the wrapper's death: each agent that can be reached notices it a moment later."""
        for agent in self._agents.values():
            if self._reaches(agent):
                self._wrapper.agenda.after(LINE, agent.lose_wrapper)

    def pass_to(self, node: str, call: Callable[[], None]) -> bool:
        """Make a call on the line of an agent, in either direction, if it can be reached. Returns whether it lives."""
        agent = self._agents.get(node)
        if agent is None or not agent.alive:
            return False
        self._send(agent, call)
        return True

    def _send(self, agent: SimAgent, call: Callable[[], None]) -> None:
        if self._reaches(agent):
            self._wrapper.after(LINE, call)

    def _reaches(self, agent: SimAgent) -> bool:
        return agent.node is self._own or (agent.node.reachable and self._own.reachable)
