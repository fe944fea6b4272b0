"""`nodeheal console`: its address, and how a browser is opened at it without a word to others on the machine."""

import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from nodeheal.cli.console import opened

ADDRESS = "http://0a1b2c.localhost:8473/enter?key=secret"


def test_a_browser_is_opened_by_a_file_that_only_its_owner_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lines.append)

    with opened(ADDRESS):
        [line] = lines
        page = Path(unquote(urlsplit(line).path))
        assert "secret" not in line
        assert ADDRESS in page.read_text("utf-8")
        assert page.parent.stat().st_mode & 0o077 == 0

    assert not page.exists()
