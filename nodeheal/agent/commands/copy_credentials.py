"""`nodeheal-agent copy-credentials`: root copies the credentials that the SSM agent rotates, for the agent's user. ADR
20 gives the reasons.

Only the keys of the profile `default` are copied: an administrator may keep other keys in the same file.
"""

import argparse
import logging
import os
import pwd
from pathlib import Path

from nodeheal.agent.runtime.safe_files import replace_file
from nodeheal.agent.transport.profile import BadProfile, read_profile
from nodeheal.agent.transport.sigv4 import Credentials

SOURCE = Path("/root/.aws/credentials")
EXIT_DONE = 0
EXIT_NOT_COPIED = 1
MODE = 0o400

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: the source, the copy and its owner."""
    parser.add_argument("--source", type=Path, default=SOURCE, help=f"default: {SOURCE}")
    parser.add_argument(
        "--to", type=Path, required=True, help="the copy; it contains only the keys of the default profile"
    )
    parser.add_argument("--owner", required=True, help="the only user who may read the copy")


def carry_out(arguments: argparse.Namespace) -> int:
    """Copy the credentials; returns the exit code."""
    return copy_credentials(arguments.source, arguments.to, arguments.owner)


def copy_credentials(source: Path, to: Path, owner: str) -> int:
    """Write the default profile of `source` to `to`, readable by its owner alone; returns the exit code. Without a
    source the copy is removed.
    """
    try:
        user = pwd.getpwnam(owner)
    except KeyError:
        logger.error("no credentials are copied", extra={"why": f"there is no user {owner!r}"})
        return EXIT_NOT_COPIED
    try:
        keys = read_profile(source)
    except FileNotFoundError:
        to.unlink(missing_ok=True)  # expired keys; on EC2 there never were any
        logger.info("there are no credentials to copy; the agent uses the instance metadata", extra={"source": source})
        return EXIT_DONE
    except BadProfile as error:
        logger.error("the credentials cannot be copied; the last copy stays", extra={"why": error})
        return EXIT_NOT_COPIED
    # Atomic, and never readable by anybody else.
    replace_file(to, _profile(keys), MODE, lambda copy: os.fchown(copy, user.pw_uid, user.pw_gid))
    logger.info("credentials copied", extra={"source": source, "to": to, "owner": owner})
    return EXIT_DONE


def _profile(keys: Credentials) -> str:
    lines = ["[default]", f"aws_access_key_id = {keys.access_key}", f"aws_secret_access_key = {keys.secret_key}"]
    if keys.token:
        lines.append(f"aws_session_token = {keys.token}")
    return "\n".join(lines) + "\n"
