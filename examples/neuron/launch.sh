#!/bin/sh
# One torchrun a node, one process a NeuronCore: a device has several, and nodeheal counts devices.
set -eu
exec torchrun --nnodes "$NNODES" --node-rank "$NODE_RANK" --nproc-per-node "$((NPROC_PER_NODE * CORES_PER_DEVICE))" \
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" --max-restarts 0 train_neuron.py "$@"
