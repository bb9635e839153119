#!/usr/bin/env bats
# The watchdog, and going on after a failure, with a torchrun that hangs, dies or saves.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  with_everything
  export STOP_SECONDS=1
  # each start appends its own words, under its number
  write_saver
}

# write_saver: "save <iteration>" writes a whole checkpoint as Megatron does, the tracker last
write_saver() {
  cat >"$BIN/save" <<'SCRIPT'
#!/usr/bin/env bash
for tp in 0 1; do
  for pp in 0 1 2 3 4 5 6 7; do
    folder=$(printf 'save_dir/iter_%07d/mp_rank_%02d_%03d' "$1" "$tp" "$pp")
    mkdir -p "$folder"
    { printf 'weights PK\5\6'; head -c 18 /dev/zero; } >"$folder/model_optim_rng.pt"
  done
done
if [[ ${2:-} != partial ]]; then
  echo "$1" >save_dir/latest_checkpointed_iteration.txt
fi
SCRIPT
  chmod +x "$BIN/save"
}

# stub_starts <line>...: line N is what start N of torchrun does
stub_starts() {
  {
    echo '#!/usr/bin/env bash'
    # shellcheck disable=SC2016 # expanded by the stub
    printf '%s\n' 'number=$(($(ls "$CALLS" | grep -c "^start") + 1))' \
      'printf "%s\n" "$@" >"$CALLS/start$number"' 'case $number in'
    local index=0 line
    for line; do
      index=$((index + 1))
      printf '%s) %s ;;\n' "$index" "$line"
    done
    echo 'esac'
  } >"$BIN/torchrun"
  chmod +x "$BIN/torchrun"
}

# word_after <flag> <start>
word_after() {
  grep -Fx -A 1 -e "$1" "$CALLS/start$2" | sed -n 2p
}

@test "a silent log stops torchrun and all its workers" {
  stub torchrun 'echo ready' 'sleep 300 & echo $! >"$CALLS/worker"' 'trap "" TERM' 'sleep 300'
  WATCHDOG_SECONDS=2 run -5 --separate-stderr finetune
  has_error "the run wrote nothing for 2 s and was stopped" "raise WATCHDOG_SECONDS"
  is_gone "$(<"$CALLS/worker")"
}

@test "a log that grows keeps the watchdog quiet" {
  stub torchrun 'for step in 1 2 3 4 5 6 7 8; do echo "$step"; sleep 0.5; done'
  WATCHDOG_SECONDS=2 run -0 --separate-stderr finetune
  [[ $stderr != *error:* ]]
}

@test "the watchdog is off by default" {
  stub torchrun 'sleep 3'
  run -0 --separate-stderr finetune
}

@test "without MAX_RESTARTS a failure is the end" {
  stub_starts 'save 100; exit 7' 'exit 0'
  run -7 --separate-stderr finetune
  [[ ! -e $CALLS/start2 ]]
}

@test "a restart goes on from what the run saved, with the adapter and its base" {
  stub_starts 'save 100; exit 7' 'exit 0'
  MAX_RESTARTS=1 run -0 --separate-stderr finetune
  [[ $stderr == *"restart 1 of 1: from iteration 100"* ]]
  [[ $(word_after --load 1) == ckpt/mm_path/Qwen2.5-VL-32B-Instruct ]]
  [[ $(word_after --load 2) == save_dir.resume_100 ]]
  [[ $(word_after --load-base-model 2) == ckpt/mm_path/Qwen2.5-VL-32B-Instruct ]]
  [[ $(<save_dir.resume_100/latest_checkpointed_iteration.txt) == 100 ]]
  [[ -s save_dir.resume_100/iter_0000100/mp_rank_01_007/model_optim_rng.pt ]]
  grep -Fxq -- --no-load-optim "$CALLS/start2"
}

