# shellcheck shell=bash
# The taskpack command, for scripts that need the Python tools.

# find_taskpack: fills taskpack with the command, or ends with one line that says how to get it
find_taskpack() {
  local pack='<folder of the pack that tasks/ was copied from>'
  if type -P taskpack >/dev/null; then
    taskpack=(taskpack)
  elif python3 -c 'import taskpack' 2>/dev/null; then
    taskpack=(python3 -m taskpack)
  else
    if [[ -f $CHECKOUT/tools/taskpack/__init__.py ]]; then
      pack=$CHECKOUT
    fi
    note "error: the taskpack command is not installed; install it: python3 -m pip install '$pack'"
    exit 5
  fi
}

# run_taskpack <mode> <word>...: mode --dry-run prints the command, anything else runs it
run_taskpack() {
  local mode=$1 taskpack=(taskpack)
  shift
  if [[ $mode == --dry-run ]]; then
    show_command taskpack "$@"
    return
  fi
  find_taskpack
  note "+ $(show_command "${taskpack[@]}" "$@")"
  "${taskpack[@]}" "$@"
}
