# shellcheck shell=bash
# Platforms that start the launcher once per node. Each reader fills found with what the platform's
# variables say about NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and NPUS_PER_NODE.

# detect_platform: its name, or nothing. WORLD_SIZE counts NPUs on an AscendJob and pods elsewhere, so
# what only one platform sets is looked at first.
detect_platform() {
  if [[ -n ${MA_VJ_NAME:-}${MA_NUM_HOSTS:-} ]]; then
    printf modelarts
  elif [[ -n ${MINDX_TASK_ID:-} || ${LOCAL_RANK:-} == *,* ]]; then
    printf ascendjob
  elif [[ -n ${VC_TASK_INDEX:-}${VK_TASK_INDEX:-}$(host_lists) ]]; then
    printf volcano
  elif [[ -n ${PET_NNODES:-}${PET_NODE_RANK:-} ]]; then
    printf kubeflow
  elif [[ -n ${RANK:-} && -n ${WORLD_SIZE:-} && -n ${MASTER_ADDR:-} && -z ${TORCHELASTIC_RUN_ID:-} ]]; then
    printf kubeflow
  elif [[ -n ${SLURM_JOB_ID:-} ]]; then
    printf slurm
  fi
}

# host_lists: Volcano's lists of hosts, that of the task "master" first. Tasks of other names count
# only where neither a master nor a worker is there.
host_lists() {
  if [[ -n ${VC_MASTER_HOSTS:-}${VC_WORKER_HOSTS:-} ]]; then
    printf '%s\n' ${VC_MASTER_HOSTS:+VC_MASTER_HOSTS} ${VC_WORKER_HOSTS:+VC_WORKER_HOSTS}
  else
    compgen -A variable VC_ | grep -xE 'VC_[A-Z0-9_]+_HOSTS' || true
  fi
}

# is_count <text>: short enough for shell arithmetic
is_count() {
  [[ $1 =~ ^[1-9][0-9]{0,5}$ ]]
}

# index_in_name <host>: N of "...-N", with or without a domain behind it
index_in_name() {
  local host=${1%%.*}
  if [[ $host =~ -(0|[1-9][0-9]*)$ ]]; then
    printf '%s' "${BASH_REMATCH[1]}"
  fi
}

