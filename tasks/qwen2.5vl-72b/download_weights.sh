#!/usr/bin/env bash
# Download the HF weights of Qwen2.5-VL-72B-Instruct and check that every shard is whole.
#
# usage: bash download_weights.sh [--dry-run] [--help] [option of the client]...
#
# Run it again to resume. SOURCE=modelscope takes the ModelScope client; HF_ENDPOINT points the
# Hugging Face client to a mirror.
#
# Rendered from tasks/qwen2.5vl-72b/profile.yaml by taskpack 0.1.0.
# Edit that file, then run: make render MODEL=qwen2.5vl-72b

set -euo pipefail
shopt -s inherit_errexit

TASK_DIR=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(dirname -- "$(dirname -- "$TASK_DIR")")

# Settings; the environment wins. Relative paths start at the checkout.
: "${SOURCE:=huggingface}"
: "${HF_REPO:=Qwen/Qwen2.5-VL-72B-Instruct}"
: "${HF_PATH:=ckpt/hf_path/Qwen2.5-VL-72B-Instruct}"

# shellcheck source=lib/messages.sh
source "$TASK_DIR/lib/messages.sh"
# shellcheck source=lib/options.sh
source "$TASK_DIR/lib/options.sh"
# shellcheck source=lib/download.sh
source "$TASK_DIR/lib/download.sh"

main() {
  split_arguments "$@"
  if [[ $mode == --help ]]; then
    show_usage "${BASH_SOURCE[0]}"
    return
  fi
  cd -- "$CHECKOUT"
  choose_client "${rest[@]}"
  if [[ $mode == --dry-run ]]; then
    show_command "${client[@]}"
    return
  fi
  download
  python3 "$TASK_DIR/lib/check_shards.py" "$HF_PATH"
}

main "$@"
