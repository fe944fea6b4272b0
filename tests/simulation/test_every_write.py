"""Every place in the services where a port is written to is broken: before, after, hanging, late, unanswered, throttled
and, where its port promises a way to say no, refused. No invariant may break.

Schedules come to most of them. To what is rarer the crash stories come (tests/workflows), which break it likewise. A
place that nobody comes to fails a test here, by its name: write a story that does (rare_stories.py). `make crashes
ARGS="--ways 10"` comes to each in more ways.
"""

import pytest

from nodeheal.contract.vocabulary import SchedulerKind
from tests.simulation.everywhere import Broken, break_everywhere
from tests.support.places import places
from tests.workflows.told_places import places_of_stories

SCHEDULES = [
    *((number, SchedulerKind.ECS) for number in range(100)),
    *((number, SchedulerKind.SLURM) for number in range(40)),
    *((number, SchedulerKind.KUBERNETES) for number in range(20)),
]

# No schedule has channels beside email: tests/unit/test_channels.py breaks what only they and their digests write.
OF_CHANNELS = {
    ("services/send_digests.py", "notifier.announce"),
    ("services/send_digests.py", "notifier.mark_sent"),
    ("services/notify/deliver_notification.py", "notifier.mark_sent"),
}

# No schedule restores a table: tests/unit/test_reconcile_records.py breaks the command at each of its writes, and
# tests/twins/test_records_epoch.py is about the marks.
OF_RESTORES = {
    ("services/sweep.py", "epoch.renew"),
    ("services/sweep.py", "notifier.announce"),
}

# No schedule signs events. Written again, the record is the same (tests/twins/test_heartbeats.py).
OF_SIGNATURES = {("services/intake/agent_pods.py", "heartbeats.place")}

# A person's one call, which records nothing: there is nothing that could stand half done (tests/unit/test_drill.py).
OF_DRILLS = {("services/operators/inject_fault.py", "commands.send")}

# No schedule has a job that trains badly: tests/unit/test_look_at_training.py breaks a look at each of its writes.
OF_TRAINING = {
    ("services/jobs/look_at_training.py", "job_findings.note"),
    ("services/jobs/look_at_training.py", "notifier.announce"),
}
RECONCILE = "services/operators/reconcile_records.py"

# It is one computation of minutes, and of more where the machine does other work as well.
pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture(scope="module")
def broken(request: pytest.FixtureRequest) -> Broken:
    return break_everywhere(SCHEDULES, int(request.config.getoption("--ways")))


def test_wherever_a_function_breaks_no_invariant_does(broken: Broken) -> None:
    assert broken.wrong == []


def test_every_place_that_is_written_to_is_broken(broken: Broken) -> None:
    missed = set(places()) - set(broken.ways) - places_of_stories()

    elsewhere = OF_CHANNELS | OF_RESTORES | OF_SIGNATURES | OF_DRILLS | OF_TRAINING
    missed = {place for place in missed if place.module != RECONCILE and (place.module, place.call) not in elsewhere}
    assert sorted(map(str, missed)) == []