@test "a restart of a full run needs no base, and loads the optimizer where it is saved" {
  "$REPO/.venv/bin/python" -m taskpack render "$MODEL" --set resume.optimizer=true --set resume.rng=true >/dev/null
  stub_starts 'save 100; exit 7' 'exit 0'
  TUNING=full MAX_RESTARTS=1 run -0 --separate-stderr finetune
  grep -Fxq -- --no-load-optim "$CALLS/start1"
  run ! grep -Fx -e --no-load-optim -e --no-load-rng -e --no-save-optim -e --load-base-model "$CALLS/start2"
}

@test "restart words are those that the profile renders for resuming" {
  stub_starts 'save 100; exit 7' 'exit 0'
  MAX_RESTARTS=1 run -0 --separate-stderr finetune
  "$REPO/.venv/bin/python" -m taskpack render "$MODEL" --set resume.iteration=100 >/dev/null
  stub_starts '' '' 'exit 0'
  run -0 --separate-stderr finetune
  diff <(sort "$CALLS/start2") <(sort "$CALLS/start3")
}

@test "a partial checkpoint is never gone on from: no tracker, a missing and a cut file" {
  stub_starts 'save 100; save 200; save 300; save 400 partial
     rm save_dir/iter_0000300/mp_rank_01_003/model_optim_rng.pt
     truncate -s -1 save_dir/iter_0000200/mp_rank_00_006/model_optim_rng.pt; exit 7' 'exit 0'
  MAX_RESTARTS=1 run -0 --separate-stderr finetune
  [[ $stderr == *"restart 1 of 1: from iteration 100"* ]]
}

@test "an optimizer file that is cut makes a checkpoint partial" {
  stub_starts 'save 100; save 200; echo cut >save_dir/iter_0000200/mp_rank_00_000/distrib_optim.pt; exit 7' 'exit 0'
  MAX_RESTARTS=1 run -0 --separate-stderr finetune
  [[ $stderr == *"from iteration 100"* ]]
}

@test "checkpoints of an earlier run are left alone" {
  mkdir save_dir
  bash "$BIN/save" 5000
  sleep 0.1
  stub_starts 'exit 7' 'exit 0'
  MAX_RESTARTS=1 run -0 --separate-stderr finetune
  [[ $stderr == *"restart 1 of 1: from the beginning, since no complete checkpoint was saved"* ]]
  [[ $(word_after --load 2) == ckpt/mm_path/Qwen2.5-VL-32B-Instruct ]]
}

@test "restarts end after MAX_RESTARTS, with the status of the last, and go on from the newest" {
  stub_starts 'save 100; exit 7' 'save 200; exit 8' 'exit 9'
  MAX_RESTARTS=2 run -9 --separate-stderr finetune
  [[ $(word_after --load 3) == save_dir.resume_200 ]]
  [[ ! -e $CALLS/start4 ]]
}

@test "a run that hung is restarted, after its workers are gone" {
  stub_starts 'save 100; sleep 300 & echo $! >"$CALLS/worker"; sleep 300' 'grep -qs "State:.[SR]" "/proc/$(<"$CALLS/worker")/status" && exit 6; exit 0'
  WATCHDOG_SECONDS=2 MAX_RESTARTS=1 run -0 --separate-stderr finetune
  has_error "the run wrote nothing for 2 s and was stopped"
  [[ $stderr == *"restart 1 of 1: from iteration 100"* ]]
}

@test "a worker that outlives a dead torchrun is killed before the restart" {
  stub_starts 'save 100; sleep 300 >/dev/null 2>&1 & echo $! >"$CALLS/worker"; kill -KILL $$' 'grep -qs "State:.[SR]" "/proc/$(<"$CALLS/worker")/status" && exit 6; exit 0'
  MAX_RESTARTS=1 run -0 --separate-stderr finetune
  [[ $stderr == *"outlived torchrun by 1 s and are killed"* ]]
}

