#!/usr/bin/env bats
# A run from its start to its summary, with a stub in place of torchrun.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  with_everything
  export ASCEND_PREFIX=$BATS_TEST_TMPDIR/ascend
}

# training_log <steps>: lines as the last rank prints them; the first step is slow
training_log() {
  local step ms
  for ((step = 1; step <= $1; step++)); do
    ms=$((step == 1 ? 90000 : 1000 + step))
    printf ' [2026-01-01 00:00:%02d] iteration %8d/%8d | consumed samples: %12d | elapsed time per iteration (ms): %d.0 | learning rate: 1.000000E-05 | global batch size:    32 | tokens per sample: 5.000000E+02 | loss: 1.5E+00 | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n' \
      "$step" "$step" "$1" $((step * 32)) "$ms"
  done
}

# stub_training <steps>: torchrun prints such a log
stub_training() {
  training_log "$1" >"$BATS_TEST_TMPDIR/output"
  stub torchrun "cat '$BATS_TEST_TMPDIR/output'"
}

@test "torchrun gets exactly the words of the dry run" {
  run -0 --separate-stderr finetune --dry-run --extra 'two words'
  local words
  eval "words=($output)"
  run -0 finetune --extra 'two words'
  diff <(printf '%s\n' "${words[@]:1}") "$CALLS/torchrun"
}

@test "a start says first which modules train" {
  run -0 --separate-stderr finetune
  [[ $stderr == *"tuning: lora"* ]]
  [[ $stderr =~ text\ layers\ +[0-9,]+\ +[0-9,]+\ +LoRA\ on ]]
  TUNING=full run -0 --separate-stderr finetune
  [[ $stderr == *"tuning: full"* ]]
  [[ $stderr =~ vision\ encoder\ +[0-9,]+\ +0\ +frozen ]]
  [[ $stderr != *"LoRA on"* ]]
}

