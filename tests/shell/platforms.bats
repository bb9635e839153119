#!/usr/bin/env bats
# What each platform sets on every node of 1, 2 and 12 becomes the torchrun command of that node.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  stub getent
  stub_hostname 10.9.9.9 laptop
  # a platform that runs these tests must not place them
  local name
  for name in $(compgen -e | grep -E '^(SLURM|VC|VK|MA|PET|MINDX)_|^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)$'); do
    unset "$name"
  done
}

# place: "<nproc> <nnodes> <node_rank> <master_addr> <master_port>" of the command on stdout
place() {
  local flag words=()
  for flag in --nproc_per_node --nnodes --node_rank --master_addr --master_port; do
    words+=("$(argument "$flag" "$output")")
  done
  printf '%s' "${words[*]}"
}

# npus <nodes>: of each node, so that TP 2 x PP 8 fits
npus() {
  if (($1 == 1)); then printf 16; else printf 8; fi
}

# listed <format> <count>: the names 0 to count - 1, with commas
listed() {
  local index words=()
  for ((index = 0; index < $2; index++)); do
    # shellcheck disable=SC2059 # the format is a test's own
    words+=("$(printf "$1" "$index")")
  done
  (IFS=, && printf '%s' "${words[*]}")
}

# on_every_node <setter> <master> <port>: the setter exports what the platform sets on a node; each dry
# run must name the place of its node
on_every_node() {
  local set_variables=$1 master=$2 port=$3 nodes rank expected
  for nodes in 1 2 12; do
    for ((rank = 0; rank < nodes; rank++)); do
      run -0 --separate-stderr node_command "$set_variables" "$rank" "$nodes"
      expected="$(npus "$nodes") $nodes $rank $(master_of "$nodes" "$master") $port"
      [[ $(place) == "$expected" ]] || {
        printf '%s, node %s of %s: %s, expected %s\n' "$set_variables" "$rank" "$nodes" "$(place)" "$expected"
        return 1
      }
    done
  done
}

# node_command <setter> <rank> <nodes>: the dry run in the environment of that node
node_command() (
  "$1" "$2" "$3"
  finetune --dry-run
)

# master_of <nodes> <master of several>
master_of() {
  if (($1 == 1)) && [[ -n ${MASTER_OF_ONE:-} ]]; then printf '%s' "$MASTER_OF_ONE"; else printf '%s' "$2"; fi
}

set_modelarts() {
  export MA_VJ_NAME=job MA_NUM_HOSTS=$2 MA_NUM_GPUS VC_WORKER_NUM=$2 VC_WORKER_HOSTS VC_TASK_INDEX=$1
  MA_NUM_GPUS=$(npus "$2") VC_WORKER_HOSTS=$(listed 'job-worker-%s.job' "$2")
}

@test "ModelArts" {
  MASTER_OF_ONE=localhost on_every_node set_modelarts job-worker-0.job 29501
}

set_modelarts_without_index() {
  set_modelarts "$@"
  unset VC_TASK_INDEX
  export HOSTNAME=job-worker-$1
}

@test "ModelArts without an index: the end of the pod's name, and worker-1 is not worker-10" {
  MASTER_OF_ONE=localhost on_every_node set_modelarts_without_index job-worker-0.job 29501
}

set_ascendjob() {
  local here
  here=$(npus "$2")
  export MINDX_TASK_ID=task MASTER_ADDR=10.96.0.5 MASTER_PORT=2222 RANK=$1 WORLD_SIZE=$(($2 * here))
  export LOCAL_WORLD_SIZE=$here LOCAL_RANK
  LOCAL_RANK=$(listed %s "$here")
}

@test "AscendJob: WORLD_SIZE counts NPUs" {
  on_every_node set_ascendjob 10.96.0.5 2222
}

set_ascendjob_of_old() {
  set_ascendjob "$@"
  unset MINDX_TASK_ID LOCAL_WORLD_SIZE
}

@test "AscendJob is known by its list of local ranks alone" {
  on_every_node set_ascendjob_of_old 10.96.0.5 2222
}

