"""Turns what the last look of the heartbeats says of the runs on this node into samples for Prometheus."""

from collections.abc import Iterable, Iterator

from nodeheal.agent.transport.gauges import Sample
from nodeheal.contract.training import ENDED, NodeTraining

# The file of a job that was killed stays, and would raise an alarm on the age of its step: it is served for an hour.
FORGOTTEN_SECONDS = 3_600.0
_VALUES = ("step", "step_seconds", "usual_step_seconds", "slowest_compute_seconds", "loss")
_AGES = {"idle_seconds": "step_age_seconds", "saved_seconds": "checkpoint_age_seconds"}


def training_samples(trainings: Iterable[NodeTraining], seconds_ago: float) -> Iterator[Sample]:
    """Yield what is known of each run, with its ages as of now; none of a run that has ended, or without a step for
    an hour.

    `seconds_ago`: when these runs were looked at. A loss that is not a number is NaN.
    """
    for training in trainings:
        if training.pause == ENDED or (training.idle_seconds or 0.0) + seconds_ago >= FORGOTTEN_SECONDS:
            continue
        job, _, run = training.run.partition("/")
        values = {name: getattr(training, name) for name in _VALUES}
        ages = {metric: getattr(training, field) for field, metric in _AGES.items()}
        aged = {metric: age + seconds_ago for metric, age in ages.items() if age is not None}
        for metric, value in {**values, **aged}.items():
            if value is not None:
                yield Sample(f"training_{metric}", value, {"training_job": job, "run": run})
