#!/usr/bin/env bash
# Merge the trained LoRA adapter of Qwen2.5-VL-72B-Instruct into its base weights.
#
# usage: bash merge_lora.sh [--dry-run] [--help] [option of taskpack lora merge]...
#
# ITERATION=latest, release or a number selects the adapter.
#
# Rendered from tasks/qwen2.5vl-72b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2.5vl-72b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(dirname -- "$(dirname -- "$TASK_DIR")")
TASK=${TASK_DIR#"${CHECKOUT%/}/"}

# Settings; the environment wins. Relative paths start at the checkout.
: "${LOAD_PATH:=ckpt/mm_path/Qwen2.5-VL-72B-Instruct}"
: "${ADAPTER_PATH:=${SAVE_PATH:-save_dir}}"
: "${MERGED_PATH:=ckpt/mm_merged/Qwen2.5-VL-72B-Instruct}"
: "${ITERATION:=latest}"

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
  run_taskpack "$mode" lora merge --base "$LOAD_PATH" --adapter "$ADAPTER_PATH" --out "$MERGED_PATH" \
    --task "$TASK" --iteration "$ITERATION" "${rest[@]}"
}

main "$@"
