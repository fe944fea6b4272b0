"""Lists what waits for a person, previews a drain, and has it done: `python examples/drain_a_node.py NODE "new riser"`.

It needs AWS credentials with the managed policy nodeheal-operator-REGION, as the command does.
"""

import sys

from nodeheal.api.aws import connect
from nodeheal.contract.acts import Drain


def main(node: str, why: str) -> None:
    """Ask before the drain is begun."""
    nodeheal = connect()
    for todo in nodeheal.todo():
        print(f"{todo.kind:<15} {todo.subject}: {todo.why} ({', '.join(todo.acts)})")

    act = Drain(node=node, why=why)
    for fact in nodeheal.preview(act).facts:
        print(f"{fact.label:<8}{fact.text}")
    if input("Drain it? [y/N] ").lower() != "y":
        return
    done = nodeheal.do(act)
    print(done.model_dump_json(indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
