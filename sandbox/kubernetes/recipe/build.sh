#!/usr/bin/env bash
# Builds Kubernetes' control plane and the controllers of training jobs from their published Go modules into
# FOLDER/bin, with the manifests that these modules bring in FOLDER/manifests. A program that is there is not built again.
set -euo pipefail

kubernetes=v1.36.3
etcd=v3.6.16
training_operator=v1.9.3
jobset=v0.10.1
kueue=v0.17.0

programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl training-operator jobset-controller kueue)
manifests=(kubeflow.org_pytorchjobs.yaml jobset.x-k8s.io_jobsets.yaml jobset-webhooks.yaml kueue kueue-webhooks.yaml)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?usage: build.sh FOLDER [PROGRAM...]}
shift
wanted=("${@:-${programs[@]}}")

# Which programs and manifests a folder of programs lacks.
lacking() {
    local name
    for name in "${programs[@]}"; do
        [[ -e $1/$name || -e $1/$name.xz ]] || echo "$name"
    done
    for name in "${manifests[@]}"; do
        [[ -e $1/../manifests/$name ]] || echo "manifests/$name"
    done
}

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
    absent=$(lacking "$KUBEBUILDER_ASSETS")
    if [[ -z $absent ]]; then
        echo "Kubernetes is complete in $KUBEBUILDER_ASSETS: nothing is built"
        exit
    fi
    echo "KUBEBUILDER_ASSETS lacks ${absent//$'\n'/ }: they are built" >&2
fi

if ! command -v go >/dev/null; then
    echo "Kubernetes is built with Go 1.26 or newer, and there is no go on PATH" >&2
    exit 1
fi
mkdir -p "$folder/bin" "$folder/manifests"
folder=$(cd "$folder" && pwd)
scratch=$folder/part
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath"
rm -rf "$scratch"
mkdir "$scratch"
trap 'rm -rf "$scratch"' EXIT

is_wanted() {
    [[ " ${wanted[*]} " == *" $1 "* && ! -e $folder/bin/.$1-$2 ]]
}

# A program is whole when it is moved. Its version stands beside it: another one is built when that changes.
finish() {
    mv "$scratch/$1" "$folder/bin/$1"
    rm -f "$folder/bin/.$1"-v*
    touch "$folder/bin/.$1-$2"
    echo "$1 $2 is built"
}

# from_lock LOCK PACKAGE PROGRAM VERSION [LDFLAGS]: as go.mod and go.sum of a folder beside this file say. These modules
# replace others by folders of their repository, which are not in the published module.
from_lock() {
    is_wanted "$3" "$4" || return 0
    (cd "$here/$1" && go build -mod=readonly -ldflags "-s -w ${5:-}" -o "$scratch/$3" "$2")
    finish "$3" "$4"
}

# The folder with a module's files.
source_of() {
    go mod download -json "$1@$2" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p'
}

# from_module MODULE PACKAGE PROGRAM VERSION: as the module's own go.mod and go.sum say.
from_module() {
    is_wanted "$3" "$4" || return 0
    local from
    from=$(source_of "$1" "$4")
    (cd "$from" && go build -mod=readonly -ldflags "-s -w" -o "$scratch/$3" "$2")
    finish "$3" "$4"
}

IFS=. read -r major minor _ <<<"${kubernetes#v}"
version=k8s.io/component-base/version
stamp="-X $version.gitVersion=$kubernetes -X $version.gitMajor=$major -X $version.gitMinor=$minor"
from_lock etcd go.etcd.io/etcd/server/v3 etcd "$etcd"
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    from_lock kubernetes "k8s.io/kubernetes/cmd/$name" "$name" "$kubernetes" "$stamp"
done
from_module github.com/kubeflow/training-operator ./cmd/training-operator.v1 training-operator "$training_operator"
from_module sigs.k8s.io/jobset . jobset-controller "$jobset"
from_module sigs.k8s.io/kueue ./cmd/kueue kueue "$kueue"

cd "$folder/manifests"
from=$(source_of github.com/kubeflow/training-operator "$training_operator")
install -m 644 "$from/manifests/base/crds/kubeflow.org_pytorchjobs.yaml" .
from=$(source_of sigs.k8s.io/jobset "$jobset")/config/components
install -m 644 "$from/crd/bases/jobset.x-k8s.io_jobsets.yaml" .
install -m 644 "$from/webhook/manifests.yaml" jobset-webhooks.yaml
from=$(source_of sigs.k8s.io/kueue "$kueue")/config/components
install -m 644 -D -t kueue "$from/crd/bases/"*.yaml
install -m 644 "$from/webhook/manifests.yaml" kueue-webhooks.yaml

absent=$(lacking "$folder/bin")
if [[ -n $absent ]]; then
    echo "in $folder there is no ${absent//$'\n'/ }" >&2
    exit 1
fi
echo "Kubernetes is complete in $folder/bin"
