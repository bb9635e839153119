# shellcheck shell=bash
# shellcheck disable=SC2154 # the script sets what it hands to these functions
# All nodes of a hostfile: started from one machine over ssh, and stopped together.

# ssh_words <host>: bounded, and never asking for a password
ssh_words() {
  printf '%s\n' ssh -T -o BatchMode=yes -o "ConnectTimeout=$SSH_SECONDS" -o ServerAliveInterval=15 \
    -o ServerAliveCountMax=4 -- "$1"
}

# remote_command <rank> <argument of the launcher>...: what the shell of that node runs
remote_command() {
  local name words=(env)
  for name in "${handed_over[@]}"; do
    if [[ -n ${!name:-} ]]; then
      words+=("$name=${!name}")
    fi
  done
  words+=("NNODES=${#hosts[@]}" "NODE_RANK=$1" "MASTER_ADDR=${MASTER_ADDR:-${hosts[0]}}" HOSTFILE= PLATFORM=none
    STOP_WITH_STDIN=1 "RESTART_FROM=$RESTART_FROM" bash "$TASK/$LAUNCHER" "${@:2}")
  printf 'cd %q && exec %s' "$CHECKOUT" "$(show_command "${words[@]}")"
}

# check_hosts: they become words of ssh, and tags of lines
check_hosts() {
  local host
  for host in "${hosts[@]}"; do
    if [[ ! $host =~ ^[A-Za-z0-9:][A-Za-z0-9._:%-]*$ ]]; then
      problem 2 "'$host' is no host name" "$HOSTFILE" "ssh connects to it" \
        "write names or addresses; users, ports and keys belong into the configuration of ssh"
    fi
  done
}

# start_node <rank> <argument>...: its lines get a tag; its stdin stays open until it has to stop
start_node() {
  local host=${hosts[$1]} sink words=()
  mapfile -t words < <(ssh_words "$host")
  exec {sink}> >(
    trap '' INT TERM HUP
    exec sed -u "s|^|[$host] |"
  )
  taggers+=($!)
  "${words[@]}" "$(remote_command "$@")" <"$scratch/node$1" >&"$sink" 2>&1 {sink}>&- &
  nodes+=($!)
  exec {sink}>&-
}

# start_nodes <argument>...
start_nodes() {
  local rank hold
  nodes=() taggers=() holds=() results=() failed=0
  for rank in "${!hosts[@]}"; do
    rm -f -- "$scratch/node$rank"
    mkfifo -- "$scratch/node$rank"
    start_node "$rank" "$@"
  done
  # Only now, or the clients that start later would keep the earlier ones open as well.
  for rank in "${!hosts[@]}"; do
    exec {hold}<>"$scratch/node$rank"
    holds+=("$hold")
  done
}

# collect_node <rank>: its status, once; 255 is ssh's own
collect_node() {
  local status=0
  if [[ -n ${results[$1]:-} ]]; then
    return
  fi
  wait "${nodes[$1]}" || status=$?
  results[$1]=$status
  if ((status == 255)); then
    problem 5 "node $1 was not reached, or its connection broke" "${hosts[$1]}" \
      "every node is started over ssh, without a password" "ssh -o BatchMode=yes ${hosts[$1]} true"
    status=5
  elif ((status)); then
    note "node $1 (${hosts[$1]}) ended with exit status $status"
  fi
  if ((status && failed == 0)); then
    failed=$status
  fi
}

# collect_nodes: those that are done; the status is 1 when none is left
collect_nodes() {
  local rank left=0
  for rank in "${!nodes[@]}"; do
    if kill -0 "${nodes[rank]}" 2>/dev/null; then
      left=1
    else
      collect_node "$rank"
    fi
  done
  ((left))
}

# wait_for_nodes: until all are done, one has failed, or a stop was asked for
wait_for_nodes() {
  while collect_nodes && ((failed == 0 && stop_asked == 0)); do
    sleep 0.2
  done
}

# stop_nodes: asks all that still run, and waits longer than they take to kill what does not stop
stop_nodes() {
  local hold rank started=$SECONDS
  for hold in "${holds[@]}"; do
    printf 'stop\n' >&"$hold"
  done
  while collect_nodes && ((SECONDS - started < STOP_SECONDS + 30)); do
    sleep 0.2
  done
  for rank in "${!nodes[@]}"; do
    if [[ -z ${results[rank]:-} ]]; then
      note "warning: node $rank (${hosts[rank]}) does not answer; its connection is closed"
      kill -TERM "${nodes[rank]}" 2>/dev/null || true
      collect_node "$rank"
    fi
  done
}

# finish_nodes: lets go of the nodes, and lets their last lines through
finish_nodes() {
  local hold pid
  for hold in "${holds[@]}"; do
    exec {hold}>&-
  done
  for pid in "${taggers[@]}"; do
    wait_for_log "$pid"
  done
}

# newest_on_all: the newest iteration that every node could go on from, or nothing
newest_on_all() {
  local rank words=() saved
  for rank in "${!hosts[@]}"; do
    mapfile -t words < <(ssh_words "${hosts[rank]}")
    saved=$(timeout 120 "${words[@]}" "$(remote_command "$rank" --saved)" </dev/null) || return
    printf '%s\n' "$saved"
  done | sort -rn | uniq -c | awk -v nodes="${#hosts[@]}" '$1 == nodes && $2 != "" { print $2; exit }'
}

# run_all <argument>...: starts all nodes; after a failure stops all, and starts all again from there
run_all() {
  local attempt newest
  trap 'stop_asked=1' INT TERM HUP
  for ((attempt = 1; ; attempt++)); do
    start_nodes "$@"
    wait_for_nodes
    if ((failed || stop_asked)); then
      note "all nodes are stopped"
      stop_nodes
    fi
    finish_nodes
    if ((failed == 0 || stop_asked || attempt > MAX_RESTARTS)); then
      return "$failed"
    fi
    if ! newest=$(newest_on_all); then
      note "not every node can be asked what it saved; the run is not restarted"
      return "$failed"
    fi
    RESTART_FROM=${newest:-$RESTART_FROM}
    note "restart $attempt of $MAX_RESTARTS of all nodes: from ${RESTART_FROM:+iteration }${RESTART_FROM:-the beginning, since no checkpoint is complete on all of them}"
    sleep "$RESTART_SECONDS"
    if ((stop_asked)); then
      return "$failed"
    fi
  done
}
