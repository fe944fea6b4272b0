#!/bin/sh
# What each node runs: torchrun, told by nodeheal's environment. Ranks there are ranks of nodes; torchrun makes those of
# processes, and overwrites RANK and WORLD_SIZE for them. No restarts of its own: nodeheal restarts the whole gang.
set -eu
exec torchrun --nnodes "$NNODES" --node-rank "$NODE_RANK" --nproc-per-node "$NPROC_PER_NODE" \
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" --max-restarts 0 \
    "${TRAIN:-train_ddp.py}" "$@"
