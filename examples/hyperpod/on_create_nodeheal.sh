#!/bin/bash
# SageMaker HyperPod with Slurm: keeps jobs off broken nodes, and leaves the repair to HyperPod. Put this file and the
# archive of `make wheelhouse` into the folder of the lifecycle scripts. In lifecycle_script.py, before start_slurm.sh:
#   ExecuteBashScript("./on_create_nodeheal.sh").run(node_type, "training")   # the cluster's name
# A cluster without lifecycle_script.py calls it by on_init_complete_nodeheal.sh.
set -euo pipefail
work=
# HyperPod takes back a cluster of which one lifecycle script has failed. A node without nodeheal is no reason for that.
finish() {
    code=$?
    rm -rf ${work:+"$work"}
    [ $code -eq 0 ] || echo "nodeheal: not set up on this node (exit code $code); its jobs start without a prolog of nodeheal" >&2
    exit 0
}
trap finish EXIT
kind=$1 cluster=$2
conf=/opt/slurm/etc/slurm.conf

# As the installer does (packaging/ssm/install-agent.json).
find_python() {
    for python in python3.14 python3.13 python3.12 python3.11 python3; do
        if "$python" -I -c 'import sys, sqlite3, ssl, venv, zipfile; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

if [ "$kind" = controller ]; then
    # PrologFlags=Contain, which pam_adopt_cgroup_wheel.sh of HyperPod's examples sets, implies Alloc.
    grep -q '^PrologFlags=' $conf || echo 'PrologFlags=Alloc' >>$conf
    grep -q '^SchedulerParameters=' $conf || echo 'SchedulerParameters=nohold_on_prolog_fail' >>$conf
    sed -i '/nohold_on_prolog_fail/! s/^SchedulerParameters=/&nohold_on_prolog_fail,/' $conf
    printf '%s\n' 'Prolog=/etc/slurm/nodeheal-prolog' 'BatchStartTimeout=200' 'JobRequeue=1' >>$conf
fi

if [ "$kind" = compute ]; then
    # First of all: Slurm drains a node whose prolog is missing.
    install -d /etc/nodeheal /etc/slurm
    cat >/etc/slurm/nodeheal-prolog <<'END'
#!/bin/sh
agent=/opt/nodeheal/bin/nodeheal-agent
# An agent that cannot even start says nothing about the node.
"$agent" --version >/dev/null 2>&1 || exit 0
"$agent" prolog
# Only 1 means that the node has failed.
[ $? -ne 1 ]
END
    chmod 755 /etc/slurm/nodeheal-prolog

    find_python || { apt-get update && apt-get install -y python3.11; } || true
    find_python || { echo 'nodeheal: there is no Python 3.11 or newer here' >&2; exit 1; }
    work=$(mktemp -d)
    "$python" -m zipfile -e nodeheal-agent-*.zip "$work"
    "$python" -m venv --clear --without-pip /opt/nodeheal
    pip=$(echo "$work"/pip-*.whl) # a zip: no pattern reaches into it
    /opt/nodeheal/bin/python "$pip/pip" install --no-index --find-links "$work" --require-hashes -r "$work"/requirements-*.txt

    # The prolog needs no AWS, but the agent's configuration.
    install -d -m 700 /var/lib/nodeheal-orders
    # Whoever owns this folder runs checks of your own: /etc/nodeheal/checks.d. The agent's service, which would make it,
    # is not here.
    id nodeheal >/dev/null 2>&1 ||
        useradd --system --user-group --no-create-home --home-dir /var/lib/nodeheal --shell /usr/sbin/nologin nodeheal
    install -d -m 700 /var/lib/nodeheal
    chown nodeheal:nodeheal /var/lib/nodeheal
    resources=${SAGEMAKER_RESOURCE_CONFIG_PATH:-/opt/ml/config/resource_config.json}
    cat >/etc/nodeheal/agent.toml <<END
node_id = "$(cat /sys/devices/virtual/dmi/id/board_asset_tag)"
cluster = "$cluster"
pool = "$cluster"
provider = "hyperpod"
region = "$(jq -r .ClusterConfig.ClusterArn "$resources" | cut -d: -f4)"
scheduler = "SLURM"
END
fi
