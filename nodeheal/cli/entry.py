"""The console script `nodeheal`. It names the extra to install where a package is missing."""

import gc
import sys

from nodeheal.cli.late import import_late

BAD_INPUT = 2
# New objects until Python looks for cycles among them. By its own 700 it looks a hundred times while a command starts,
# and all that is imported is kept.
GARBAGE_AFTER = 50_000
# The module that is imported, and the extra of pyproject.toml that brings its package.
EXTRAS = {
    "boto3": "cli",
    "botocore": "cli",
    "jinja2": "console",
    "jsonata": "simulate",
    "pydantic": "cli",
    "rich": "cli",
    "starlette": "console",
    "typer": "cli",
    "uvicorn": "console",
    "yaml": "cli",
}


def main() -> None:
    """Run the command. Where a package of an extra is missing, say which extra brings it and return exit code 2."""
    gc.set_threshold(GARBAGE_AFTER)
    import_late()
    try:
        from nodeheal.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        extra = "simulate" if "simulate" in sys.argv[1:2] else EXTRAS[module]
        sys.stderr.write(
            f"nodeheal: this command needs the package {module}, which the extra [{extra}] of nodeheal brings."
            f" Install it with pip install '.[{extra}]' in a checkout, or with pip install 'FILE.whl[{extra}]'.\n"
        )
        sys.exit(BAD_INPUT)
