"""The console script `nodeheal`. It names the extra to install where a package is missing."""

import sys

BAD_INPUT = 2
# The module that is imported, and the extra of pyproject.toml that brings its package.
EXTRAS = {
    "boto3": "cli",
    "botocore": "cli",
    "jsonata": "simulate",
    "pydantic": "cli",
    "rich": "cli",
    "typer": "cli",
    "yaml": "cli",
}


def main() -> None:
    """Run the command. Where a package of an extra is missing, say which extra brings it and return exit code 2."""
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
