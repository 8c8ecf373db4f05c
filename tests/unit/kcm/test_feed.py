"""Parameters of a sweep on their way through a KCM: each has one holder, none is lost, and none is done twice."""

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep_world import SECOND, Node, World


def _of_node(move: Callable[[World, Node, int], object]) -> Callable[[World, int], None]:
    """Make a move of the world from a move of one of its Launchers, if there is any."""

    def act(world: World, which: int) -> None:
        if world.nodes:
            nodes = list(world.nodes.values())
            move(world, nodes[which % len(nodes)], which // len(nodes))

    return act


def _koalad_receives(world: World, which: int) -> None:
    for _ in range(min(1 + which % 4, len(world.to_koalad))):
        world.koalad_receives()


def _kcm_receives(world: World, which: int) -> None:
    for _ in range(min(1 + which % 4, len(world.to_kcm))):
        world.kcm_receives()


def _act(world: World, which: int) -> None:
    if world.actions:
        world.act(which)


def _submit(world: World, which: int) -> None:
    if len(world.nodes) < 5:
        world.submit()


def _leave(world: World, node: Node, which: int) -> None:
    if node.alive:
        node.leave()


def _die(world: World, node: Node, which: int) -> None:
    if node.alive:
        node.die(with_wrapper=bool(which % 2))
        world.cut(node)


def _lose_directory(world: World, which: int) -> None:
    world.unreachable = not world.unreachable


def _pull(world: World, node: Node, which: int) -> None:
    if node.connected and node.alive:
        node.pull()


def _give_back(world: World, node: Node, which: int) -> None:
    if node.alive and node.connected:
        node.give_back()


MOVES: dict[str, tuple[Callable[[World, int], object], int]] = {
    "koalad receives": (_koalad_receives, 6),
    "the KCM receives": (_kcm_receives, 6),
    "the KCM acts": (_act, 8),
    "koalad feeds": (lambda world, which: world.feed(), 4),
    "koalad feeds anew": (lambda world, which: world.feed_anew(world.wanted), 1),
    "koalad submits": (_submit, 2),
    "koalad recalls": (lambda world, which: world.recall(which % 5), 1),
    "koalad connects anew": (lambda world, which: world.connect(), 1),
    "time passes": (lambda world, which: world.pass_time(1 + which * SECOND // 50), 4),
    "much time passes": (lambda world, which: world.pass_time(6 * SECOND), 1),
    "a Launcher starts": (_of_node(lambda world, node, which: node.start()), 2),
    "a Launcher connects": (_of_node(lambda world, node, which: world.node_connects(node)), 4),
    "a Launcher sends": (_of_node(lambda world, node, which: world.node_sends(node)), 8),
    "a Launcher receives": (_of_node(lambda world, node, which: world.node_receives(node)), 6),
    "a parameter ends": (_of_node(lambda world, node, which: world.finish(node, which)), 8),
    "a Launcher pulls": (_of_node(_pull), 3),
    "a Launcher gives back": (_of_node(_give_back), 1),
    "a connection is cut": (_of_node(lambda world, node, which: world.cut(node)), 1),
    "a Launcher is stopped": (_of_node(_leave), 1),
    "a Launcher is killed": (_of_node(_die), 1),
    "a journal is lost": (_of_node(lambda world, node, which: world.lose_journal(node)), 1),
    "the shared directory fails or works again": (_lose_directory, 1),
}
NAMES = [name for name, (_, weight) in MOVES.items() for _ in range(weight)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.integers(1, 40),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 99)), min_size=20, max_size=250),
)
def test_every_parameter_has_one_holder_and_is_done_in_the_end(
    count: int, warm: bool, moves: list[tuple[str, int]]
) -> None:
    world = World(count)
    if warm:
        world.warm_up()
    for name, which in moves:
        MOVES[name][0](world, which)
        world.check()
    world.settle()
