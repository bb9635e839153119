#!/usr/bin/env bash
# Fine-tune Qwen2.5-VL-72B-Instruct on every node of a hostfile, started over ssh from one machine.
#
# usage: bash launch_all.sh [--dry-run] [--help] [argument of pretrain_vlm.py]...
#
#   --dry-run       print the ssh command of each node on stdout and start nothing
#   HOSTFILE=path   in front of the command: one node per line (see hostfile.example)
#   MAX_RESTARTS=1  after a failure stop all nodes, and start all again from the newest iteration that
#                   is complete on all of them
#
# ssh must reach every node without a password, and the checkout must have the same path everywhere.
# Settings of finetune_qwen2_5_vl.sh that are set here go to every node, and so do PATH, LD_LIBRARY_PATH
# and PYTHONPATH. When one node fails, or this script is stopped, all nodes are stopped.
#
# Rendered from tasks/qwen2.5vl-72b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2.5vl-72b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(dirname -- "$(dirname -- "$TASK_DIR")")
TASK=${TASK_DIR#"${CHECKOUT%/}/"}
LAUNCHER=finetune_qwen2_5_vl.sh
declare -A given=([NNODES]=${NNODES:-}) origin=()
# What each node gets from this shell, where it is set.
handed_over=(
  ACLNN_CACHE_LIMIT
  ASCEND_GLOBAL_LOG_LEVEL
  ASCEND_LAUNCH_BLOCKING
  ASCEND_PREFIX
  ASCEND_SLOG_PRINT_TO_STDOUT
  COMBINED_ENABLE
  CPU_AFFINITY_CONF
  CUDA_DEVICE_MAX_CONNECTIONS
  GLOBAL_BATCH_SIZE
  GLOO_SOCKET_IFNAME
  GRAD_ACCUMULATION
  HCCL_CONNECT_TIMEOUT
  HCCL_SOCKET_FAMILY
  HCCL_SOCKET_IFNAME
  LD_LIBRARY_PATH
  LOAD_PATH
  LOG_INTERVAL
  LR
  MASTER_PORT
  MASTER_WAIT_SECONDS
  MAX_RESTARTS
  MICRO_BATCH_SIZE
  NPUS_PER_NODE
  NPU_ASD_ENABLE
  PATH
  PYTHONPATH
  PYTORCH_NPU_ALLOC_CONF
  SAVE_INTERVAL
  SAVE_PATH
  SEQ_LENGTH
  SKIP_CHECKS
  STOP_SECONDS
  TASK_QUEUE_ENABLE
  TP_SOCKET_IFNAME
  TRAIN_ITERS
  TUNING
  WATCHDOG_SECONDS
)

# Settings; the environment wins. Relative paths start at the checkout.

# NPUs of each node
: "${NPUS_PER_NODE:=16}"
# restarts of all nodes after a failure
: "${MAX_RESTARTS:=0}"
# iteration in SAVE_PATH to go on from
: "${RESTART_FROM:=}"
# how long a node may take to stop
: "${STOP_SECONDS:=60}"
# how long ssh may take to connect
: "${SSH_SECONDS:=20}"
# pause before a restart
: "${RESTART_SECONDS:=10}"

# shellcheck source=lib/messages.sh
source "$TASK_DIR/lib/messages.sh"
# shellcheck source=lib/options.sh
source "$TASK_DIR/lib/options.sh"
# shellcheck source=lib/cluster.sh
source "$TASK_DIR/lib/cluster.sh"
# shellcheck source=lib/preflight.sh
source "$TASK_DIR/lib/preflight.sh"
# shellcheck source=lib/train.sh
source "$TASK_DIR/lib/train.sh"
# shellcheck source=lib/all_nodes.sh
source "$TASK_DIR/lib/all_nodes.sh"

# show_nodes <argument>...: the command of each node
show_nodes() {
  local rank words=()
  for rank in "${!hosts[@]}"; do
    mapfile -t words < <(ssh_words "${hosts[rank]}")
    show_command "${words[@]}" "$(remote_command "$rank" "$@")"
  done
}

main() {
  problem_codes=() stop_asked=0
  split_arguments "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  cd -- "$CHECKOUT"
  check_numbers NPUS_PER_NODE SSH_SECONDS
  check_counts MAX_RESTARTS STOP_SECONDS RESTART_SECONDS
  if [[ -z ${HOSTFILE:-} ]]; then
    problem 2 "HOSTFILE is not set" "environment" "it names the nodes to start" \
      "write one like $TASK/hostfile.example and set HOSTFILE to it"
  fi
  stop_on_problems
  count_nodes
  check_hosts
  stop_on_problems
  if [[ $mode == --dry-run ]]; then
    show_nodes "${rest[@]}"
    return
  fi
  check_program ssh "install an ssh client"
  stop_on_problems
  scratch=$(mktemp -d)
  trap 'rm -rf -- "$scratch"' EXIT
  run_all "${rest[@]}"
}

main "$@"