# check_listed <variables> <host>...: they list every node of the job
check_listed() {
  local nodes=${given[NNODES]:-${found[NNODES]:-}}
  if (($# > 1)) && [[ $nodes != "$(($# - 1))" ]]; then
    problem 2 "$nodes nodes, and $1 names $(($# - 1))" "NNODES=$nodes, and the hosts ${*:2}" \
      "every node of the job takes part" "unset NNODES in the job, or ask for $nodes nodes"
  fi
}

read_modelarts() {
  local workers=()
  IFS=, read -ra workers <<<"${VC_WORKER_HOSTS:-}"
  found[NNODES]=${MA_NUM_HOSTS:-${VC_WORKER_NUM:-}}
  found[NODE_RANK]=${VC_TASK_INDEX:-$(index_in_name "${HOSTNAME:-}")}
  found[MASTER_ADDR]=${workers[0]:-}
  if [[ ${MA_NUM_GPUS:-0} != 0 ]]; then
    found[NPUS_PER_NODE]=$MA_NUM_GPUS
  fi
  if [[ ${found[NNODES]} == 1 ]]; then
    found[NODE_RANK]=0 found[MASTER_ADDR]=localhost
  fi
  check_listed VC_WORKER_HOSTS "${workers[@]}"
}

# read_ascendjob: WORLD_SIZE counts NPUs, RANK pods, and LOCAL_RANK lists the NPUs of the pod
read_ascendjob() {
  local npus=() here
  IFS=, read -ra npus <<<"${LOCAL_RANK:-}"
  here=${LOCAL_WORLD_SIZE:-${#npus[@]}}
  if ! is_count "$here" || ! is_count "${WORLD_SIZE:-}" || ((WORLD_SIZE % here)); then
    problem 2 "WORLD_SIZE is '${WORLD_SIZE:-}' and LOCAL_WORLD_SIZE '$here'" "environment of the AscendJob" \
      "there the first counts all NPUs and the second those of this pod" \
      "give every pod the same number of NPUs, or set NNODES, NODE_RANK and NPUS_PER_NODE, and PLATFORM=none"
    return
  fi
  found[NNODES]=$((WORLD_SIZE / here)) found[NPUS_PER_NODE]=$here found[NODE_RANK]=${RANK:-}
  found[MASTER_ADDR]=${MASTER_ADDR:-} found[MASTER_PORT]=${given[MASTER_PORT]}
}

# read_volcano: the pytorch plugin ranks all pods, the env plugin those of one task, the svc plugin lists hosts
read_volcano() {
  local lists=() name hosts_of=() all=() rank
  mapfile -t lists < <(host_lists)
  for name in "${lists[@]}"; do
    IFS=, read -ra hosts_of <<<"${!name}"
    all+=("${hosts_of[@]}")
  done
  found[NNODES]=${WORLD_SIZE:-${#all[@]}}
  if [[ ${found[NNODES]} == 0 ]]; then
    found[NNODES]=
  fi
  found[MASTER_ADDR]=${MASTER_ADDR:-${all[0]:-}} found[MASTER_PORT]=${given[MASTER_PORT]}
  if [[ -n ${WORLD_SIZE:-} && -n ${RANK:-} ]]; then
    found[NODE_RANK]=$RANK
  elif ((${#lists[@]} > 1)); then
    for rank in "${!all[@]}"; do
      if [[ ${all[rank]%%.*} == "${HOSTNAME%%.*}" ]]; then
        found[NODE_RANK]=$rank
      fi
    done
  else
    found[NODE_RANK]=${VC_TASK_INDEX:-${VK_TASK_INDEX:-$(index_in_name "${HOSTNAME:-}")}}
  fi
  check_listed "${lists[*]}" "${all[@]}"
}

# read_kubeflow: the PET_ variables of torchrun where they are set, else WORLD_SIZE counts pods
read_kubeflow() {
  local nodes=${PET_NNODES:-${WORLD_SIZE:-}} endpoint=${PET_RDZV_ENDPOINT:-}
  if [[ $nodes == *:* && ${nodes%%:*} != "${nodes##*:}" ]]; then
    problem 2 "PET_NNODES is '$nodes'" "environment of the PyTorchJob" \
      "the weights are cut for a fixed number of NPUs" "set minReplicas and maxReplicas alike, or drop elasticPolicy"
  fi
  found[NNODES]=${nodes%%:*} found[NODE_RANK]=${PET_NODE_RANK:-${RANK:-}}
  found[MASTER_ADDR]=${PET_MASTER_ADDR:-${MASTER_ADDR:-${endpoint%:*}}}
  found[MASTER_PORT]=${PET_MASTER_PORT:-${given[MASTER_PORT]}}
  if [[ -z ${found[MASTER_PORT]} && $endpoint =~ :([0-9]+)$ ]]; then
    found[MASTER_PORT]=${BASH_REMATCH[1]}
  fi
  if is_count "${PET_NPROC_PER_NODE:-}"; then
    found[NPUS_PER_NODE]=$PET_NPROC_PER_NODE
  fi
}

read_slurm() {
  local job_nodes=()
  found[NNODES]=${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-}} found[NODE_RANK]=${SLURM_NODEID:-}
  if [[ ${given[NNODES]:-${found[NNODES]}} != 1 && -z ${SLURM_STEP_ID:-} && -z ${given[NODE_RANK]} ]]; then
    problem 2 "this is no step of srun, and the job has ${found[NNODES]} nodes" "SLURM_STEP_ID=''" \
      "outside srun every node would take rank 0, or not start at all" \
      "srun --ntasks-per-node=1 bash $TASK/..., or sbatch $TASK/slurm/finetune.sbatch"
  elif [[ ${SLURM_LOCALID:-0} != 0 ]]; then
    problem 2 "srun started more than one task on this node" "SLURM_LOCALID=$SLURM_LOCALID" \
      "torchrun starts the processes of a node" "srun --ntasks-per-node=1"
  fi
  if [[ -z ${MASTER_ADDR:-} ]] && type -P scontrol >/dev/null; then
    mapfile -t job_nodes < <(scontrol show hostnames "${SLURM_JOB_NODELIST:-}")
    found[MASTER_ADDR]=${job_nodes[0]:-}
  fi
  if [[ $SLURM_JOB_ID =~ ^[0-9]{1,12}$ ]]; then
    # below the ports that Linux hands out by itself, and another for each job of a node
    found[MASTER_PORT]=$((20000 + 10#$SLURM_JOB_ID % 10000))
  fi
}
