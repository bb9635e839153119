#!/usr/bin/env bats
# Scripts that call the taskpack command.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  NAME=Qwen2.5-VL-32B-Instruct
}

# called <word>...: taskpack was called with exactly these words
called() {
  diff <(printf '%s\n' "$@") "$CALLS/taskpack"
}

@test "convert_hf_to_mm.sh names both folders and the task" {
  stub taskpack
  run -0 --separate-stderr bash "$TASK/convert_hf_to_mm.sh" --overwrite
  called convert hf-to-mm --hf "ckpt/hf_path/$NAME" --mm "ckpt/mm_path/$NAME" --task "$TASK" --overwrite
}

@test "convert_mm_to_hf.sh exports the merged folder after LoRA" {
  stub taskpack
  mkdir -p "ckpt/mm_merged/$NAME"
  ITERATION=7 run -0 bash "$TASK/convert_mm_to_hf.sh"
  called convert mm-to-hf --mm "ckpt/mm_merged/$NAME" --hf-ref "ckpt/hf_path/$NAME" \
    --hf "ckpt/mm_to_hf/$NAME" --task "$TASK" --iteration latest
}

@test "convert_mm_to_hf.sh exports the save folder after full tuning" {
  stub taskpack
  TUNING=full SAVE_PATH='my save' ITERATION=7 run -0 bash "$TASK/convert_mm_to_hf.sh"
  called convert mm-to-hf --mm 'my save' --hf-ref "ckpt/hf_path/$NAME" \
    --hf "ckpt/mm_to_hf/$NAME" --task "$TASK" --iteration 7
}

@test "MM_PATH selects any folder" {
  stub taskpack
  mkdir other
  MM_PATH=other EXPORT_PATH=out ITERATION=release run -0 bash "$TASK/convert_mm_to_hf.sh"
  called convert mm-to-hf --mm other --hf-ref "ckpt/hf_path/$NAME" --hf out --task "$TASK" --iteration release
}

@test "an export before the merge says what comes first" {
  stub taskpack
  run -3 --separate-stderr bash "$TASK/convert_mm_to_hf.sh"
  has_error "the merged weights 'ckpt/mm_merged/$NAME' do not exist" "merge_lora.sh"
  [[ ! -e $CALLS/taskpack ]]
}

@test "merge_lora.sh merges the newest adapter of the save folder" {
  stub taskpack
  run -0 bash "$TASK/merge_lora.sh"
  called lora merge --base "ckpt/mm_path/$NAME" --adapter save_dir --out "ckpt/mm_merged/$NAME" \
    --task "$TASK" --iteration latest
}

@test "merge_lora.sh takes every folder and the iteration from the environment" {
  stub taskpack
  LOAD_PATH=b ADAPTER_PATH=a MERGED_PATH='m 1' ITERATION=5000 run -0 bash "$TASK/merge_lora.sh" --device npu
  called lora merge --base b --adapter a --out 'm 1' --task "$TASK" --iteration 5000 --device npu
  SAVE_PATH=s run -0 bash "$TASK/merge_lora.sh"
  grep -Fxq s "$CALLS/taskpack"
}

@test "--dry-run prints each command and needs no tool" {
  run -0 --separate-stderr bash "$TASK/convert_hf_to_mm.sh" --dry-run
  [[ $output == "taskpack convert hf-to-mm --hf ckpt/hf_path/$NAME --mm ckpt/mm_path/$NAME --task $TASK" ]]
  run -0 --separate-stderr bash "$TASK/convert_mm_to_hf.sh" --dry-run
  [[ $output == "taskpack convert mm-to-hf --mm ckpt/mm_merged/$NAME "* ]]
  run -0 --separate-stderr bash "$TASK/merge_lora.sh" --dry-run
  [[ $output == "taskpack lora merge "* ]]
  [[ -z $stderr ]]
}

@test "an absent tool is one line with the command that installs it" {
  stub python3 'exit 1'
  for script in convert_hf_to_mm merge_lora; do
    run -5 --separate-stderr bash "$TASK/$script.sh"
    [[ $stderr == "error: the taskpack command is not installed; install it: python3 -m pip install "* ]]
    [[ $(wc -l <<<"$stderr") -eq 1 ]]
  done
}

@test "python3 -m taskpack serves when the command is not on PATH" {
  stub python3
  run -0 --separate-stderr bash "$TASK/convert_hf_to_mm.sh"
  [[ $(head -n 2 "$CALLS/python3") == $'-m\ntaskpack' ]]
}

@test "a failing tool fails the script with its code" {
  stub taskpack 'exit 3'
  run -3 bash "$TASK/convert_hf_to_mm.sh"
  run -3 bash "$TASK/merge_lora.sh"
  run -3 bash "tasks/qwen2.5vl/merge_lora.sh"
}

@test "the tools run from the checkout, whatever the caller's folder" {
  stub taskpack 'pwd'
  cd /
  run -0 --separate-stderr bash "$CHECKOUT/tasks/qwen2.5vl/convert_hf_to_mm.sh"
  [[ $output == "$CHECKOUT" ]]
}
