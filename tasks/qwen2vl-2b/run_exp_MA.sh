#!/usr/bin/env bash
# Fine-tune Qwen2-VL-2B-Instruct in a ModelArts training job: the boot command of every node.
#
# usage: bash run_exp_MA.sh [--dry-run] [--help] [argument of pretrain_vlm.py]...
#
# Nodes, ranks and the master come from the platform; every setting of finetune_qwen2_vl.sh can be
# an environment variable of the job.
#
# Rendered from tasks/qwen2vl-2b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2vl-2b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

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
  exec bash "$TASK_DIR/finetune_qwen2_vl.sh" "$@"
}

main "$@"
