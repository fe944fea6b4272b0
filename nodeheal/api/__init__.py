"""What every screen and every program asks of nodeheal: views of the fleet, and the queries that make them.

It knows no terminal, no page and no AWS SDK. A screen prints a view; `--json` is the view itself.
"""
