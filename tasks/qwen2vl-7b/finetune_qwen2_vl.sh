#!/usr/bin/env bash
# Fine-tune Qwen2-VL-7B-Instruct with MindSpeed-MM 26.0.0.
#
# usage: bash finetune_qwen2_vl.sh [--dry-run] [--help] [argument of pretrain_vlm.py]...
#
#   --dry-run      print the torchrun command on stdout and start nothing
#   NAME=value     in front of the command changes a setting below, for example TUNING=full
#   HOSTFILE=path  one node per line (see hostfile.example); or NNODES, NODE_RANK and MASTER_ADDR;
#                  or neither, where ModelArts, Kubernetes or Slurm says it
#   SKIP_CHECKS=1  starts without looking at weights, data and machine first
#   --saved        print the iterations of SAVE_PATH that this run could go on from, newest first
#
# Rendered from tasks/qwen2vl-7b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2vl-7b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(dirname -- "$(dirname -- "$TASK_DIR")")
TASK=${TASK_DIR#"${CHECKOUT%/}/"}
ENTRY=pretrain_vlm.py
CONVERT="bash $TASK/convert_hf_to_mm.sh"
# What the caller set himself: it wins over a hostfile and over a platform.
declare -A given=([NNODES]=${NNODES:-} [NODE_RANK]=${NODE_RANK:-} [MASTER_ADDR]=${MASTER_ADDR:-}
  [MASTER_PORT]=${MASTER_PORT:-} [NPUS_PER_NODE]=${NPUS_PER_NODE:-})

# Settings; the environment wins. Relative paths start at the checkout.

# NPUs of each node
: "${NPUS_PER_NODE:=8}"
# nodes
: "${NNODES:=1}"
# TCP port on the first node
: "${MASTER_PORT:=29501}"
# samples per NPU and forward pass
: "${MICRO_BATCH_SIZE:=1}"
# micro batches per step
: "${GRAD_ACCUMULATION:=96}"
# steps
: "${TRAIN_ITERS:=10000}"
# tokens; longer samples are cut
: "${SEQ_LENGTH:=1024}"
# highest learning rate
: "${LR:=1.0e-5}"
# steps between checkpoints
: "${SAVE_INTERVAL:=5000}"
# steps between log lines
: "${LOG_INTERVAL:=1}"
# lora or full
: "${TUNING:=full}"
# weights to start from
: "${LOAD_PATH:=ckpt/mm_path/Qwen2-VL-7B-Instruct}"
# checkpoints of this run
: "${SAVE_PATH:=save_dir}"
# stop after so long without a log line; 0 waits for ever
: "${WATCHDOG_SECONDS:=0}"
# then kill what did not stop
: "${STOP_SECONDS:=60}"
# go on after a failure, from the newest complete checkpoint
: "${MAX_RESTARTS:=0}"
# 1 stops the run when stdin closes; launch_all.sh sets it
: "${STOP_WITH_STDIN:=0}"
# iteration in SAVE_PATH to go on from
: "${RESTART_FROM:=}"
# for the name that a platform gives the master
: "${MASTER_WAIT_SECONDS:=600}"
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
export HCCL_CONNECT_TIMEOUT="${HCCL_CONNECT_TIMEOUT:-1200}"
# 0 to 3; detection of silent faults
export NPU_ASD_ENABLE="${NPU_ASD_ENABLE:-0}"
# 1 runs operators one at a time, to debug
export ASCEND_LAUNCH_BLOCKING="${ASCEND_LAUNCH_BLOCKING:-0}"
# operators kept in the cache
export ACLNN_CACHE_LIMIT="${ACLNN_CACHE_LIMIT:-100000}"

# Baked into model.json and the converted weights: edit the profile, render and convert again.
readonly TP=1 PP=4 CP=1
readonly RESUME_ITERATION=
data_files=(
  ./data/mllm_format_llava_instruct_data.json
)
# Lines that taskpack_layout.json of the loaded weights must hold.
layout=(
  '  "family": "qwen2_vl",'
  '  "tp": 1,'
  '  "vision_tp": 1,'
  '  "text_layers": [1, 10, 10, 7],'
  '  "vision_layers": [32, 0, 0, 0],'
  '  "canonical": false,'
)

# shellcheck source=lib/messages.sh
source "$TASK_DIR/lib/messages.sh"
# shellcheck source=lib/options.sh
source "$TASK_DIR/lib/options.sh"
# shellcheck source=lib/platforms.sh
source "$TASK_DIR/lib/platforms.sh"
# shellcheck source=lib/place.sh
source "$TASK_DIR/lib/place.sh"
# shellcheck source=lib/cluster.sh
source "$TASK_DIR/lib/cluster.sh"
# shellcheck source=lib/network.sh
source "$TASK_DIR/lib/network.sh"
# shellcheck source=lib/preflight.sh
source "$TASK_DIR/lib/preflight.sh"
# shellcheck source=lib/weights.sh
source "$TASK_DIR/lib/weights.sh"
# shellcheck source=lib/node_files.sh
source "$TASK_DIR/lib/node_files.sh"
# shellcheck source=lib/ascend.sh
source "$TASK_DIR/lib/ascend.sh"
# shellcheck source=lib/watchdog.sh
source "$TASK_DIR/lib/watchdog.sh"
# shellcheck source=lib/restart.sh
source "$TASK_DIR/lib/restart.sh"
# shellcheck source=lib/train.sh
source "$TASK_DIR/lib/train.sh"

# set_paths: what the arguments need once the place of this node is known
set_paths() {
  DATA_JSON=$(data_json_of_node)
  RESUME_PATH=$(resume_path)
  # below an adapter that this run has saved
  : "${BASE_PATH:=$LOAD_PATH}"
}

# set_checkpoint: from which weights, with what of the optimizer, and where to
set_checkpoint() {
  checkpoint=(
    --load "$LOAD_PATH"
    --exit-on-missing-checkpoint
    --no-load-optim
    --no-load-rng
    --no-save-optim
    --no-save-rng
    --save "$SAVE_PATH"
    --save-interval "$SAVE_INTERVAL"
    --ckpt-format torch
  )
  if [[ -n $RESTART_FROM ]]; then
    checkpoint=(
      --load "$RESUME_PATH"
      --exit-on-missing-checkpoint
      --no-load-optim
      --no-load-rng
      --no-save-optim
      --no-save-rng
      --save "$SAVE_PATH"
      --save-interval "$SAVE_INTERVAL"
      --ckpt-format torch
    )
  fi
}

# set_arguments: what the trainer is started with
set_arguments() {
  set_checkpoint
  arguments=(
    # parallel
    --use-mcore-models
    --tensor-model-parallel-size "$TP"
    --pipeline-model-parallel-size "$PP"
    --context-parallel-size "$CP"
    --context-parallel-algo ulysses_cp_algo
    --variable-seq-lengths
    --use-distributed-optimizer
    --distributed-timeout-minutes 20
    --distributed-backend nccl
    # training
    --micro-batch-size "$MICRO_BATCH_SIZE"
    --global-batch-size "$GLOBAL_BATCH_SIZE"
    --train-iters "$TRAIN_ITERS"
    --seq-length "$SEQ_LENGTH"
    --lr "$LR"
    --min-lr 0.0
    --lr-decay-style cosine
    --lr-warmup-fraction 0.1
    --weight-decay 0.0
    --clip-grad 0.0
    --adam-beta1 0.9
    --adam-beta2 0.999
    --seed 42
    # kernels
    --bf16
    --use-flash-attn
    --no-masked-softmax-fusion
    --no-gradient-accumulation-fusion
    --normalization RMSNorm
    --use-fused-rmsnorm
    --swiglu
    --use-fused-swiglu
    --tokenizer-type NullTokenizer
    --vocab-size 152064
    --make-vocab-size-divisible-by 1
    "${checkpoint[@]}"
    # data
    --mm-data "$DATA_JSON"
    --mm-model "$TASK/model.json"
    --mm-tool ./mindspeed_mm/tools/tools.json
    --num-workers 8
    # output
    --log-interval "$LOG_INTERVAL"
    --eval-interval 10000
    --eval-iters 5000
    --log-tps
  )
  if [[ $TUNING == lora ]]; then
    arguments+=(
      --lora-r 8
      --lora-alpha 16
      --lora-dropout 0.0
      --lora-target-modules linear_qkv linear_proj linear_fc1 linear_fc2
    )
  fi
  if [[ $TUNING == lora && -n $RESTART_FROM ]]; then
    arguments+=(--load-base-model "$BASE_PATH")
  fi
}

# set_start: the command of this node
set_start() {
  set_paths
  set_arguments
  start=(torchrun --nproc_per_node "$NPUS_PER_NODE" --nnodes "$NNODES" --node_rank "$NODE_RANK"
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"
    "$ENTRY" "${arguments[@]}" "${rest[@]}")
}

# show_trainable: which modules train, given the profile's freezes and LoRA targets
show_trainable() {
  local table
  if [[ $TUNING == lora ]]; then
    table=(
      'module                parameters       trainable  how'
      'vision encoder       631,183,360               0  frozen'
      'vision projector      44,575,744               0  frozen'
      'text embedding       544,997,376               0  frozen'
      'text layers        6,525,618,176      17,776,640  LoRA on linear_qkv linear_proj linear_fc1 linear_fc2'
      'text output          545,000,960               0  frozen'
    )
  else
    table=(
      'module                parameters       trainable  how'
      'vision encoder       631,183,360               0  frozen'
      'vision projector      44,575,744               0  frozen'
      'text embedding       544,997,376     544,997,376  full'
      'text layers        6,525,618,176   6,525,618,176  full'
      'text output          545,000,960     545,000,960  full'
    )
  fi
  note "tuning: $TUNING"
  printf '  %s\n' "${table[@]}" >&2
}

# check_start: everything that a real start needs on this node
check_start() {
  check_checkout "$TASK/model.json" "$TASK/data.json"
  check_program torchrun "activate the environment with torch and torch_npu, then start again"
  check_devices
  check_port
  check_checkpoint LOAD_PATH "$LOAD_PATH" '' "${layout[@]}"
  check_base LOAD_PATH "$LOAD_PATH" ''
  check_save_path
  check_restart_from
  check_save_layout "${layout[@]}"
  check_hf_folder ckpt/hf_path/Qwen2-VL-7B-Instruct
  check_data "${data_files[@]}"
}

# launch: runs the command with its log, then sums up
launch() {
  local log
  make_log_folder
  write_node_data
  run_with_restarts "qwen2vl-7b_${TUNING}_node$NODE_RANK" || return
  # The training is done: what fails from here on must not make it a failure.
  publish || note "warning: layout and modes of $SAVE_PATH are not complete"
  summarize "$log" || note "warning: $log could not be summed up"
}

main() {
  problem_codes=() stop_asked=0
  split_arguments "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  cd -- "$CHECKOUT"
  check_tuning
  check_numbers TRAIN_ITERS SEQ_LENGTH SAVE_INTERVAL LOG_INTERVAL
  check_counts MASTER_WAIT_SECONDS WATCHDOG_SECONDS STOP_SECONDS MAX_RESTARTS
  settle_cluster
  check_restarts ''
  if [[ ${rest[*]} == --saved ]]; then
    saved_iterations
    return
  fi
  set_start
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
  wait_for_master
  choose_interface
  show_trainable
  launch
}

main "$@"
