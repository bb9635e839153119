# shellcheck shell=bash disable=SC2154 # run.sh sets the options
# Options of the engine that start a run: network, memory, variables.

# variables of the launchers, of HCCL and of the networks below it that have a meaning inside
readonly HANDED_ON='^(NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT|NPUS_PER_NODE|TUNING|LOAD_PATH|SAVE_PATH|SKIP_CHECKS|MICRO_BATCH_SIZE|GLOBAL_BATCH_SIZE|GRAD_ACCUMULATION|TRAIN_ITERS|SEQ_LENGTH|LR|SAVE_INTERVAL|LOG_INTERVAL|ITERATION|HCCL_.*|(GLOO|TP)_SOCKET_IFNAME|ASCEND_(GLOBAL_LOG_LEVEL|LAUNCH_BLOCKING|SLOG_PRINT_TO_STDOUT))$'

# count_nodes: HOSTFILE, NNODES or, for a model, the number its launcher would take
count_nodes() {
  local launchers=("$REPO/tasks/$model"/finetune_*.sh) nodes=''
  if [[ -n ${HOSTFILE:-} && -r $HOSTFILE ]]; then
    nodes=$(sed 's/#.*//; s/\r//' "$HOSTFILE" | grep -c '[^[:space:]]' || true)
  elif [[ -n ${NNODES:-} ]]; then
    nodes=$NNODES
  elif [[ -n $model && -f ${launchers[0]} ]]; then
    nodes=$(sed -n "s/^: \"\${NNODES:=\([0-9]*\)}\"\$/\1/p" "${launchers[0]}")
  fi
  printf '%s' "${nodes:-1}"
}

# add_network: HCCL of several nodes opens ports of the host
add_network() {
  local nodes
  nodes=$(count_nodes)
  if [[ $nodes != 1 && $net == bridge ]]; then
    problem 2 "--net bridge with $nodes nodes" "command line" \
      "nodes reach each other on ports of the hosts, which HCCL chooses" "leave --net out, or set NNODES=1"
  elif [[ $nodes != 1 || $net == host ]]; then
    arguments+=(--net=host)
  fi
}

# add_memory: never both, engines refuse the pair or ignore the size
add_memory() {
  if [[ -n $shm_size ]]; then
    arguments+=("--shm-size=$shm_size")
  else
    arguments+=(--ipc=host)
  fi
}

# add_variables: those of the caller's environment that have a meaning inside, then --env
add_variables() {
  local variable
  while IFS= read -r variable; do
    if [[ $variable =~ $HANDED_ON ]]; then
      arguments+=(--env "$variable=${!variable}")
    fi
  done < <(compgen -e | sort)
  if [[ -n $npu_choice && $npu_choice != none && -z ${NPUS_PER_NODE:-} ]]; then
    arguments+=(--env "NPUS_PER_NODE=${#npus[@]}")
  fi
  if [[ -n ${HOSTFILE:-} ]]; then
    if [[ ! -r $HOSTFILE ]]; then
      problem 2 "the hostfile '$HOSTFILE' cannot be read" "HOSTFILE" "it lists the nodes" "name an existing file"
    else
      add_bind "$(full_path "$(dirname -- "$HOSTFILE")")/${HOSTFILE##*/}" /workspace/hostfile readonly
      arguments+=(--env HOSTFILE=/workspace/hostfile)
    fi
  fi
  arguments+=(--env "ASCEND_PREFIX=$ASCEND_PREFIX")
  for variable in "${variables[@]}"; do
    arguments+=(--env "$variable")
  done
}

# set_arguments: group 1000 owns the device nodes, whoever runs
set_arguments() {
  arguments=(--rm --user "$user" --group-add 1000 --ulimit nofile=65536:65536)
  if [[ -n $detach ]]; then
    arguments+=(--detach)
  elif [[ -t 0 && -t 1 && $mode != --dry-run ]]; then
    arguments+=(--interactive --tty)
  fi
  if [[ -n $name ]]; then
    arguments+=(--name "$name")
  fi
  add_memory
  add_network
  if has_ascend_runtime; then
    add_npus_by_runtime
  else
    add_npus_by_device
  fi
  add_folders
  add_variables
}
