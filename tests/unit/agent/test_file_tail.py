"""A log file is read once, whatever happens to it."""

import os
import shutil
from pathlib import Path

import pytest

from nodeheal.agent.checks.file_tail import LINE_BYTES, RETIRED_SECONDS, FileTail
from tests.support.agent_fakes import BANNER, kernel_line


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "messages"
    path.write_text("from before\n")
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def read(tail: FileTail, now: float = 0.0) -> list[str]:
    return [line.content.decode() for line in tail.read(now)]


def restarted(tail: FileTail, path: Path, boot_id: str = "boot-1") -> FileTail:
    cursor = tail.cursor()
    tail.close()
    return FileTail(path, boot_id, cursor)


def history(tail: FileTail) -> list[tuple[str, bool]]:
    return [(line.content.decode(), line.is_history) for line in tail.read(0.0)]


def test_the_first_start_ever_begins_at_the_end(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "new\n")

    assert read(tail) == ["new"]
    assert read(tail) == []


def test_a_log_that_does_not_exist_yet_is_read_from_its_beginning(tmp_path: Path) -> None:
    tail = FileTail(tmp_path / "messages", "boot-1", None)
    assert read(tail) == []

    append(tmp_path / "messages", "first\n")

    assert read(tail) == ["first"]


def test_half_a_line_waits_for_its_other_half(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "NVRM: ")
    assert read(tail) == []

    append(log, "Xid\n")

    assert read(tail) == ["NVRM: Xid"]


def test_a_restart_goes_on_where_the_last_run_ended(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "one\nhal")
    assert read(tail) == ["one"]

    append(log, "f\ntwo\n")
    tail = restarted(tail, log)

    assert history(tail) == [("half", False), ("two", False)]


