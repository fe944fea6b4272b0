"""The subcommands of `nodeheal-agent`: each is loaded by the name of its module."""

import pytest

from nodeheal.agent.commands.table import COMMANDS, load


@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_of_a_subcommand_implements_it(name: str) -> None:
    subcommand = load(name)

    assert callable(subcommand.add_arguments)
    assert callable(subcommand.carry_out)