set_volcano() {
  export VC_WORKER_HOSTS VC_WORKER_NUM=$2 VC_TASK_INDEX=$1 VK_TASK_INDEX=$1 NPUS_PER_NODE
  NPUS_PER_NODE=$(npus "$2") VC_WORKER_HOSTS=$(listed 'j-worker-%s.j' "$2")
}

@test "Volcano with its svc and env plugins" {
  on_every_node set_volcano j-worker-0.j 29501
}

# one master and its workers: the index starts anew in each task, the pod's name says which
set_volcano_of_two_tasks() {
  export VC_MASTER_HOSTS=j-master-0.j VC_WORKER_HOSTS VC_TASK_INDEX=$(($1 ? $1 - 1 : 0)) HOSTNAME NPUS_PER_NODE
  NPUS_PER_NODE=$(npus "$2") VC_WORKER_HOSTS=$(listed 'j-worker-%s.j' $(($2 - 1)))
  HOSTNAME=$( (($1)) && echo "j-worker-$(($1 - 1))" || echo j-master-0)
}

@test "Volcano with a master and workers" {
  on_every_node set_volcano_of_two_tasks j-master-0.j 29501
}

set_volcano_pytorch() {
  set_volcano_of_two_tasks "$@"
  export MASTER_ADDR=j-master-0.j MASTER_PORT=23456 WORLD_SIZE=$2 RANK=$1 HOSTNAME=elsewhere
}

@test "Volcano with its pytorch plugin: WORLD_SIZE counts pods" {
  on_every_node set_volcano_pytorch j-master-0.j 23456
}

set_kubeflow() {
  export MASTER_ADDR=p-master-0 MASTER_PORT=23456 WORLD_SIZE=$2 RANK=$1 NPUS_PER_NODE
  NPUS_PER_NODE=$(npus "$2")
}

@test "Kubeflow: WORLD_SIZE counts pods" {
  on_every_node set_kubeflow p-master-0 23456
}

set_kubeflow_torchrun() {
  export PET_NNODES=$2 PET_NODE_RANK=$1 PET_MASTER_ADDR=p-node-0-0.p PET_MASTER_PORT=29400 PET_NPROC_PER_NODE
  PET_NPROC_PER_NODE=$(npus "$2")
  # newer operators count processes here
  export WORLD_SIZE=$(($2 * PET_NPROC_PER_NODE)) RANK=$1
}

@test "Kubeflow with torchrun's own variables" {
  on_every_node set_kubeflow_torchrun p-node-0-0.p 29400
}

set_kubeflow_elastic() {
  export PET_NNODES=$2:$2 PET_RDZV_ENDPOINT=p-worker-0:29400 PET_RDZV_BACKEND=c10d PET_NODE_RANK=$1 NPUS_PER_NODE
  NPUS_PER_NODE=$(npus "$2")
}

@test "Kubeflow with an elastic policy of a fixed size" {
  on_every_node set_kubeflow_elastic p-worker-0 29400
  export PET_NNODES=1:4 PET_NODE_RANK=0 PET_MASTER_ADDR=a
  run -2 --separate-stderr finetune --dry-run
  has_error "PET_NNODES is '1:4'" "elasticPolicy"
}

set_slurm() {
  export SLURM_JOB_ID=123456 SLURM_JOB_NUM_NODES=$2 SLURM_NODEID=$1 SLURM_PROCID=$1 SLURM_LOCALID=0 SLURM_STEP_ID=0
  export SLURM_JOB_NODELIST="n[1-$2]" NPUS_PER_NODE
  NPUS_PER_NODE=$(npus "$2")
  stub scontrol 'printf "n%s\n" 1 2 3'
}

@test "Slurm: the first host of the job, and a port of the job's own" {
  on_every_node set_slurm n1 23456
  [[ $(<"$CALLS/scontrol") == $'show\nhostnames\nn[1-12]' ]]
}

