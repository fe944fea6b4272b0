#!/bin/bash
# ParallelCluster runs it on the head node, as root, when the node is configured and at each update of the cluster:
#   head.sh s3://your-bucket/nodeheal/nodeheal-agent-VERSION.zip
set -euo pipefail
wheelhouse=$1
conf=/etc/parallelcluster/slurm_plugin/parallelcluster_clustermgtd.conf
value_of() { sed -n "s/^$1 = //p" "$conf"; }

# nodeheal's package without its service: what nodeheal asks the controller comes by SSM.
dnf install -y python3.11
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
aws s3 cp "$wheelhouse" "$work/wheels.zip"
python3.11 -m zipfile -e "$work/wheels.zip" "$work"
python3.11 -m venv --clear --without-pip /opt/nodeheal
pip=$(echo "$work"/pip-*.whl) # a zip: no pattern reaches into it
/opt/nodeheal/bin/python "$pip/pip" install --no-index --find-links "$work" --require-hashes -r "$work"/requirements-*.txt

# All nodes see /opt/slurm, and run what lies in this folder before a job, the highest number first.
cat >/opt/slurm/etc/scripts/prolog.d/50_nodeheal <<'END'
#!/bin/sh
agent=/opt/nodeheal/bin/nodeheal-agent
# An agent that cannot even start says nothing about the node.
"$agent" --version >/dev/null 2>&1 || exit 0
"$agent" prolog
# Only 1 means that the node has failed.
[ $? -ne 1 ]
END
chmod 755 /opt/slurm/etc/scripts/prolog.d/50_nodeheal

# One owner a node: clustermgtd neither terminates what nodeheal drains and reboots, nor puts a reason of its own in
# place of nodeheal's while EC2's status check fails. It reads its file again in each round.
for setting in "terminate_drain_nodes = False" "terminate_down_nodes = False" "disable_ec2_health_check = True"; do
    sed -i "/^${setting%% *} /d" "$conf"
    echo "$setting" >>"$conf"
done

aws ec2 create-tags --region "$(value_of region)" --resources "$(value_of instance_id)" \
    --tags "Key=nodeheal:slurm-controller,Value=$(value_of cluster_name)"
