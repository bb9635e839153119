#!/usr/bin/env bash
# Merge and export the weights of Qwen2.5-VL-7B-Instruct in a ModelArts job, on its first node.
#
# usage: bash merge_ckpt_MA.sh [--dry-run] [--help] [--overwrite]
#
# The settings of merge_lora.sh and convert_mm_to_hf.sh can be environment variables of the job.
#
# Rendered from tasks/qwen2.5vl-7b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2.5vl-7b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

# Settings; the environment wins. Relative paths start at the checkout.
: "${TUNING:=full}"

# shellcheck source=lib/messages.sh
source "$TASK_DIR/lib/messages.sh"
# shellcheck source=lib/options.sh
source "$TASK_DIR/lib/options.sh"
# shellcheck source=lib/modelarts.sh
source "$TASK_DIR/lib/modelarts.sh"

main() {
  problem_codes=()
  split_arguments "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  leave_to_first_npu
  check_tuning
  stop_on_problems
  if [[ ${VC_TASK_INDEX:-0} != 0 ]]; then
    note "node $VC_TASK_INDEX has nothing to do: node 0 merges and exports"
    return
  fi
  if [[ $TUNING == lora ]]; then
    bash "$TASK_DIR/merge_lora.sh" "$@"
  fi
  TUNING=$TUNING bash "$TASK_DIR/convert_mm_to_hf.sh" "$@"
}

main "$@"
