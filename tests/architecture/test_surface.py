"""The public surface is as it was recorded: a change of it is meant, and shows in the record's diff."""

from tests.surface import RECORD, surface


def test_the_public_surface_is_as_recorded() -> None:
    recorded, now = set(RECORD.read_text("utf-8").splitlines()), set(surface())

    # After a change that is meant: `python -m tests.surface`, and a line in the changelog.
    assert (sorted(recorded - now), sorted(now - recorded)) == ([], [])
