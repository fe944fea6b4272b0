#!/bin/bash
# SageMaker HyperPod with Slurm, where LifeCycleConfig names OnInitComplete and no OnCreate: HyperPod's image has set up
# Slurm before this runs. Put it beside on_create_nodeheal.sh and the archive of `make wheelhouse`.
cd "$(dirname "$0")" || exit 0
cluster=$(scontrol show config | sed -n 's/^ClusterName *= *//p')
if systemctl is-active -q slurmctld; then
    bash on_create_nodeheal.sh controller "$cluster"
    scontrol reconfigure || echo 'nodeheal: Slurm has not read its new settings: scontrol reconfigure' >&2
elif systemctl is-active -q slurmd; then
    bash on_create_nodeheal.sh compute "$cluster"
fi
exit 0
