"""Profiles in a file of credentials."""

import os
import pwd

ME = pwd.getpwuid(os.geteuid()).pw_name


def profile(access_key: str, name: str = "default") -> str:
    return f"[{name}]\naws_access_key_id = {access_key}\naws_secret_access_key = 50%off\naws_session_token = t=\n"
