# shellcheck shell=bash
# What a script is asked to do.

# split_arguments <word>...: --help and --dry-run are ours (mode), the rest is passed on (rest)
# shellcheck disable=SC2034 # the scripts read both
split_arguments() {
  mode=''
  rest=()
  while (($# > 0)); do
    case $1 in
      -h | --help) mode=--help ;;
      --dry-run) mode=--dry-run ;;
      *) rest+=("$1") ;;
    esac
    shift
  done
}

# show_usage <script>: the comment at the head of the script, without its first line
show_usage() {
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$1"
}

# check_tuning: TUNING selects what is trained
check_tuning() {
  if [[ $TUNING != full && $TUNING != lora ]]; then
    problem 2 "TUNING is '$TUNING'" "environment or settings of this script" \
      "it selects what is trained" "use full or lora"
  fi
}

# refuse_lora <what> <why> <fix>: of profiles whose rules forbid adapters
refuse_lora() {
  if [[ $TUNING == lora ]]; then
    problem 2 "$1" "TUNING=lora, and $TASK/profile.yaml" "$2" "$3"
  fi
}

# check_arguments <argument>...: those that would do nothing, or go past the checks
check_arguments() {
  local word
  for word; do
    case ${word%%=*} in
      --num-layers | --hidden-size | --ffn-hidden-size | --num-attention-heads | --num-query-groups | \
        --group-query-attention | --kv-channels | --max-position-embeddings | \
        --position-embedding-type | --rotary-base | --attention-dropout | --hidden-dropout | \
        --init-method-std | --norm-epsilon | --recompute-granularity | --recompute-method | \
        --recompute-num-layers | --recompute-activations)
        note "note: ${word%%=*} has no effect: the trainer takes it from $TASK/model.json"
        ;;
      --load | --save | --mm-data | --mm-model)
        note "note: ${word%%=*} goes past the checks of this script, which look at its settings"
        ;;
    esac
  done
}
