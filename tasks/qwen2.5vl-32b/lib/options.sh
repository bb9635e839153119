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