@test "a failing torchrun gives its exit status, with the log kept" {
  stub torchrun 'echo out; echo err >&2; exit 37'
  run -37 --separate-stderr finetune
  [[ $output == *out* ]]
  [[ $stderr == *"exit status 37"* ]]
  grep -Fxq out logs/*.log
  grep -Fxq err logs/*.log
}

@test "finetune.sh, the alias and run_exp_MA.sh give that status too" {
  stub torchrun 'exit 37'
  run -37 bash tasks/finetune.sh "$MODEL"
  run -37 bash tasks/qwen2.5vl/finetune_qwen2_5_vl.sh
  run -37 bash tasks/qwen2.5vl/run_exp_MA.sh
}

# start_in_background [<word>...]: sets pid to the launcher's own, once its trainer is ready. A launcher that
# hangs fails its test: timeout passes signals on to it alone, and kills it after a while.
start_in_background() {
  "$@" timeout --foreground -s KILL 30 bash "$TASK/finetune_qwen2_5_vl.sh" >out 2>err 3>&- &
  pid=$!
  wait_for_line ready
}

# wait_for_line <line>: until the log holds it
wait_for_line() {
  local tenths
  for ((tenths = 0; tenths < 300; tenths++)); do
    if grep -Fxq "$1" logs/*.log 2>/dev/null; then
      return
    fi
    sleep 0.1
  done
  return 1
}

@test "SIGTERM reaches torchrun, which may end in its own time and with its own status" {
  stub torchrun "trap 'sleep 0.3; echo saved; exit 9' TERM" 'echo ready' 'while true; do sleep 0.05; done'
  local pid status=0
  start_in_background
  kill -TERM "$pid"
  wait "$pid" || status=$?
  [[ $status -eq 9 ]]
  grep -Fxq saved logs/*.log
  grep -Fxq saved out
}

@test "a second SIGTERM is passed on as well" {
  stub torchrun 'count=0' "trap 'count=\$((count + 1)); echo term \$count; if ((count == 2)); then exit 8; fi' TERM" \
    'echo ready' 'while true; do sleep 0.05; done'
  local pid status=0
  start_in_background
  kill -TERM "$pid"
  wait_for_line 'term 1'
  kill -TERM "$pid"
  wait "$pid" || status=$?
  [[ $status -eq 8 ]]
}

@test "a signal to the whole process group leaves the log alive until torchrun is done" {
  stub torchrun "trap 'sleep 0.3; echo saved; exit 9' TERM" 'echo ready' 'while true; do sleep 0.05; done'
  local pid status=0
  start_in_background setsid
  kill -TERM -- "-$pid"
  wait "$pid" || status=$?
  [[ $status -eq 9 ]]
  grep -Fxq saved logs/*.log
}

@test "a torchrun that dies of a signal is a failure" {
  stub torchrun 'kill -KILL $$'
  run -137 finetune
}

@test "the log holds all that is printed, and says where it is" {
  stub_training 3
  run -0 --separate-stderr finetune
  local log
  log=$(echo logs/*.log)
  [[ $log == logs/${MODEL}_lora_node0_*.log ]]
  [[ $stderr == *"log: $CHECKOUT/$log"* ]]
  diff "$log" "$BATS_TEST_TMPDIR/output"
  [[ $(stat -c %a "$log") == 640 ]]
}

@test "the summary leaves the warm-up out" {
  stub_training 4
  run -0 --separate-stderr finetune
  [[ $output == *$'\niterations:      4\n'* ]]
  [[ $output == *"mean step time:  1003.5 ms (last 2 of 4 log lines)"* ]]
  [[ $output == *"samples/s:       31.888"* ]]
  [[ $output == *"tokens/s:        15944.2"* ]]
}

@test "the warm-up is at most 50 iterations" {
  stub_training 120
  run -0 --separate-stderr finetune
  [[ $output == *"mean step time:  1085.5 ms (last 70 of 120 log lines)"* ]]
}

@test "a run of one step has a summary" {
  stub_training 1
  run -0 --separate-stderr finetune
  [[ $output == *$'\niterations:      1\n'*"mean step time:  90000.0 ms (last 1 of 1 log lines)"* ]]
}

@test "lines that two processes glued together are counted" {
  training_log 4 | tr -d '\n' | sed 's/ \[2026/noise of another rank [2026/g' >"$BATS_TEST_TMPDIR/output"
  stub torchrun "cat '$BATS_TEST_TMPDIR/output'"
  run -0 --separate-stderr finetune
  [[ $output == *"iterations:      4"*"mean step time:  1003.5 ms (last 2 of 4 log lines)"* ]]
}

@test "a log without tokens has a summary without tokens" {
  training_log 2 | sed 's/ tokens per sample: [^|]*|//' >"$BATS_TEST_TMPDIR/output"
  stub torchrun "cat '$BATS_TEST_TMPDIR/output'"
  run -0 --separate-stderr finetune
  [[ $output == *"samples/s:"* ]]
  [[ $output != *tokens/s* ]]
}

@test "a node without the last rank says where the numbers are" {
  export NNODES=4 NPUS_PER_NODE=8 NODE_RANK=1 MASTER_ADDR=a
  run -0 --separate-stderr finetune
  [[ $stderr == *"the last rank prints them, on node 3"* ]]
}

@test "NaN iterations are a warning" {
  training_log 2 | sed '2s/nan iterations:   0/nan iterations:   1/' >"$BATS_TEST_TMPDIR/output"
  stub torchrun "cat '$BATS_TEST_TMPDIR/output'"
  run -0 --separate-stderr finetune
  [[ $stderr == *"warning: 1 iterations had a NaN"* ]]
}

@test "saved weights get the layout file and modes that the group can read" {
  stub torchrun 'umask 077' 'mkdir -p save_dir/iter_0000005/mp_rank_00_000' \
    'echo w >save_dir/iter_0000005/mp_rank_00_000/model_optim_rng.pt' \
    'echo 5 >save_dir/latest_checkpointed_iteration.txt'
  mkdir save_dir
  echo mine >save_dir/notes.sh
  chmod 700 save_dir/notes.sh
  run -0 --separate-stderr finetune
  cmp save_dir/taskpack_layout.json ckpt/mm_path/Qwen2.5-VL-32B-Instruct/taskpack_layout.json
  [[ $(stat -c %a save_dir save_dir/iter_0000005 save_dir/iter_0000005/mp_rank_00_000 | sort -u) == 750 ]]
  [[ $(stat -c %a save_dir/iter_0000005/mp_rank_00_000/model_optim_rng.pt) == 640 ]]
  [[ $(stat -c %a save_dir/latest_checkpointed_iteration.txt save_dir/taskpack_layout.json | sort -u) == 640 ]]
  [[ $(stat -c %a save_dir/notes.sh) == 700 ]]
}

@test "a run that cannot copy the layout file is still a success, with a warning" {
  mkdir -p save_dir/taskpack_layout.json.node0
  run -0 --separate-stderr finetune
  [[ $stderr == *"warning: layout and modes of save_dir are not complete"* ]]
}

@test "a checkout whose logs cannot be written is refused" {
  touch logs
  run -5 --separate-stderr finetune
  has_error "the folder 'logs' cannot be made" "$CHECKOUT"
  [[ ! -e $CALLS/torchrun ]]
}

@test "a failed run gets no layout file" {
  stub torchrun 'mkdir -p save_dir; exit 1'
  run -1 finetune
  [[ ! -e save_dir/taskpack_layout.json ]]
}

# vendor_script <path below the prefix>: it reads unset variables, "$@" and lets commands fail
vendor_script() {
  mkdir -p "$(dirname "$ASCEND_PREFIX/$1")"
  cat >"$ASCEND_PREFIX/$1" <<SCRIPT
[ -n "\$SOME_UNSET_VARIABLE" ]
for word in "\$@"; do exit 1; done
false
export SOURCED="\${SOURCED:-} $1"
SCRIPT
}

@test "cann/set_env.sh comes before ascend-toolkit/set_env.sh, and ATB after both" {
  vendor_script cann/set_env.sh
  vendor_script ascend-toolkit/set_env.sh
  vendor_script nnal/atb/set_env.sh
  stub torchrun 'echo "sourced:$SOURCED"'
  run -0 --separate-stderr finetune
  [[ $output == *"sourced: cann/set_env.sh nnal/atb/set_env.sh"* ]]
  [[ $stderr == *"environment: $ASCEND_PREFIX/cann/set_env.sh"*"environment: $ASCEND_PREFIX/nnal/atb/set_env.sh"* ]]
}

@test "ascend-toolkit/set_env.sh serves older installations" {
  vendor_script ascend-toolkit/set_env.sh
  stub torchrun 'echo "sourced:$SOURCED"'
  run -0 --separate-stderr finetune
  [[ $output == *"sourced: ascend-toolkit/set_env.sh"* ]]
}

@test "no set_env.sh is a warning only" {
  run -0 --separate-stderr finetune
  [[ $stderr == *"warning: no CANN set_env.sh under $ASCEND_PREFIX"* ]]
}

@test "torchrun sees the environment of the profile, and the caller's wins" {
  stub torchrun 'echo "env $HCCL_CONNECT_TIMEOUT $CUDA_DEVICE_MAX_CONNECTIONS"'
  HCCL_CONNECT_TIMEOUT=7200 run -0 --separate-stderr finetune
  [[ $output == *"env 7200 1"* ]]
}
