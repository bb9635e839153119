#!/usr/bin/env bash
# Evaluate Qwen2.5-VL-3B-Instruct on ai2d_test, with MindSpeed-MM 26.1.0.
#
# usage: bash evaluate_qwen2_5_vl.sh [--dry-run] [--help] [argument of evaluate_vlm.py]...
#
# The weights have a layout of their own, TP 1 x PP 1; this cuts an HF folder so:
#   taskpack convert hf-to-mm --hf ckpt/mm_to_hf/Qwen2.5-VL-3B-Instruct \
#     --mm ckpt/mm_path/Qwen2.5-VL-3B-Instruct-generate --tp 1 \
#     --vit-layers '[32]' \
#     --llm-layers '[36]'
#
# Rendered from tasks/qwen2.5vl-3b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2.5vl-3b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(dirname -- "$(dirname -- "$TASK_DIR")")
TASK=${TASK_DIR#"${CHECKOUT%/}/"}
ENTRY=evaluate_vlm.py
CONVERT="the command at the head of $TASK/evaluate_qwen2_5_vl.sh"

# Settings; the environment wins. Relative paths start at the checkout.

# NPUs; more than 1 answer in parallel
: "${NPUS_PER_NODE:=1}"
# TCP port on this node
: "${MASTER_PORT:=29501}"
# tokens; longer questions are cut
: "${SEQ_LENGTH:=1024}"
# weights that answer
: "${LOAD_PATH:=ckpt/mm_path/Qwen2.5-VL-3B-Instruct-generate}"
# folder of CANN and ATB
: "${ASCEND_PREFIX:=/usr/local/Ascend}"
# 1 starts without the checks
: "${SKIP_CHECKS:=0}"

# connections; Megatron checks it
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-1}"
# 1 prints the NPU driver's log
export ASCEND_SLOG_PRINT_TO_STDOUT="${ASCEND_SLOG_PRINT_TO_STDOUT:-0}"
# 0 debug, 1 info, 2 warning, 3 error, 4 nothing
export ASCEND_GLOBAL_LOG_LEVEL="${ASCEND_GLOBAL_LOG_LEVEL:-3}"
# 0 to 2; levels of operator dispatch in the background
export TASK_QUEUE_ENABLE="${TASK_QUEUE_ENABLE:-2}"
# 1 joins operators on strided tensors
export COMBINED_ENABLE="${COMBINED_ENABLE:-1}"
# 0 no core binding, 1 coarse, 2 fine
export CPU_AFFINITY_CONF="${CPU_AFFINITY_CONF:-1}"
# seconds to wait for the other ranks to connect
export HCCL_CONNECT_TIMEOUT="${HCCL_CONNECT_TIMEOUT:-7200}"
# 0 to 3; detection of silent faults
export NPU_ASD_ENABLE="${NPU_ASD_ENABLE:-0}"
# 1 runs operators one at a time, to debug
export ASCEND_LAUNCH_BLOCKING="${ASCEND_LAUNCH_BLOCKING:-0}"
# operators kept in the cache
export ACLNN_CACHE_LIMIT="${ACLNN_CACHE_LIMIT:-100000}"
# seconds to wait in a collective
export HCCL_EXEC_TIMEOUT="${HCCL_EXEC_TIMEOUT:-7200}"
# false keeps tokenizers to one thread
export TOKENIZERS_PARALLELISM="${TOKENIZERS_PARALLELISM:-false}"

# Baked into evaluate.json and the converted weights: edit the profile, render and convert again.
readonly TP=1 PP=1 CP=1
# One node, one picture at a time, whatever a launcher's variables say.
readonly MICRO_BATCH_SIZE=1 GRAD_ACCUMULATION=1 NNODES=1 NODE_RANK=0 MASTER_ADDR=localhost HOSTFILE='' PLATFORM=none
readonly WATCHDOG_SECONDS=0 STOP_SECONDS=60 STOP_WITH_STDIN=0
declare -A given=()
GLOBAL_BATCH_SIZE=
# Lines that taskpack_layout.json of the loaded weights must hold.
layout=(
  '  "family": "qwen2_5_vl",'
  '  "tp": 1,'
  '  "vision_tp": 1,'
  '  "text_layers": [36],'
  '  "vision_layers": [32],'
  '  "canonical": false,'
)

# shellcheck source=lib/messages.sh
source "$TASK_DIR/lib/messages.sh"
# shellcheck source=lib/options.sh
source "$TASK_DIR/lib/options.sh"
# shellcheck source=lib/place.sh
source "$TASK_DIR/lib/place.sh"
# shellcheck source=lib/cluster.sh
source "$TASK_DIR/lib/cluster.sh"
# shellcheck source=lib/preflight.sh
source "$TASK_DIR/lib/preflight.sh"
# shellcheck source=lib/weights.sh
source "$TASK_DIR/lib/weights.sh"
# shellcheck source=lib/ascend.sh
source "$TASK_DIR/lib/ascend.sh"
# shellcheck source=lib/watchdog.sh
source "$TASK_DIR/lib/watchdog.sh"
# shellcheck source=lib/train.sh
source "$TASK_DIR/lib/train.sh"

# set_arguments: what evaluate_vlm.py is started with
set_arguments() {
  arguments=(
    --use-mcore-models
    --tensor-model-parallel-size "$TP"
    --pipeline-model-parallel-size "$PP"
    --micro-batch-size 1
    --global-batch-size "$GLOBAL_BATCH_SIZE"
    --tokenizer-type NullTokenizer
    --vocab-size 151936
    --seq-length "$SEQ_LENGTH"
    --make-vocab-size-divisible-by 1
    --normalization RMSNorm
    --swiglu
    --use-fused-rmsnorm
    --use-fused-swiglu
    --seed 42
    --bf16
    --use-flash-attn
    --load "$LOAD_PATH"
    --exit-on-missing-checkpoint
    --no-load-optim
    --no-load-rng
    --distributed-timeout-minutes 1000
    --mm-model "$TASK/evaluate.json"
    --log-interval 1
    --save-interval 10000
    --eval-interval 10000
    --eval-iters 5000
    --distributed-backend nccl
  )
}

# check_start: everything that a real start needs
check_start() {
  check_checkout "$TASK/evaluate.json"
  check_program torchrun "activate the environment with torch and torch_npu, then start again"
  check_devices
  check_port
  check_checkpoint LOAD_PATH "$LOAD_PATH" '' "${layout[@]}"
  check_base LOAD_PATH "$LOAD_PATH" ''
  check_hf_folder ckpt/hf_path/Qwen2.5-VL-3B-Instruct
  check_input "$TASK/evaluate.json" generate.dataset_file ./AI2D_TEST.tsv
}

main() {
  problem_codes=()
  split_arguments "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  cd -- "$CHECKOUT"
  check_numbers SEQ_LENGTH
  settle_cluster
  set_arguments
  start=(torchrun --nproc_per_node "$NPUS_PER_NODE" --nnodes 1 --node_rank 0
    --master_addr localhost --master_port "$MASTER_PORT"
    "$ENTRY" "${arguments[@]}" "${rest[@]}")
  check_arguments "${rest[@]}"
  if [[ $SKIP_CHECKS != 1 ]]; then
    check_start
  fi
  if [[ $mode == --dry-run ]]; then
    note_faults
    show_command "${start[@]}"
    return
  fi
  stop_on_problems
  run_with_log evaluate "${start[@]}"
}

main "$@"
