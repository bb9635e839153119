#!/usr/bin/env bats
# Inference and evaluation: one node, a layout of its own.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  MM=ckpt/mm_path/Qwen2.5-VL-32B-Instruct-generate
  HF=ckpt/hf_path/Qwen2.5-VL-32B-Instruct
  mkdir -p "$HF" sources/images/demo
  touch inference_vlm.py evaluate_vlm.py "$HF/config.json" "$HF/preprocessor_config.json"
  touch sources/images/demo/demo.jpeg AI2D_TEST.tsv
  rank_files "$MM/release" 1 2
  echo release >"$MM/latest_checkpointed_iteration.txt"
  stub torchrun
}

@test "both start on the two NPUs that hold the weights" {
  for kind in inference evaluate; do
    run -0 --separate-stderr bash "$TASK/${kind}_qwen2_5_vl.sh"
    [[ $(sed -n 2p "$CALLS/torchrun") == 2 ]]
    grep -Fxq "${kind}_vlm.py" "$CALLS/torchrun"
    grep -Fxq "$TASK/$kind.json" "$CALLS/torchrun"
    grep -Fxq "$MM" "$CALLS/torchrun"
    [[ -f $(echo logs/"$kind"_*.log) ]]
  done
}

@test "a launcher's variables for several nodes change nothing" {
  run -0 --separate-stderr bash "$TASK/inference_qwen2_5_vl.sh" --dry-run
  local expected=$output
  NNODES=2 NODE_RANK=1 MASTER_ADDR=far HOSTFILE=absent GLOBAL_BATCH_SIZE=96 \
    run -0 --separate-stderr bash "$TASK/inference_qwen2_5_vl.sh" --dry-run
  [[ $output == "$expected" ]]
}

@test "more NPUs evaluate in parallel, and fewer than a copy are refused" {
  NPUS_PER_NODE=8 run -0 --separate-stderr bash "$TASK/evaluate_qwen2_5_vl.sh" --dry-run
  [[ $(argument --global-batch-size "$output") == 4 ]]
  NPUS_PER_NODE=1 run -2 --separate-stderr bash "$TASK/evaluate_qwen2_5_vl.sh"
  has_error "1 x 1 = 1 NPUs cannot hold TP 1 x PP 2 x CP 1 = 2"
}

@test "what is missing is named, with the command that makes it" {
  rm -r "$MM" sources AI2D_TEST.tsv
  run -3 --separate-stderr bash "$TASK/inference_qwen2_5_vl.sh"
  has_error "the checkpoint folder '$MM' does not exist" "the command at the head of $TASK/inference_qwen2_5_vl.sh"
  has_error "the file 'sources/images/demo/demo.jpeg' cannot be read" generate.image
  run -3 --separate-stderr bash "$TASK/evaluate_qwen2_5_vl.sh"
  has_error "the file './AI2D_TEST.tsv' cannot be read" generate.dataset_file
  [[ ! -e $CALLS/torchrun ]]
}

@test "weights of the training layout are refused" {
  printf '{\n  "family": "qwen2_5_vl",\n  "tp": 2,\n  "vision_tp": 2,\n' >"$MM/taskpack_layout.json"
  printf '  "text_layers": [28, 36],\n  "vision_layers": [32, 0],\n  "canonical": false,\n}\n' >>"$MM/taskpack_layout.json"
  run -3 --separate-stderr bash "$TASK/inference_qwen2_5_vl.sh"
  has_error 'these weights have "tp": 2, the profile has "tp": 1'
}

@test "the command at the head of the script is one that taskpack takes" {
  local command
  command=$(sed -n '/^#   taskpack convert/,/^#$/{s/^# *//p}' "$TASK/inference_qwen2_5_vl.sh" | sed 's/\\$//' | tr '\n' ' ')
  [[ $command == "taskpack convert hf-to-mm "*"--llm-layers "* ]]
  # Without the weights it must get as far as looking for them.
  run -3 --separate-stderr bash -c "\"$REPO/.venv/bin/python\" -m $command --overwrite"
  has_error "" "Qwen2.5-VL-32B-Instruct"
}
