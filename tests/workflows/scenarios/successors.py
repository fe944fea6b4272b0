"""A machine is to be replaced: it is given up once, and one other comes in its place.

Each is one moment, of bad luck or ill will, and says what is wrong after it, which is nothing.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from nodeheal.contract.vocabulary import Provider
from nodeheal.operations.engine import conclude, machine_gone
from nodeheal.services.recovery.retire_broken import retire_broken
from tests.unit.builders import node, xid
from tests.unit.test_replacement import A, B, N, Pool
from tests.workflows.fake_cluster import BROKEN
from tests.workflows.fuse import Fuse
from tests.workflows.scenarios.once import request_of
from tests.workflows.stories import STORIES


def _is_shown_still(it: Pool) -> None:
    """EC2 describes a machine for a while that it was told to terminate."""
    it.machines.machines[A] = replace(it.kind, machine_id=A)


def _given_back(it: Pool, *names: str) -> list[str]:
    gone = [name for name, _ in it.given_back]
    return [] if gone == list(names) else [f"EC2 was told to take {gone}, and not {list(names)}"]


def another_one_of_the_pool_is_being_replaced() -> list[str]:
    it = Pool(max_nodes=1)
    it.replaces(A)
    it.replaces(B)
    return _given_back(it, A)


def there_is_nothing_to_make_another_from() -> list[str]:
    it = Pool(group="", template="")
    it.replaces()
    return ["something was launched, and nobody knows what"] if it.machines.tokens else []


def its_group_has_terminated_it() -> list[str]:
    """As it was asked to, and it makes another."""
    it = Pool()
    it.replaces()
    machine_gone(A, it.ports)
    return [] if it.answer() is None else ["its successor is not waited for"]


def an_idle_sibling_is_there() -> list[str]:
    """It was made long ago, and serves."""
    it = Pool()
    it.machines.machines[N] = replace(it.kind, machine_id=N, launched_at=it.clock() - timedelta(days=1))
    it.ports.nodes.save(node(N, provider=Provider.ec2))
    it.replaces()
    return [] if it.answer() is None else ["a node that was there before is taken for its successor"]


def an_idle_sibling_boots() -> list[str]:
    it = Pool()
    it.replaces()
    it.machines.machines[N] = replace(it.kind, machine_id=N, launched_at=it.clock() - timedelta(days=1))
    it.boots()
    return [] if it.answer() is None else ["a node that was there before is taken for its successor"]


def its_successor_is_proven() -> list[str]:
    it = STORIES[1].make(Fuse(writes_only=True))
    it.reports(xid(74, **it.fault))
    gone = [name for name, _ in it.plain.machines.given_back]  # type: ignore[attr-defined]
    return [] if gone == [BROKEN] else [f"{gone} were given up, and not {[BROKEN]}"]


def an_idle_sibling_comes_up_after_the_deadline() -> list[str]:
    it = Pool()
    it.clock.advance(60)
    conclude(it.replaces(), it.ports)
    it.machines.machines[N] = replace(it.kind, machine_id=N, launched_at=it.clock() - timedelta(days=1))
    it.boots()
    return ["a human is told of a successor that is none"] if _told(it) else []


def _told(it: Pool) -> list[Any]:
    announced: list[Any] = it.ports.notifier.announced  # type: ignore[attr-defined]
    return announced


def the_broken_one_is_given_up_twice() -> list[str]:
    """The function that has retired it is called again."""
    it = STORIES[1].make(Fuse(writes_only=True))
    it.reports(xid(74, **it.fault))
    kept = retire_broken(BROKEN, request_of(it), it.plain, it.policy)
    return [f"a human is told to give back what is gone: {kept}"] if kept else []