@test "a run that was asked to stop is not restarted" {
  stub_starts 'save 100; echo ready; trap "exit 9" TERM; while true; do sleep 0.05; done' 'exit 0'
  MAX_RESTARTS=1 timeout --foreground -s KILL 30 bash "$TASK/finetune_qwen2_5_vl.sh" >out 2>err 3>&- &
  local pid=$! status=0
  until grep -Fxqs ready logs/*.log; do sleep 0.05; done
  kill -TERM "$pid"
  wait "$pid" || status=$?
  [[ $status -eq 9 && ! -e $CALLS/start2 ]]
}

@test "STOP_WITH_STDIN=1 stops the run when stdin closes, and kills what does not stop" {
  stub torchrun 'sleep 300 & echo $! >"$CALLS/worker"' 'trap "" TERM' 'echo ready' 'while true; do sleep 0.05; done'
  mkfifo hold
  STOP_WITH_STDIN=1 timeout --foreground -s KILL 30 bash "$TASK/finetune_qwen2_5_vl.sh" <hold >out 2>err 3>&- &
  local pid=$! status=0 writer
  exec {writer}>hold
  until grep -Fxqs ready logs/*.log; do sleep 0.05; done
  sleep 0.3
  kill -0 "$pid"
  exec {writer}>&-
  wait "$pid" || status=$?
  [[ $status -eq 137 ]]
  is_gone "$(<"$CALLS/worker")"
  grep -Fq "stop signal: passed on" err
}

@test "RESTART_FROM starts from an iteration that is whole, and refuses one that is not" {
  mkdir save_dir
  bash "$BIN/save" 100
  bash "$BIN/save" 200
  rm save_dir/iter_0000200/mp_rank_00_000/model_optim_rng.pt
  RESTART_FROM=200 run -3 --separate-stderr finetune
  has_error "iteration 200 in 'save_dir' is not complete for node 0" "use an iteration that is: 100"
  RESTART_FROM=new run -2 --separate-stderr finetune
  has_error "RESTART_FROM is 'new'" "iter_0000100"
  RESTART_FROM=100 run -0 --separate-stderr finetune
  [[ $(grep -Fx -A 1 -e --load "$CALLS/torchrun" | sed -n 2p) == save_dir.resume_100 ]]
}

@test "--saved lists what this run could go on from, newest first" {
  stub_starts 'save 100; save 200; save 300 partial; exit 0'
  mkdir save_dir
  bash "$BIN/save" 50
  sleep 0.1
  MAX_RESTARTS=1 run -0 --separate-stderr finetune
  run -0 --separate-stderr finetune --saved
  [[ $output == $'200\n100' ]]
}

@test "one of several nodes does not restart on its own" {
  export NNODES=2 NPUS_PER_NODE=8 NODE_RANK=0 MASTER_ADDR=127.0.0.1
  MAX_RESTARTS=1 run -2 --separate-stderr finetune
  has_error "MAX_RESTARTS is 1 on one of 2 nodes" "launch_all.sh"
  MAX_RESTARTS=-1 run -2 --separate-stderr finetune
  has_error "MAX_RESTARTS is '-1'" "0 switches it off"
}

@test "variants that cannot go on this way refuse MAX_RESTARTS by name" {
  "$REPO/.venv/bin/python" -m taskpack render "$MODEL" --set tuning.mode=full --set parallel.fsdp2=true --set parallel.tp=1 \
    --set 'parallel.text_layers=[64]' --set 'parallel.vision_layers=[32]' \
    --set platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2 >/dev/null 2>&1
  MAX_RESTARTS=1 run -2 --separate-stderr finetune
  has_error "MAX_RESTARTS=1 RESTART_FROM='' cannot be with this profile" "parallel.fsdp2 saves in torch's DCP form"
  "$REPO/.venv/bin/python" -m taskpack render "$MODEL" --set tuning.mode=full --set hf.online=true --set parallel.tp=8 \
    --set 'parallel.text_layers=[64]' --set 'parallel.vision_layers=[32]' >/dev/null
  MAX_RESTARTS=1 run -2 --separate-stderr finetune
  has_error "MAX_RESTARTS=1" "hf.online bakes the loading of HF weights into model.json"
}
