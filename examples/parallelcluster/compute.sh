#!/bin/bash
# ParallelCluster runs it on a compute node, as root, before slurmd starts. State Manager installs the agent, because of
# the tag nodeheal:agent-pool. This waits for it, so that the first job already meets the prolog. It never fails:
# ParallelCluster would replace the node.
# SSM's agent asks State Manager when it starts and then every ten minutes (AssociationFrequencyMinutes). A node of which
# State Manager did not know at the first look is installed after the second. Slurm gives a node of ParallelCluster up
# after 2,100 s (ResumeTimeout).
seconds=900
for _ in $(seq $((seconds / 5))); do
    if systemctl is-active --quiet nodeheal-agent; then
        exit 0
    fi
    sleep 5
done
echo "nodeheal's agent is not active after $seconds s; the node starts without it: look at State Manager's association"
