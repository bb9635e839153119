# shellcheck shell=bash
# Nodes: how many, which one is this, who is the master; model copies and batch. What the caller set
# is in given, and where a value came from goes into origin (place.sh).

# check_numbers <name>...
check_numbers() {
  local name
  for name; do
    # Six digits at most: the products of longer ones could wrap around in shell arithmetic.
    if [[ ! ${!name} =~ ^[1-9][0-9]{0,5}$ ]]; then
      problem 2 "$name is '${!name}'" "environment or settings of this script" \
        "it counts something" "use a whole number from 1 to 999999"
    fi
  done
}

# check_counts <name>...: like check_numbers, but 0 switches off
check_counts() {
  local name
  for name; do
    if [[ ! ${!name} =~ ^(0|[1-9][0-9]{0,5})$ ]]; then
      problem 2 "$name is '${!name}'" "environment or settings of this script" \
        "it is a limit, and 0 switches it off" "use a whole number from 0 to 999999"
    fi
  done
}

# read_hostfile <file>: fills hosts in rank order
read_hostfile() {
  local file=$1 line number=0 words host
  hosts=()
  if [[ ! -f $file || ! -r $file ]]; then
    problem 2 "the hostfile '$file' cannot be read" "HOSTFILE, seen from $PWD" \
      "it lists the nodes, one per line" "write it like $TASK/hostfile.example"
    return
  fi
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    line=${line#$'\xef\xbb\xbf'}
    line=${line%%#*}
    read -ra words <<<"${line//$'\r'/ }"
    if ((${#words[@]} > 0)); then
      host=${words[0]#[}
      hosts+=("${host%]}")
      check_host_words "$file:$number" "${words[@]:1}"
    fi
  done <"$file"
  if ((${#hosts[@]} == 0)); then
    problem 2 "the hostfile '$file' names no node" "$file" \
      "it lists the nodes, one per line" "write it like $TASK/hostfile.example"
  fi
}

# check_host_words <place> <word>...: what follows a host name
check_host_words() {
  local place=$1 word
  for word in "${@:2}"; do
    if [[ $word != "slots=$NPUS_PER_NODE" ]]; then
      problem 2 "'$word' does not fit this run" "$place" \
        "a line is a host name, or a host name and slots=N with N equal to NPUS_PER_NODE" \
        "write slots=$NPUS_PER_NODE, or start with the NPUS_PER_NODE that is meant"
    fi
  done
}

# count_nodes: settles NNODES, reads HOSTFILE
count_nodes() {
  local asked=${given[NNODES]:-}
  hosts=()
  if [[ -z ${HOSTFILE:-} ]]; then
    return
  fi
  read_hostfile "$HOSTFILE"
  if [[ -n $asked && $asked != "${#hosts[@]}" && ${#hosts[@]} -gt 0 ]]; then
    problem 2 "NNODES is $asked and the hostfile names ${#hosts[@]} nodes" "$HOSTFILE" \
      "torchrun waits for exactly NNODES nodes" "unset NNODES, or correct the hostfile"
  elif ((${#hosts[@]} > 0)); then
    NNODES=${#hosts[@]} origin[NNODES]=hostfile
  fi
}

# own_names: every address and name of this machine, one per line, in lower case
own_names() {
  {
    hostname -I 2>/dev/null || ip -o addr show 2>/dev/null | awk '{ sub("/.*", "", $4); print $4 }' || true
    printf '%s\n' "${HOSTNAME:-}"
    hostname 2>/dev/null || true
    hostname -s 2>/dev/null || true
    hostname -f 2>/dev/null || true
  } | tr -s '[:space:]' '\n' | tr '[:upper:]' '[:lower:]' | sort -u
}

# find_rank: sets NODE_RANK to the one line of the hostfile that is this machine
find_rank() {
  local names rank ranks=()
  names=$(own_names)
  for rank in "${!hosts[@]}"; do
    # Whole lines: worker-1 must not match worker-10.
    if grep -Fxq -- "${hosts[rank],,}" <<<"$names"; then
      ranks+=("$rank")
    fi
  done
  NODE_RANK=${ranks[0]:-0} origin[NODE_RANK]=hostfile
  if ((${#ranks[@]} != 1)); then
    problem 2 "this machine stands on ${#ranks[@]} lines of the hostfile" "$HOSTFILE" \
      "exactly one line must be one of: $(tr '\n' ' ' <<<"$names" | sed 's/^ *//; s/ *$//')" \
      "correct the hostfile, or set NODE_RANK on each node (0 to $((NNODES - 1)))"
  fi
}

# find_place: settles NODE_RANK and MASTER_ADDR; without any hint rank 0 on localhost
find_place() {
  if ((${#hosts[@]} > 0)); then
    if [[ -z ${MASTER_ADDR:-} ]]; then
      # shellcheck disable=SC2034 # lib/place.sh prints where each came from
      MASTER_ADDR=${hosts[0]} origin[MASTER_ADDR]=hostfile
    fi
    if [[ -z ${NODE_RANK:-} ]]; then
      find_rank
    fi
  elif ((NNODES > 1)) && [[ -z ${NODE_RANK:-} || -z ${MASTER_ADDR:-} ]]; then
    problem 2 "the place of this machine among $NNODES nodes is not known" \
      "NODE_RANK='${NODE_RANK:-}' MASTER_ADDR='${MASTER_ADDR:-}' HOSTFILE=''" \
      "torchrun needs the rank of each node and one address that all of them reach" \
      "set HOSTFILE, or NODE_RANK and MASTER_ADDR (see $TASK/hostfile.example)"
  fi
  : "${NODE_RANK:=0}" "${MASTER_ADDR:=localhost}"
}

# check_rank: NODE_RANK, when it is set already, counts from 0
check_rank() {
  if [[ -z ${NODE_RANK:-} ]]; then
    return
  fi
  if [[ ! $NODE_RANK =~ ^(0|[1-9][0-9]{0,5})$ ]] || ((NODE_RANK >= NNODES)); then
    problem 2 "NODE_RANK is '$NODE_RANK'" "environment" \
      "the ranks of $NNODES nodes are 0 to $((NNODES - 1))" "set the rank of this node"
  fi
}

# least_nodes <NPUs of a node> <NPUs of a model copy>
least_nodes() {
  local nodes=1
  while ((nodes * $1 % $2)); do
    nodes=$((nodes + 1))
  done
  printf '%s' "$nodes"
}

# check_world: NNODES x NPUS_PER_NODE must hold whole model copies; sets DP
check_world() {
  local world=$((NNODES * NPUS_PER_NODE)) copy=$((TP * PP * CP)) least
  DP=$((world / copy))
  if ((world % copy)); then
    least=$(least_nodes "$NPUS_PER_NODE" "$copy")
    problem 2 "$NNODES x $NPUS_PER_NODE = $world NPUs cannot hold TP $TP x PP $PP x CP $CP = $copy" \
      "NNODES=$NNODES NPUS_PER_NODE=$NPUS_PER_NODE" \
      "one copy of the model takes $copy NPUs, and the number of NPUs must be a multiple of it" \
      "use $least nodes of $NPUS_PER_NODE or a multiple of that, or change parallel in $TASK/profile.yaml, render and convert again"
  fi
}

# check_batch: sets GLOBAL_BATCH_SIZE; one that the caller set must divide evenly
check_batch() {
  local step=$((MICRO_BATCH_SIZE * DP))
  if [[ -z ${GLOBAL_BATCH_SIZE:-} ]]; then
    GLOBAL_BATCH_SIZE=$((step * GRAD_ACCUMULATION))
    return
  fi
  if ((GLOBAL_BATCH_SIZE % step)); then
    problem 2 "GLOBAL_BATCH_SIZE $GLOBAL_BATCH_SIZE is not a multiple of $step" "environment" \
      "each of the $DP data parallel ranks takes whole micro batches of $MICRO_BATCH_SIZE" \
      "use a multiple of $step, or set GRAD_ACCUMULATION instead"
  fi
}

# settle_cluster: checks the settings and derives the rest.
# Ends with the faults that leave no correct command; an unknown place is left to the preflight.
settle_cluster() {
  adopt_platform
  count_nodes
  check_numbers NNODES NPUS_PER_NODE MICRO_BATCH_SIZE GRAD_ACCUMULATION MASTER_PORT \
    ${GLOBAL_BATCH_SIZE:+GLOBAL_BATCH_SIZE}
  stop_on_problems
  check_rank
  check_world
  stop_on_problems
  check_batch
  stop_on_problems
  find_place
  show_place
}
