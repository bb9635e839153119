# shellcheck shell=bash
# Guards beside torchrun: a log that stays silent, and the launcher of all nodes that goes away. They
# signal the launcher, which stops torchrun as for any other signal, and end what ignores that.

# watch_silence <log>: USR1 to the launcher once nothing was written for WATCHDOG_SECONDS
watch_silence() {
  local size last='' since=$SECONDS
  while ((SECONDS - since < WATCHDOG_SECONDS)); do
    sleep 1
    # The size: clocks of a file server and of this node may differ.
    size=$(stat -c %s -- "$1")
    if [[ $size != "$last" ]]; then
      last=$size since=$SECONDS
    fi
  done
  kill -USR1 $$
}

# watch_caller: TERM to the launcher when the one that started all nodes writes a line or is gone
watch_caller() {
  IFS= read -r _ || true
  kill -TERM $$
}

# end_late: kills what is left of the run STOP_SECONDS after its stop
end_late() {
  local started=$SECONDS
  # short naps: one that outlives this process should not be long
  while ((SECONDS - started < STOP_SECONDS)); do
    sleep 1
  done
  kill_run
}

# start_guards <log>: fills guards with their process ids
start_guards() {
  guards=()
  if ((WATCHDOG_SECONDS > 0)); then
    { watch_silence "$1" && end_late; } >/dev/null 2>&1 &
    guards+=($!)
  fi
  if [[ $STOP_WITH_STDIN == 1 ]]; then
    # A process in the background would read from /dev/null.
    exec {caller}<&0
    { watch_caller && end_late; } <&"$caller" >/dev/null 2>&1 &
    guards+=($!)
    exec {caller}<&-
  fi
}

# stop_guards
stop_guards() {
  if ((${#guards[@]} > 0)); then
    kill "${guards[@]}" 2>/dev/null || true
  fi
}

# processes_of_run: torchrun and its workers, also those whose parent is gone: all carry RUN_MARK
processes_of_run() {
  { grep -lszFx -- "TASKPACK_RUN=$RUN_MARK" /proc/[0-9]*/environ || true; } | tr -dc '0-9\n'
}

# kill_run
kill_run() {
  local pids=()
  mapfile -t pids < <(processes_of_run)
  if ((${#pids[@]} > 0)); then
    kill -KILL "${pids[@]}" 2>/dev/null || true
  fi
}

# end_leftovers: a worker that outlives torchrun would keep its NPU from the next start
end_leftovers() {
  local started=$SECONDS
  while [[ -n $(processes_of_run) ]]; do
    if ((SECONDS - started >= STOP_SECONDS)); then
      note "warning: processes of the run outlived torchrun by $STOP_SECONDS s and are killed"
      kill_run
      return
    fi
    sleep 0.2
  done
}
