"""Modules that are put off: not there until they are used, and then as ever. In processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

BEFORE = "import sys; from nodeheal.agent.runtime.lazy_imports import load_when_used; load_when_used(('textwrap',)); "


def said_by(code: str) -> str:
    environment = {"PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run([sys.executable, "-c", BEFORE + code], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_what_is_only_imported_is_not_loaded() -> None:
    assert said_by("import textwrap, importlib; import textwrap as again; print('dedent' in vars(textwrap))") == "False"


@pytest.mark.parametrize("use", ["import textwrap; f = textwrap.indent", "from textwrap import indent as f"])
def test_what_is_used_is_loaded(use: str) -> None:
    assert said_by(f"{use}; import textwrap; print(f('a', '> '), textwrap.indent is f)") == "> a True"


def test_a_module_that_is_loaded_stays_as_it_is() -> None:
    again = "import json; before = json.loads; load_when_used(('json',)); import json; print(json.loads is before)"

    assert said_by(again) == "True"


def test_what_is_not_there_is_left_to_fail_where_it_is_imported() -> None:
    assert said_by("load_when_used(('nothing_of_the_kind',)); print('nothing_of_the_kind' in sys.modules)") == "False"


def test_an_attribute_that_there_is_not_is_an_error_as_ever() -> None:
    assert said_by("import textwrap; print(hasattr(textwrap, 'no'), hasattr(textwrap, 'indent'))") == "False True"
