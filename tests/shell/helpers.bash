# shellcheck shell=bash
# What the bats files share: a scratch checkout with rendered tasks, and stub programs.

bats_require_minimum_version 1.5.0

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
MODEL=qwen2.5vl-32b

# render_tasks: once per file, into $BATS_FILE_TMPDIR/tasks
render_tasks() {
  mkdir -p "$BATS_FILE_TMPDIR/tasks/$MODEL"
  cp "$REPO/tasks/$MODEL/profile.yaml" "$BATS_FILE_TMPDIR/tasks/$MODEL/"
  (cd "$BATS_FILE_TMPDIR" && "${PYTHON:-$REPO/.venv/bin/python}" -m taskpack render --all "$@" >/dev/null)
}

# in_checkout: an empty checkout with only tasks/ copied into it; its path has a space
in_checkout() {
  CHECKOUT="$BATS_TEST_TMPDIR/check out"
  TASK=tasks/$MODEL
  CALLS=$BATS_TEST_TMPDIR/calls
  BIN=$BATS_TEST_TMPDIR/bin
  mkdir -p "$CHECKOUT" "$CALLS" "$BIN"
  cp -r "$BATS_FILE_TMPDIR/tasks" "$CHECKOUT/"
  export CALLS PATH="$BIN:/usr/bin:/bin"
  cd "$CHECKOUT" || return
}

# stub <program> [<line of script>...]: records its arguments one per line, then runs the lines
stub() {
  {
    printf '#!/usr/bin/env bash\n'
    # shellcheck disable=SC2016 # expanded by the stub
    printf '%s\n' 'printf "%s\n" "$@" >"$CALLS/${0##*/}"'
    printf '%s\n' "${@:2}"
  } >"$BIN/$1"
  chmod +x "$BIN/$1"
}

# stub_hostname <addresses> <name>
stub_hostname() {
  stub hostname "case \${1:-} in -I) echo '$1 ' ;; *) echo '$2' ;; esac"
}

# rank_files <folder> <tp> <pp>: an iteration folder with its rank files
rank_files() {
  local tp pp folder
  for ((tp = 0; tp < $2; tp++)); do
    for ((pp = 0; pp < $3; pp++)); do
      folder=$1/$(printf 'mp_rank_%02d_%03d' "$tp" "$pp")
      mkdir -p "$folder"
      echo weights >"$folder/model_optim_rng.pt"
    done
  done
}

# with_everything: what a real start on one node of 16 NPUs needs; torchrun is a stub
with_everything() {
  local mm=ckpt/mm_path/Qwen2.5-VL-32B-Instruct hf=ckpt/hf_path/Qwen2.5-VL-32B-Instruct
  mkdir -p "$hf" data
  touch pretrain_vlm.py
  touch "$hf/config.json" "$hf/preprocessor_config.json" data/mllm_format_llava_instruct_data.json
  rank_files "$mm/release" 2 8
  echo release >"$mm/latest_checkpointed_iteration.txt"
  {
    echo '{'
    echo '  "format": 1,'
    sed -n "s/^  '\(  \".*,\)'\$/\1/p" "$TASK/finetune_qwen2_5_vl.sh"
    echo '  "dtype": "bf16"'
    echo '}'
  } >"$mm/taskpack_layout.json"
  stub torchrun
  export NNODES=1 NPUS_PER_NODE=16
}

# is_gone <pid>: no more than an entry that nobody has collected
is_gone() {
  [[ ! -e /proc/$1/status ]] || grep -q '^State:.Z' "/proc/$1/status"
}

# finetune [<argument>...]
finetune() {
  bash "$TASK/finetune_qwen2_5_vl.sh" "$@"
}

# argument <flag> <command line>: the word behind a flag
argument() {
  local words index
  eval "words=($2)"
  for index in "${!words[@]}"; do
    if [[ ${words[index]} == "$1" ]]; then
      printf '%s' "${words[index + 1]}"
      return
    fi
  done
  return 1
}

# has_error <what> [<text in where, why or fix>]: stderr holds the four lines
# shellcheck disable=SC2154 # bats sets stderr
has_error() {
  local block
  block=$(grep -F -A 3 -- "error: $1" <<<"$stderr" | head -n 4)
  [[ $(cut -c 1-9 <<<"$block") == $'error: '*$'\n  where: \n  why:   \n  fix:   ' ]] || {
    printf 'no such error: %s\nstderr was:\n%s\n' "$1" "$stderr"
    return 1
  }
  [[ $block == *"${2:-}"* ]] || {
    printf 'the error does not say: %s\nit says:\n%s\n' "$2" "$block"
    return 1
  }
}
