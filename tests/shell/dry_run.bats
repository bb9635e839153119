#!/usr/bin/env bats
# The command line that a launcher prints.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
}

# only_the_basics: PATH without Python, torchrun or any vendor tool
only_the_basics() {
  local program
  for program in bash dirname basename sed grep tr sort cat head paste awk hostname; do
    ln -s "$(type -P "$program")" "$BIN/$program"
  done
}

@test "a dry run in an empty checkout prints one line alone and needs only the basics" {
  only_the_basics
  run -0 --separate-stderr env PATH="$BIN" bash "$TASK/finetune_qwen2_5_vl.sh" --dry-run
  [[ ${#lines[@]} -eq 1 ]]
  [[ $output == "torchrun --nproc_per_node 8 --nnodes 2 --node_rank 0 --master_addr localhost "* ]]
  [[ $output == *" pretrain_vlm.py "* ]]
}

@test "the alias folder, finetune.sh and another working folder give the same line" {
  run -0 --separate-stderr finetune --dry-run
  local expected=$output
  run -0 --separate-stderr bash tasks/qwen2.5vl/finetune_qwen2_5_vl.sh --dry-run
  [[ $output == "$expected" ]]
  run -0 --separate-stderr bash tasks/finetune.sh "$MODEL" --dry-run
  [[ $output == "$expected" ]]
  cd /
  run -0 --separate-stderr bash "$CHECKOUT/$TASK/finetune_qwen2_5_vl.sh" --dry-run
  [[ $output == "$expected" ]]
}

@test "a CDPATH of the caller changes nothing" {
  mkdir -p "other/tasks/$MODEL"
  CDPATH="$CHECKOUT/other" run -0 --separate-stderr finetune --dry-run
  [[ $output == torchrun* ]]
  [[ $stderr != *"other/tasks"* ]]
}

@test "a tasks folder that is a link still finds the checkout it was linked into" {
  mv tasks ../pack
  ln -s ../pack tasks
  run -0 --separate-stderr finetune --dry-run
  has_error "$CHECKOUT is no MindSpeed-MM checkout"
}

@test "a dry run names on stderr all that would stop a real start" {
  run -0 --separate-stderr finetune --dry-run
  has_error "the place of this machine among 2 nodes is not known" "set HOSTFILE"
  has_error "$CHECKOUT is no MindSpeed-MM checkout" "cp -r tasks"
  has_error "torchrun is not on PATH"
  has_error "the checkpoint folder 'ckpt/mm_path/Qwen2.5-VL-32B-Instruct' does not exist" "convert_hf_to_mm.sh"
  has_error "the HF folder 'ckpt/hf_path/Qwen2.5-VL-32B-Instruct' lacks" "download_weights.sh"
  has_error "the data file './data/mllm_format_llava_instruct_data.json' cannot be read" "data.files"
}

@test "a dry run writes nothing" {
  find . | sort >../before
  run -0 finetune --dry-run
  find . | sort | diff ../before -
}

@test "a complete checkout has nothing to say on stderr" {
  with_everything
  run -0 --separate-stderr finetune --dry-run
  [[ -z $stderr ]]
}

@test "extra arguments reach the trainer unchanged and last" {
  run -0 --separate-stderr finetune --train-iters 5 --dry-run --note 'two words' --json '{"a": "$b"}'
  [[ $(argument --note "$output") == 'two words' ]]
  [[ $(argument --json "$output") == '{"a": "$b"}' ]]
  [[ $output == *" --lora-target-modules "*" --train-iters 5 "* ]]
}

@test "TUNING adds and removes the adapter arguments" {
  run -0 --separate-stderr finetune --dry-run
  [[ $(argument --lora-r "$output") == 8 ]]
  [[ $(argument --lora-alpha "$output") == 16 ]]
  [[ $output == *"--lora-target-modules linear_qkv linear_proj linear_fc1 linear_fc2"* ]]
  TUNING=full run -0 --separate-stderr finetune --dry-run
  [[ $output != *lora* ]]
}

@test "a profile that says full takes TUNING=lora at launch" {
  (cd "$BATS_TEST_TMPDIR" && mkdir full && cp -r "check out/tasks" full/ && cd full \
    && "$REPO/.venv/bin/python" -m taskpack render "$MODEL" --set tuning.mode=full >/dev/null)
  cd "$BATS_TEST_TMPDIR/full"
  run -0 --separate-stderr finetune --dry-run
  [[ $output != *lora* ]]
  TUNING=lora run -0 --separate-stderr finetune --dry-run
  [[ $(argument --lora-r "$output") == 8 ]]
}

@test "settings of the environment win over the profile" {
  export LR=2e-6 TRAIN_ITERS=7 SAVE_PATH='out put' LOAD_PATH=base MASTER_PORT=3000
  run -0 --separate-stderr finetune --dry-run
  [[ $(argument --lr "$output") == 2e-6 ]]
  [[ $(argument --train-iters "$output") == 7 ]]
  [[ $(argument --save "$output") == 'out put' ]]
  [[ $(argument --load "$output") == base ]]
  [[ $(argument --master_port "$output") == 3000 ]]
}

@test "--help prints the usage and starts nothing" {
  for script in "$TASK"/*.sh; do
    run -0 --separate-stderr bash "$script" --help
    [[ $output == *"usage: bash ${script##*/}"* ]]
    [[ $output == *profile.yaml* ]]
    [[ -z $stderr ]]
  done
  run -0 --separate-stderr bash tasks/finetune.sh --help
  [[ $output == *"usage: bash tasks/finetune.sh"*"$MODEL"* ]]
}

@test "finetune.sh lists the models when the name is wrong" {
  run -2 --separate-stderr bash tasks/finetune.sh qwen2.5vl-33b --dry-run
  has_error "no task is called 'qwen2.5vl-33b'" "$MODEL"
  run -2 --separate-stderr bash tasks/finetune.sh
  has_error "no task is called ''" "$MODEL"
}
