# shellcheck shell=bash
# ModelArts training jobs: the platform's variables become those of the launcher. A variable that
# the job form sets under our own name (NNODES, NODE_RANK, ...) wins.

# leave_to_first_npu: some presets start their boot file once per NPU; one start is enough
leave_to_first_npu() {
  local device=0
  if [[ -n ${TORCHELASTIC_RUN_ID:-} ]]; then
    device=${LOCAL_RANK:-0}
  elif [[ -n ${RANK_TABLE_FILE:-} ]]; then
    device=${ASCEND_DEVICE_ID:-${RANK_ID:-0}}
  fi
  if [[ $device != 0 ]]; then
    note "started once per NPU: the start for device 0 does the work, this one ($device) is done"
    exit 0
  fi
}

# forget_other_launcher: HCCL would follow the rank table, and torchrun the variables of the other
forget_other_launcher() {
  unset RANK_TABLE_FILE RANK_ID RANK_SIZE ASCEND_DEVICE_ID DEVICE_ID
  unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK TORCHELASTIC_RUN_ID
}

# index_in_name <host>: N of "...-worker-N", with or without a domain behind it
index_in_name() {
  local host=${1%%.*}
  if [[ $host =~ -worker-(0|[1-9][0-9]*)$ ]]; then
    printf '%s' "${BASH_REMATCH[1]}"
  fi
}

# map_modelarts: exports NNODES, NODE_RANK, MASTER_ADDR and NPUS_PER_NODE where the platform says them
map_modelarts() {
  local workers=()
  export NNODES=${NNODES:-${MA_NUM_HOSTS:-${VC_WORKER_NUM:-}}}
  export NODE_RANK=${NODE_RANK:-${VC_TASK_INDEX:-$(index_in_name "${HOSTNAME:-}")}}
  export NPUS_PER_NODE=${NPUS_PER_NODE:-${MA_NUM_GPUS:-}} MASTER_ADDR=${MASTER_ADDR:-}
  IFS=, read -ra workers <<<"${VC_WORKER_HOSTS:-}"
  if [[ $NPUS_PER_NODE == 0 ]]; then
    NPUS_PER_NODE=
  fi
  if [[ $NNODES == 1 ]]; then
    : "${MASTER_ADDR:=localhost}" "${NODE_RANK:=0}"
  elif ((${#workers[@]} > 0)); then
    : "${MASTER_ADDR:=${workers[0]}}" "${NNODES:=${#workers[@]}}"
  fi
  if ((${#workers[@]} > 0)) && [[ $NNODES != "${#workers[@]}" ]]; then
    problem 2 "$NNODES nodes, and VC_WORKER_HOSTS names ${#workers[@]}" \
      "NNODES=$NNODES VC_WORKER_HOSTS=$VC_WORKER_HOSTS" \
      "every node of the job takes part" "unset NNODES in the job form, or ask for $NNODES nodes"
  fi
  note "ModelArts: NNODES=$NNODES NODE_RANK=$NODE_RANK MASTER_ADDR=$MASTER_ADDR NPUS_PER_NODE=$NPUS_PER_NODE"
}

# wait_for_name <host> <seconds>: names of a job's pods appear a while after the pods
wait_for_name() {
  local host=$1 seconds=$2 started=$SECONDS
  until getent ahosts "$host" >/dev/null; do
    if ((SECONDS - started >= seconds)); then
      die 5 "the name '$host' of the master cannot be resolved after $seconds s" "MASTER_ADDR" \
        "every node must reach the first one" \
        "look whether that node started; raise MASTER_WAIT_SECONDS if it is slow"
    fi
    sleep 2
  done
}