def test_while_a_renamed_file_may_still_be_written_there_may_always_be_news(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    renamed = log.rename(log.with_name("messages.1"))
    log.touch()
    assert tail.has_news()
    read(tail)
    assert tail.has_news()
    append(renamed, "late\n")

    assert (tail.has_news(), read(tail)) == (True, ["late"])
    read(tail, now=RETIRED_SECONDS + 1)
    tail.has_news()
    assert not tail.has_news()


def test_rotation_loses_nothing_on_either_side(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "before\n")
    log.rename(log.with_name("messages.1"))
    append(log, "after\n")

    assert read(tail) == ["before", "after"]


def test_what_a_daemon_still_writes_to_the_renamed_file_is_read(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    rotated = log.with_name("messages.1")
    log.rename(rotated)
    append(log, "new file\n")
    assert read(tail) == ["new file"]

    append(rotated, "late\nunfinished")

    assert read(tail, RETIRED_SECONDS) == ["late"]
    assert read(tail, RETIRED_SECONDS + 1) == ["unfinished"]
    append(rotated, " much too late\n")
    assert read(tail, RETIRED_SECONDS + 2) == []


def test_rotation_while_the_agent_is_down_loses_nothing(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "seen\n")
    assert read(tail) == ["seen"]
    append(log, "unseen\n")
    log.rename(log.with_name("messages.1"))
    append(log, "after\n")

    tail = restarted(tail, log)

    assert history(tail) == [("unseen", False), ("after", False)]


def rotated(log: Path, name: str, at: int) -> None:
    """Last written at so many seconds, then renamed."""
    os.utime(log, (at, at))
    log.rename(log.with_name(name))


@pytest.mark.parametrize("names", [("{}.3", "{}.2", "{}.1"), ("{}-20261121", "{}-20261122", "{}-20261123-1795409669")])
def test_many_rotations_while_the_agent_is_down_lose_nothing(log: Path, names: tuple[str, ...]) -> None:
    rotated(log, "messages.9", at=50)  # read long ago
    log.write_text("")
    tail = FileTail(log, "boot-1", None)
    append(log, "read\n")
    assert read(tail) == ["read"]
    for number, name in enumerate(names):
        append(log, f"{number}\n")
        rotated(log, name.format("messages"), at=100 + number)
    append(log, "now\n")
    for other in ("messages.copy", "messages.1.gz", "messages.1~"):
        (log.parent / other).write_text("of somebody\n")
    (log.parent / "messages.7").mkdir()

    again = restarted(tail, log)

    assert read(again) == ["0", "1", "2", "now"]
    append(log, "later\n")
    assert read(again) == ["later"]


def test_many_rotations_while_the_agent_stands_still_lose_nothing(log: Path) -> None:
    rotated(log, "messages.9", at=50)
    log.write_text("")
    tail = FileTail(log, "boot-1", None)
    append(log, "read\n")
    assert read(tail) == ["read"]
    for number in range(3):
        append(log, f"{number}\n")
        rotated(log, f"messages.{3 - number}", at=100 + number)
    append(log, "now\n")

    assert read(tail) == ["0", "1", "2", "now"]

    assert read(tail, 1.0) == []
    assert read(tail, RETIRED_SECONDS + 2) == []


def test_what_was_read_out_does_not_come_again_because_a_daemon_wrote_to_it_last(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "old\n")
    log.rename(log.with_name("messages.1"))
    log.touch()
    assert read(tail) == ["old"]
    append(log.with_name("messages.1"), "late\n")
    assert read(tail) == ["late"]
    assert read(tail, RETIRED_SECONDS + 2) == []
    os.utime(log, (100, 100))  # nothing was said since it was begun

    log.with_name("messages.1").rename(log.with_name("messages.2"))
    log.rename(log.with_name("messages.1"))
    append(log, "new\n")

    assert read(tail, RETIRED_SECONDS + 3) == ["new"]


@pytest.mark.parametrize("after", ["after\n", "after, and more than there was before it was truncated\n"])
def test_a_log_that_was_copied_and_truncated_while_the_agent_was_down_loses_nothing(log: Path, after: str) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "seen\n")
    assert read(tail) == ["seen"]
    cursor = tail.cursor()
    tail.close()
    append(log, "unseen\n")
    shutil.copy(log, log.with_name("messages.1"))
    (log.parent / "messages.2").write_text("of another day, and longer than what was read\n" * 9)
    os.utime(log.parent / "messages.2", (100, 100))
    os.truncate(log, 0)
    append(log, after)

    again = FileTail(log, "boot-1", cursor)

    assert read(again) == ["unseen", after.strip()]
    assert read(restarted(again, log)) == []


def test_where_the_log_was_not_rotated_no_other_file_is_read(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "read\n")
    assert read(tail) == ["read"]
    (log.parent / "messages.1").write_text("of somebody\n")

    assert read(restarted(tail, log)) == []


def test_a_truncated_file_is_read_from_its_beginning(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "a long line before\n")
    assert read(tail) == ["a long line before"]

    log.write_text("short\n")

    assert read(tail) == ["short"]


def test_another_file_with_the_same_inode_number_is_not_mistaken_for_the_old_one(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "seen\n")
    assert read(tail) == ["seen"]

    cursor = tail.cursor()
    tail.close()
    log.write_text("rewritten in place while the agent was down\n")  # the same inode, and longer than the cursor
    again = FileTail(log, "boot-1", cursor)

    assert history(again) == [("rewritten in place while the agent was down", False)]


def test_a_line_without_an_end_is_skipped_together_with_its_tail(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "x" * (3 * LINE_BYTES))
    assert read(tail) == []

    append(log, "forged\nhonest\n")

    assert read(tail) == ["honest"]


def test_a_large_backlog_is_read_completely(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    lines = [f"line {number} {'x' * 100}" for number in range(5_000)]
    append(log, "\n".join(lines) + "\n")

    assert read(tail) == lines


def test_after_a_reboot_what_stands_before_the_banner_is_history(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    banner = kernel_line(BANNER)
    append(log, f"last words\n{banner}first words\n")

    tail = restarted(tail, log, "boot-2")

    assert history(tail) == [("last words", True), (banner.rstrip(), False), ("first words", False)]
    assert tail.history_boot_id == "boot-1"


def test_after_a_reboot_into_a_fresh_file_the_rest_of_the_old_one_is_history(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "last words\n")
    log.rename(log.with_name("messages.1"))
    banner = kernel_line(BANNER)
    append(log, f"{banner}first words\n")

    tail = restarted(tail, log, "boot-2")

    assert history(tail) == [("last words", True), (banner.rstrip(), False), ("first words", False)]


def test_without_a_banner_everything_that_is_there_at_the_start_is_history(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "last words\n")
    tail = restarted(tail, log, "boot-2")

    append(log, "first words\n")

    assert history(tail) == [("last words", True), ("first words", False)]


def test_after_two_reboots_only_what_follows_the_last_banner_is_of_this_boot(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, f"one\n{kernel_line(BANNER)}two\n{kernel_line(BANNER)}three\n")

    tail = restarted(tail, log, "boot-3")

    flags = [(text, flag) for text, flag in history(tail) if "Linux" not in text]
    assert flags == [("one", True), ("two", True), ("three", False)]


def test_the_cursor_names_the_old_boot_until_its_lines_are_read(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    append(log, "last words\n")
    tail = restarted(tail, log, "boot-2")
    assert tail.cursor()["boot_id"] == "boot-1"

    read(tail)

    assert tail.cursor()["boot_id"] == "boot-2"


def test_an_idle_file_has_no_news(log: Path) -> None:
    tail = FileTail(log, "boot-1", None)
    assert tail.has_news()
    read(tail)
    assert not tail.has_news()

    append(log, "x")

    assert tail.has_news()


def test_no_descriptor_is_left_open(log: Path) -> None:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    tail = FileTail(log, "boot-1", None)
    for number in range(5):
        log.rename(log.with_name(f"messages.{number}"))
        log.touch()
        read(tail, number * (RETIRED_SECONDS + 1))
    tail = restarted(tail, log)
    tail.close()

    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
