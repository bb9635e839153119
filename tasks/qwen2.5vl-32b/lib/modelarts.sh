# shellcheck shell=bash
# ModelArts training jobs: one start per node. The launcher reads the platform's variables itself.

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
  if [[ -n ${TORCHELASTIC_RUN_ID:-} ]]; then
    # of the torchrun that started this: its port is taken, and its ranks count processes
    unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
  fi
}
