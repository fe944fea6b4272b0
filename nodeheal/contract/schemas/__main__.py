"""`python -m nodeheal.contract.schemas`: write the schema files."""

from nodeheal.contract.schemas import render

for path, text in render().items():
    path.write_text(text, encoding="utf-8")