@test "Slurm outside srun, or with several tasks on a node, is refused" {
  set_slurm 0 2
  unset SLURM_STEP_ID
  run -2 --separate-stderr finetune --dry-run
  has_error "this is no step of srun, and the job has 2 nodes" "srun --ntasks-per-node=1"
  SLURM_STEP_ID=0 SLURM_LOCALID=1 run -2 --separate-stderr finetune --dry-run
  has_error "srun started more than one task on this node"
  # one node needs no srun
  SLURM_JOB_NUM_NODES=1 NPUS_PER_NODE=16 run -0 --separate-stderr finetune --dry-run
}

set_hostfile() {
  printf 'h%s\n' 1 2 3 4 5 6 7 8 9 10 11 12 | head -n "$2" >hosts
  stub_hostname 10.0.0.1 "h$(($1 + 1))"
  export HOSTFILE=hosts NPUS_PER_NODE
  NPUS_PER_NODE=$(npus "$2")
}

@test "a hostfile" {
  on_every_node set_hostfile h1 29501
}

@test "nothing: the profile, on this machine" {
  NNODES=1 NPUS_PER_NODE=16 run -0 --separate-stderr finetune --dry-run
  [[ $(place) == '16 1 0 localhost 29501' ]]
  [[ $stderr != *place:* ]]
}

@test "the environment wins over a hostfile, a hostfile over the platform, the platform over the profile" {
  set_modelarts 1 2
  run -0 --separate-stderr finetune --dry-run
  [[ $stderr == *"place: NNODES=2 (modelarts), NODE_RANK=1 (modelarts), MASTER_ADDR=job-worker-0.job (modelarts), MASTER_PORT=29501 (profile), NPUS_PER_NODE=8 (modelarts)"* ]]
  NODE_RANK=0 MASTER_ADDR=mine MASTER_PORT=999 run -0 --separate-stderr finetune --dry-run
  [[ $(place) == '8 2 0 mine 999' ]]
  [[ $stderr == *"NODE_RANK=0 (environment), MASTER_ADDR=mine (environment), MASTER_PORT=999 (environment)"* ]]
  printf 'a\nb\nlaptop\nd\n' >hosts
  HOSTFILE=hosts run -0 --separate-stderr finetune --dry-run
  [[ $(place) == '8 4 2 a 29501' ]]
  HOSTFILE=hosts NODE_RANK=3 run -0 --separate-stderr finetune --dry-run
  [[ $(place) == '8 4 3 a 29501' ]]
}

@test "PLATFORM=none looks at no platform, a name forces one, and another word is refused" {
  set_modelarts 1 2
  PLATFORM=none NNODES=1 NPUS_PER_NODE=16 run -0 --separate-stderr finetune --dry-run
  [[ $(place) == '16 1 0 localhost 29501' ]]
  unset MA_VJ_NAME MA_NUM_HOSTS
  PLATFORM=volcano run -0 --separate-stderr finetune --dry-run
  [[ $stderr == *"NODE_RANK=1 (volcano)"* ]]
  PLATFORM=k8s run -2 --separate-stderr finetune --dry-run
  has_error "PLATFORM is 'k8s'" "kubeflow"
}

@test "an AscendJob whose numbers do not divide is refused" {
  set_ascendjob 0 2
  WORLD_SIZE=15 run -2 --separate-stderr finetune --dry-run
  has_error "WORLD_SIZE is '15' and LOCAL_WORLD_SIZE '8'" "PLATFORM=none"
  WORLD_SIZE='a[$(touch evaluated)]' run -2 --separate-stderr finetune --dry-run
  [[ ! -e evaluated ]]
}

@test "torchrun sees neither ranks nor rendezvous of the platform, nor a rank table" {
  with_everything
  unset NNODES NPUS_PER_NODE
  set_ascendjob 0 2
  export RANK_TABLE_FILE=/t PET_RDZV_BACKEND=c10d GROUP_RANK=1
  stub torchrun env
  run -0 --separate-stderr finetune
  [[ $output == *MASTER_ADDR=10.96.0.5* ]]
  run ! grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|RANK_TABLE_FILE|PET_[A-Z_]+)=' <<<"$output"
}
