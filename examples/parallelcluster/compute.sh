#!/bin/bash
# ParallelCluster runs it on a compute node, as root, before slurmd starts. State Manager installs the agent, because of
# the tag nodeheal:agent-pool. This waits for it, so that the first job already meets the prolog. It never fails:
# ParallelCluster would replace the node.
for _ in $(seq 60); do
    if systemctl is-active --quiet nodeheal-agent; then
        exit 0
    fi
    sleep 5
done
echo "nodeheal's agent is not active after 300 s, and the node starts without it: look at State Manager's association"
