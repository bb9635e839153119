# shellcheck shell=bash
# Start torchrun, keep its log and its exit status, and close the run.

# forward_stop: hands a stop signal on, so that the trainer can save
forward_stop() {
  # shellcheck disable=SC2034 # read by lib/restart.sh
  stop_asked=1
  stop_trainer
}

# stop_silent: the watchdog's signal
stop_silent() {
  silent=1
  stop_trainer
}

# stop_trainer
stop_trainer() {
  stopped=1
  if [[ -n $trainer_pid ]]; then
    note "stop signal: passed on to process $trainer_pid"
    kill -TERM "$trainer_pid" 2>/dev/null || true
  fi
}

# wait_for_trainer: its exit status, also when signals interrupt the wait
wait_for_trainer() {
  local status='' again
  while true; do
    stopped=0 again=0
    wait "$trainer_pid" || again=$?
    # A second wait gives 127 when the first had collected the status already.
    if [[ -z $status || $again != 127 ]]; then
      status=$again
    fi
    if ((stopped == 0)); then
      return "$status"
    fi
  done
}

# wait_for_log <pid of tee>: lets the last lines reach the log. Bounded, because a worker that
# outlives torchrun keeps the pipe open for as long as it lives.
wait_for_log() {
  local tenths
  for ((tenths = 0; tenths < 200; tenths++)); do
    if ! kill -0 "$1" 2>/dev/null; then
      return
    fi
    sleep 0.1
  done
  note "warning: a process of this run still holds the log open"
}

# run_logged <log> <command>...: output goes to stdout and the log; the status is the command's
run_logged() {
  # shellcheck disable=SC2034 # guards: of lib/watchdog.sh
  local log=$1 status=0 sink log_pid trainer_pid='' stopped=0 silent=0 guards=()
  # tee must outlive the signals that end the run, or the trainer dies of a closed pipe.
  exec {sink}> >(
    trap '' INT TERM HUP
    exec tee -a -- "$log"
  )
  log_pid=$!
  trap forward_stop INT TERM HUP
  trap stop_silent USR1
  TASKPACK_RUN=$RUN_MARK "${@:2}" >&"$sink" 2>&1 {sink}>&- &
  trainer_pid=$!
  if ((stopped)); then
    stop_trainer
  fi
  exec {sink}>&-
  start_guards "$log"
  wait_for_trainer || status=$?
  stop_guards
  if ((silent)); then
    end_leftovers
    report_silence "$log"
    status=5
  fi
  trap - INT TERM HUP USR1
  wait_for_log "$log_pid"
  return "$status"
}

# report_silence <log>
report_silence() {
  problem 5 "the run wrote nothing for $WATCHDOG_SECONDS s and was stopped" "$CHECKOUT/$1" \
    "a rank that died or hangs leaves the others waiting" \
    "look for the first error in the logs of all nodes; raise WATCHDOG_SECONDS if a step or a save takes that long"
}

# make_log_folder: also the place of what a start makes for its node
make_log_folder() {
  mkdir -p logs || die 5 "the folder 'logs' cannot be made" "$CHECKOUT" \
    "the output of the run is kept there" "make the checkout a folder that $(id -un) may write to"
}

# run_with_log <name> <command>...: in the vendor's environment; sets log to the file with its output
run_with_log() {
  local status=0
  RUN_MARK=$$.$SECONDS.$RANDOM
  log=logs/$1_$(date +%Y%m%d_%H%M%S).log
  source_ascend_environment
  make_log_folder
  note "log: $CHECKOUT/$log"
  run_logged "$log" "${@:2}" || status=$?
  chmod 640 "$log"
  if ((status)); then
    note "the run ended with exit status $status; its output is in $CHECKOUT/$log"
  fi
  return "$status"
}

# numbers_after <label> <log>: all of them, in order. Lines of several processes may be glued
# together, so the label is searched for anywhere.
numbers_after() {
  grep -aoE "$1: +[0-9.]+(E[+-]?[0-9]+)?" "$2" | grep -oE '[0-9.]+(E[+-]?[0-9]+)?$' || true
}

# steady_mean: "<mean> <values used> <values>" of stdin. Up to 50 values, at most the first half,
# are warm-up.
steady_mean() {
  LC_ALL=C awk '{ value[NR] = $1 }
    END {
      warm = int(NR / 2) < 50 ? int(NR / 2) : 50
      for (i = warm + 1; i <= NR; i++) sum += value[i]
      if (NR) printf "%.4f %d %d\n", sum / (NR - warm), NR - warm, NR
    }'
}

# summarize <log>: iterations, step time and speed of the job
summarize() {
  local log=$1 ms used seen last tokens batch nans
  read -r ms used seen < <(numbers_after 'elapsed time per iteration \(ms\)' "$log" | steady_mean) || true
  if [[ -z ${ms:-} ]]; then
    note "no iteration in $log: the last rank prints them, on node $((NNODES - 1))"
    return
  fi
  last=$(grep -aoE 'iteration +[0-9]+/' "$log" | tail -n 1 | tr -dc '0-9' || true)
  read -r tokens _ < <(numbers_after 'tokens per sample' "$log" | steady_mean) || true
  batch=$(numbers_after 'global batch size' "$log" | tail -n 1)
  nans=$(numbers_after 'number of nan iterations' "$log" | tail -n 1)
  LC_ALL=C awk -v ms="$ms" -v used="$used" -v seen="$seen" -v last="$last" \
    -v tokens="${tokens:-0}" -v batch="${batch:-$GLOBAL_BATCH_SIZE}" 'BEGIN {
      rate = batch * 1000 / ms
      printf "iterations:      %d\n", last
      printf "mean step time:  %.1f ms (last %d of %d log lines)\n", ms, used, seen
      printf "samples/s:       %.3f\n", rate
      if (tokens > 0) printf "tokens/s:        %.1f\n", rate * tokens
    }'
  if ((${nans:-0} > 0)); then
    note "warning: $nans iterations had a NaN loss or gradient"
  fi
}

# publish: the saved weights keep the layout file and get modes that the group can read
publish() {
  local source=$LOAD_PATH/taskpack_layout.json copy=$SAVE_PATH/taskpack_layout.json
  if [[ ! -d $SAVE_PATH ]]; then
    note "note: this node saved nothing in $SAVE_PATH"
    return
  fi
  if [[ -f $source && ! -f $copy ]]; then
    # Nodes that share SAVE_PATH write the same bytes; the rename keeps each copy whole.
    cp -T -- "$source" "$copy.node$NODE_RANK" && mv -fT -- "$copy.node$NODE_RANK" "$copy" || return
  fi
  set_modes
}

# set_modes: only what Megatron and we write, in case SAVE_PATH holds other things as well
set_modes() {
  local paths=("$SAVE_PATH"/iter_* "$SAVE_PATH/latest_checkpointed_iteration.txt" "$SAVE_PATH/taskpack_layout.json")
  local path existing=()
  chmod 750 "$SAVE_PATH" || return
  for path in "${paths[@]}"; do
    if [[ -e $path ]]; then
      existing+=("$path")
    fi
  done
  if ((${#existing[@]} > 0)); then
    find "${existing[@]}" -type d -exec chmod 750 {} + -o -type f -exec chmod 640 {} +
  fi
}
