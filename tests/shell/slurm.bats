#!/usr/bin/env bats
# The batch script of Slurm, with an srun that runs the launcher once per node.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  stub scontrol 'printf "n%s\n" 1 2'
  # shellcheck disable=SC2016 # expanded by the stub
  stub srun 'while [[ $1 == --* ]]; do shift; done' 'for node in 0 1; do SLURM_STEP_ID=0 SLURM_NODEID=$node SLURM_LOCALID=0 "$@" || exit; done'
  export SLURM_JOB_ID=77 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST='n[1-2]' SLURM_NODEID=0 SLURM_SUBMIT_DIR=$CHECKOUT
  unset MASTER_ADDR MASTER_PORT
}

@test "each node gets its own rank, and all the same master and port" {
  # as Slurm does, from its spool folder
  cp "$TASK/slurm/finetune.sbatch" "$BATS_TEST_TMPDIR/slurm_script"
  cd /
  run -0 --separate-stderr bash "$BATS_TEST_TMPDIR/slurm_script" --dry-run --extra 'two words'
  [[ $(wc -l <<<"$output") -eq 2 ]]
  local rank
  for rank in 0 1; do
    [[ $(sed -n $((rank + 1))p <<<"$output") == *"--nnodes 2 --node_rank $rank --master_addr n1 --master_port 20077 "*'two\ words' ]]
  done
  [[ $(sed -n 1,2p "$CALLS/srun") == $'--ntasks-per-node=1\n--kill-on-bad-exit=1' ]]
}

@test "a job that was submitted elsewhere is refused" {
  SLURM_SUBMIT_DIR=$BATS_TEST_TMPDIR run -2 --separate-stderr bash "$TASK/slurm/finetune.sbatch"
  has_error "$TASK/finetune_qwen2_5_vl.sh is not there" "sbatch"
  [[ ! -e $CALLS/srun ]]
}
