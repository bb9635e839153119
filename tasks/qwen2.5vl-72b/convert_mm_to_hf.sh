#!/usr/bin/env bash
# Export trained weights of Qwen2.5-VL-72B-Instruct as an HF folder.
#
# usage: bash convert_mm_to_hf.sh [--dry-run] [--help] [option of taskpack convert mm-to-hf]...
#
# MM_PATH selects the weights. Without it: after LoRA what merge_lora.sh wrote, after full tuning
# what the training saved (ITERATION=latest, release or a number).
#
# Rendered from tasks/qwen2.5vl-72b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2.5vl-72b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(dirname -- "$(dirname -- "$TASK_DIR")")
TASK=${TASK_DIR#"${CHECKOUT%/}/"}

# Settings; the environment wins. Relative paths start at the checkout.
: "${TUNING:=full}"
: "${HF_PATH:=ckpt/hf_path/Qwen2.5-VL-72B-Instruct}"
: "${SAVE_PATH:=save_dir}"
: "${MERGED_PATH:=ckpt/mm_merged/Qwen2.5-VL-72B-Instruct}"
: "${EXPORT_PATH:=ckpt/mm_to_hf/Qwen2.5-VL-72B-Instruct}"
: "${ITERATION:=latest}"

# shellcheck source=lib/messages.sh
source "$TASK_DIR/lib/messages.sh"
# shellcheck source=lib/options.sh
source "$TASK_DIR/lib/options.sh"
# shellcheck source=lib/tools.sh
source "$TASK_DIR/lib/tools.sh"

# choose_source: settles MM_PATH and ITERATION
choose_source() {
  check_tuning
  stop_on_problems
  if [[ -n ${MM_PATH:-} ]]; then
    return
  fi
  MM_PATH=$SAVE_PATH
  if [[ $TUNING == lora ]]; then
    MM_PATH=$MERGED_PATH
    # ITERATION numbers adapters; the merged folder holds one set of weights.
    ITERATION=latest
  fi
}

main() {
  problem_codes=()
  split_arguments "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  choose_source
  cd -- "$CHECKOUT"
  if [[ $mode != --dry-run && $TUNING == lora && ! -d $MM_PATH ]]; then
    die 3 "the merged weights '$MM_PATH' do not exist" "MM_PATH, seen from $CHECKOUT" \
      "after LoRA the adapter is merged into the base weights before the export" \
      "bash $TASK/merge_lora.sh, or set MM_PATH, or TUNING=full"
  fi
  run_taskpack "$mode" convert mm-to-hf --mm "$MM_PATH" --hf-ref "$HF_PATH" --hf "$EXPORT_PATH" \
    --task "$TASK" --iteration "$ITERATION" "${rest[@]}"
}

main "$@"
