#!/usr/bin/env bash
# Convert the HF weights of Qwen2.5-VL-7B-Instruct to the layout of this task.
#
# usage: bash convert_hf_to_mm.sh [--dry-run] [--help] [option of taskpack convert hf-to-mm]...
#
# Rendered from tasks/qwen2.5vl-7b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2.5vl-7b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(dirname -- "$(dirname -- "$TASK_DIR")")
TASK=${TASK_DIR#"${CHECKOUT%/}/"}

# Settings; the environment wins. Relative paths start at the checkout.
: "${HF_PATH:=ckpt/hf_path/Qwen2.5-VL-7B-Instruct}"
: "${LOAD_PATH:=ckpt/mm_path/Qwen2.5-VL-7B-Instruct}"

# shellcheck source=lib/messages.sh
source "$TASK_DIR/lib/messages.sh"
# shellcheck source=lib/options.sh
source "$TASK_DIR/lib/options.sh"
# shellcheck source=lib/tools.sh
source "$TASK_DIR/lib/tools.sh"

main() {
  split_arguments "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  cd -- "$CHECKOUT"
  run_taskpack "$mode" convert hf-to-mm --hf "$HF_PATH" --mm "$LOAD_PATH" --task "$TASK" "${rest[@]}"
}

main "$@"
