#!/usr/bin/env bats
# ModelArts variables become the launcher's.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  stub getent
}

# on_node <index> <nodes>: what the platform sets
on_node() {
  local index hosts=()
  for ((index = 0; index < $2; index++)); do
    hosts+=("job-worker-$index.job")
  done
  export MA_NUM_HOSTS=$2 VC_TASK_INDEX=$1 MA_NUM_GPUS=8 HOSTNAME=job-worker-$1 MA_JOB_DIR=$BATS_TEST_TMPDIR
  VC_WORKER_HOSTS=$(
    IFS=,
    printf '%s' "${hosts[*]}"
  )
  export VC_WORKER_HOSTS
}

# run_exp [<argument>...]: as the job form starts it, without run bits
run_exp() {
  chmod -R a-x,u+X tasks
  bash "$MA_JOB_DIR/check out/tasks/qwen2.5vl/run_exp_MA.sh" "$@"
}

# node_arguments: "<nproc> <nnodes> <node_rank> <master_addr>" of the command on stdout
node_arguments() {
  printf '%s %s %s %s' "$(argument --nproc_per_node "$output")" "$(argument --nnodes "$output")" \
    "$(argument --node_rank "$output")" "$(argument --master_addr "$output")"
}

@test "every node of two gets its rank and the first name as master" {
  on_node 0 2
  run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '8 2 0 job-worker-0.job' ]]
  on_node 1 2
  run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '8 2 1 job-worker-0.job' ]]
}

@test "twelve nodes: the eleventh is not the second" {
  on_node 10 12
  run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '8 12 10 job-worker-0.job' ]]
  unset VC_TASK_INDEX
  run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '8 12 10 job-worker-0.job' ]]
}

@test "one node of 16 NPUs meets on localhost" {
  export MA_NUM_HOSTS=1 VC_TASK_INDEX=0 MA_NUM_GPUS=16 MA_JOB_DIR=$BATS_TEST_TMPDIR
  run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '16 1 0 localhost' ]]
}

@test "one node of 8 NPUs is refused with the reason" {
  on_node 0 1
  run -2 --separate-stderr run_exp --dry-run
  has_error "1 x 8 = 8 NPUs cannot hold"
}

@test "our own variables in the job form win" {
  on_node 1 2
  NPUS_PER_NODE=16 MASTER_ADDR=head run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '16 2 1 head' ]]
}

@test "a node count that contradicts the hosts is refused" {
  on_node 0 2
  NNODES=4 run -2 --separate-stderr run_exp --dry-run
  has_error "4 nodes, and VC_WORKER_HOSTS names 2" "unset NNODES"
}

@test "the torchrun of a preset starts this once per NPU: the first works, and not with its port" {
  on_node 0 2
  export TORCHELASTIC_RUN_ID=1 LOCAL_RANK=1 RANK=1 WORLD_SIZE=16 MASTER_ADDR=outer MASTER_PORT=29400
  run -0 --separate-stderr run_exp --dry-run
  [[ -z $output && $stderr == *"started once per NPU"* ]]
  LOCAL_RANK=0 RANK=0 run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '8 2 0 job-worker-0.job' ]]
  [[ $(argument --master_port "$output") == 29501 ]]
}

@test "outside ModelArts the script is the launcher" {
  MA_JOB_DIR=$BATS_TEST_TMPDIR
  run -0 --separate-stderr run_exp --dry-run
  [[ $(node_arguments) == '8 2 0 localhost' ]]
}

@test "a start per NPU works on device 0 and is done on the others" {
  on_node 0 2
  export RANK_TABLE_FILE=/user/config/jobstart_hccl.json RANK_ID=3 RANK_SIZE=16 ASCEND_DEVICE_ID=3
  run -0 --separate-stderr run_exp --dry-run
  [[ -z $output ]]
  [[ $stderr == *"started once per NPU"* ]]
  RANK_ID=8 ASCEND_DEVICE_ID=0 run -0 --separate-stderr run_exp --dry-run
  [[ $output == torchrun* ]]
}

@test "the trainer sees neither a rank table nor another launcher's ranks" {
  with_everything
  unset NNODES NPUS_PER_NODE
  on_node 0 2
  export RANK_TABLE_FILE=/user/config/jobstart_hccl.json RANK_ID=0 ASCEND_DEVICE_ID=0 WORLD_SIZE=2 RANK=0
  stub torchrun 'env'
  run -0 --separate-stderr run_exp
  [[ $output != *RANK_TABLE_FILE* && $output != *RANK_ID* && $output != *WORLD_SIZE* ]]
}

@test "a master whose name never resolves ends the wait with a reason" {
  with_everything
  unset NNODES NPUS_PER_NODE
  on_node 1 2
  stub getent 'exit 2'
  MASTER_WAIT_SECONDS=0 run -5 --separate-stderr run_exp
  has_error "the name 'job-worker-0.job' of the master cannot be resolved after 0 s" "MASTER_WAIT_SECONDS"
  [[ ! -e $CALLS/torchrun ]]
}

@test "a master whose name resolves late is waited for" {
  with_everything
  unset NNODES NPUS_PER_NODE
  on_node 1 2
  stub getent '[[ -e $CALLS/asked ]] && exit 0; touch "$CALLS/asked"; exit 2'
  run -0 --separate-stderr run_exp
  grep -Fxq job-worker-0.job "$CALLS/torchrun"
}

@test "extra arguments and the exit status pass through" {
  with_everything
  unset NNODES NPUS_PER_NODE
  on_node 1 2
  stub torchrun 'exit 11'
  run -11 run_exp --train-iters 3
  [[ $(tail -n 1 "$CALLS/torchrun") == 3 ]]
}

@test "merge_ckpt_MA.sh merges and exports on node 0 only" {
  stub taskpack 'printf "%s\n" "$*" >>"$CALLS/order"'
  mkdir -p ckpt/mm_merged/Qwen2.5-VL-32B-Instruct
  VC_TASK_INDEX=1 run -0 --separate-stderr bash tasks/qwen2.5vl/merge_ckpt_MA.sh
  [[ $stderr == *"node 0 merges"* && ! -e $CALLS/order ]]
  VC_TASK_INDEX=0 run -0 bash tasks/qwen2.5vl/merge_ckpt_MA.sh --overwrite
  [[ $(cut -d ' ' -f 1-2 "$CALLS/order") == $'lora merge\nconvert mm-to-hf' ]]
  rm "$CALLS/order"
  TUNING=full run -0 bash tasks/qwen2.5vl/merge_ckpt_MA.sh
  [[ $(cut -d ' ' -f 1-2 "$CALLS/order") == 'convert mm-to-hf' ]]
}

@test "merge_ckpt_MA.sh stops when the merge fails" {
  stub taskpack 'printf "%s\n" "$*" >>"$CALLS/order"; exit 3'
  run -3 bash tasks/qwen2.5vl/merge_ckpt_MA.sh
  [[ $(wc -l <"$CALLS/order") -eq 1 ]]
}
