"""Steps of a job: choose and check nodes, start and stop ranks, watch them, find out why a run failed."""
