#!/usr/bin/env bash
# Start the fine-tuning of a task by the name of its model.
#
# usage: bash tasks/finetune.sh MODEL [argument of the task's finetune script]...
#
# Rendered from templates/pack by taskpack 0.1.0.
# Edit that file, then run: make render

set -euo pipefail
shopt -s inherit_errexit

# models <tasks folder>: the tasks that are there
models() {
  local profile
  for profile in "$1"/*/profile.yaml; do
    basename -- "$(dirname -- "$profile")"
  done
}

main() {
  local tasks scripts
  tasks=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
  if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    printf 'usage: bash tasks/finetune.sh MODEL [argument of the finetune script]...\nmodels: %s\n' \
      "$(models "$tasks" | paste -sd ' ' -)"
    return
  fi
  scripts=("$tasks/${1:-}"/finetune_*.sh)
  if [[ -z ${1:-} || $1 == */* || ! -f ${scripts[0]} ]]; then
    printf 'error: %s\n  where: %s\n  why:   %s\n  fix:   %s\n' "no task is called '${1:-}'" "$tasks" \
      "a task is a folder of tasks/ with a finetune script" \
      "use one of: $(models "$tasks" | paste -sd ' ' -)" >&2
    return 2
  fi
  exec bash "${scripts[0]}" "${@:2}"
}

main "$@"
