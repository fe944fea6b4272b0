"""`python -m tools.chart`: writes the plain manifest of the Helm chart, for those who have no Helm.

The chart's templates use two constructs, a value in quotes and a value as an indented block, which are rendered here as
Helm does; anything else is refused.
"""

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

import yaml

from nodeheal.contract import names

REPOSITORY = Path(__file__).resolve().parent.parent
CHART = REPOSITORY / "charts" / "nodeheal"
MANIFEST = REPOSITORY / "charts" / "nodeheal.yaml"
_CONSTRUCT = re.compile(r"\{\{ \.Values\.(\w+) \| (?:(quote)|indent (\d+)) \}\}")
_NAMESPACE = f"""# Generated from charts/nodeheal by `python -m tools.chart`. Replace each CHANGE-ME.
apiVersion: v1
kind: Namespace
metadata:
  name: {names.KUBERNETES_NAMESPACE}
  labels: {{pod-security.kubernetes.io/enforce: privileged}}
"""


def render(values: Mapping[str, str] | None = None) -> str:
    """Return the whole chart as one YAML text, in its own namespace. Raises ValueError for another construct."""
    given = {**yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), **(values or {})}
    templates = sorted((CHART / "templates").glob("*.yaml"))
    return "---\n".join([_NAMESPACE, *(_rendered(path.read_text("utf-8"), given) for path in templates)])


def _rendered(template: str, values: Mapping[str, str]) -> str:
    text = _CONSTRUCT.sub(lambda construct: _value(construct, values), template)
    if "{{" in text:
        raise ValueError(f"a template of the chart has another construct: {text[text.index('{{') :][:60]}")
    return text


def _value(construct: "re.Match[str]", values: Mapping[str, str]) -> str:
    value = values[construct[1]]
    return json.dumps(value) if construct[2] else textwrap.indent(value, " " * int(construct[3]), lambda _: True)


if __name__ == "__main__":
    MANIFEST.write_text(render(), encoding="utf-8")
