#!/usr/bin/env bats
# What a real start needs, and what it says when that is missing.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  with_everything
  MM=ckpt/mm_path/Qwen2.5-VL-32B-Instruct
}

# started: the stub was called; forgets the call
started() {
  rm "$CALLS/torchrun"
}

teardown() {
  # Whatever was refused must not have started.
  [[ ! -e $CALLS/torchrun ]]
}

@test "a complete checkout starts" {
  run -0 --separate-stderr finetune
  started
}

@test "a folder that is no checkout is refused" {
  rm pretrain_vlm.py
  run -5 --separate-stderr finetune
  has_error "$CHECKOUT is no MindSpeed-MM checkout" "cp -r tasks"
}

@test "an absent torchrun is refused" {
  rm "$BIN/torchrun"
  run -5 --separate-stderr finetune
  has_error "torchrun is not on PATH" "activate"
}

@test "a missing load folder names the converter" {
  rm -r "$MM"
  run -3 --separate-stderr finetune
  has_error "the checkpoint folder '$MM' does not exist" "bash $TASK/convert_hf_to_mm.sh"
}

@test "HF weights under LOAD_PATH name the converter" {
  mkdir hf
  touch hf/model-00001-of-00002.safetensors
  LOAD_PATH=hf run -3 --separate-stderr finetune
  has_error "'hf' holds HF weights" "bash $TASK/convert_hf_to_mm.sh"
}

@test "a missing tracker is refused, since Megatron would train random weights" {
  rm "$MM/latest_checkpointed_iteration.txt"
  run -3 --separate-stderr finetune
  has_error "'$MM' has no latest_checkpointed_iteration.txt" "random weights"
}

@test "a tracker that names an absent iteration lists those that are there" {
  mkdir "$MM/iter_0000050"
  echo 100 >"$MM/latest_checkpointed_iteration.txt"
  run -3 --separate-stderr finetune
  has_error "iteration '100' is not in '$MM'" "release iter_0000050"
}

@test "a tracker with a number and CRLF starts" {
  mv "$MM/release" "$MM/iter_0000100"
  printf '100\r\n' >"$MM/latest_checkpointed_iteration.txt"
  run -0 --separate-stderr finetune
  started
}

@test "a missing and an empty rank file are named" {
  rm "$MM/release/mp_rank_01_006/model_optim_rng.pt"
  : >"$MM/release/mp_rank_01_007/model_optim_rng.pt"
  run -3 --separate-stderr finetune
  has_error "2 rank files that node 0 reads are missing, the first is 'mp_rank_01_006/model_optim_rng.pt'"
}

@test "a node that starts needs the rank files of its own stages only" {
  rm -r "$MM"/release/mp_rank_0?_00[4-7]
  export NNODES=2 NPUS_PER_NODE=8 MASTER_ADDR=a
  NODE_RANK=0 run -0 --separate-stderr finetune
  started
  NODE_RANK=1 run -3 --separate-stderr finetune
  has_error "8 rank files that node 1 reads are missing, the first is 'mp_rank_00_004/model_optim_rng.pt'"
}

@test "with data parallel ranks a node that starts needs the stages that Megatron puts there" {
  # 4 nodes x 8, TP 2, DP 2: stages 0 and 1 on node 0.
  rm -r "$MM"/release/mp_rank_0?_00[2-7]
  export NNODES=4 NPUS_PER_NODE=8 MASTER_ADDR=a
  NODE_RANK=0 run -0 --separate-stderr finetune
  started
  NODE_RANK=1 run -3 --separate-stderr finetune
  has_error "4 rank files that node 1 reads are missing" "mp_rank_00_002 mp_rank_00_003 mp_rank_01_002 mp_rank_01_003"
}

@test "weights of another layout are refused with both values" {
  sed -i 's/"tp": 2,/"tp": 4,/; s/"text_layers": .*/"text_layers": [1, 9, 9, 9, 9, 9, 9, 9],/' \
    "$MM/taskpack_layout.json"
  run -3 --separate-stderr finetune
  has_error 'these weights have "tp": 4, the profile has "tp": 2' "convert_hf_to_mm.sh"
  has_error 'these weights have "text_layers": [1, 9, 9, 9, 9, 9, 9, 9], the profile has "text_layers": [4, 9'
  [[ $stderr != *vision_tp* ]]
}

@test "a layout file that lacks a line is refused" {
  sed -i '/canonical/d' "$MM/taskpack_layout.json"
  run -3 --separate-stderr finetune
  has_error 'these weights have no "canonical", the profile has "canonical": false'
}

@test "a layout file with CRLF or a key in the last place starts" {
  sed -i '/dtype/d; s/\("canonical": false\),/\1/; s/$/\r/' "$MM/taskpack_layout.json"
  run -0 --separate-stderr finetune
  started
}

@test "weights without a layout file start with a note" {
  rm "$MM/taskpack_layout.json"
  run -0 --separate-stderr finetune
  started
  [[ $stderr == *"note: $MM/taskpack_layout.json is absent"* ]]
}

@test "missing data and a missing HF folder are refused together, with the code of the first" {
  rm -r data ckpt/hf_path
  run -3 --separate-stderr finetune
  has_error "the HF folder 'ckpt/hf_path/Qwen2.5-VL-32B-Instruct' lacks"
  has_error "the data file './data/mllm_format_llava_instruct_data.json' cannot be read"
}

@test "missing data alone ends with the code for data" {
  rm -r data
  run -4 --separate-stderr finetune
}

@test "saving into the folder that is loaded is refused" {
  SAVE_PATH="$CHECKOUT/$MM" run -2 --separate-stderr finetune
  has_error "SAVE_PATH and LOAD_PATH are both"
}

@test "a SAVE_PATH that cannot be written is refused before the start" {
  touch file
  SAVE_PATH=file/of/mine run -5 --separate-stderr finetune
  has_error "SAVE_PATH 'file/of/mine' cannot be written" "file, seen from $CHECKOUT"
}

@test "an earlier run under SAVE_PATH is noted when a run starts" {
  mkdir save_dir
  echo 5000 >save_dir/latest_checkpointed_iteration.txt
  run -0 --separate-stderr finetune
  started
  [[ $stderr == *"note: save_dir holds iteration 5000 of an earlier run"* ]]
}

@test "an unknown place among several nodes stops a start" {
  NNODES=2 NPUS_PER_NODE=8 run -2 --separate-stderr finetune
  has_error "the place of this machine among 2 nodes is not known" "NODE_RANK and MASTER_ADDR"
}

@test "a resumed run starts from the saved iteration and checks the base of its adapter" {
  "$REPO/.venv/bin/python" -m taskpack render "$MODEL" --set resume.iteration=100 >/dev/null
  run -3 --separate-stderr finetune
  has_error "the checkpoint folder 'save_dir' does not exist"
  rank_files save_dir/iter_0000100 2 8
  echo 200 >save_dir/latest_checkpointed_iteration.txt
  run -0 --separate-stderr finetune
  grep -Fxq -- --load-base-model "$CALLS/torchrun"
  started
  mv "$MM" elsewhere
  run -3 --separate-stderr finetune
  has_error "the checkpoint folder '$MM' does not exist" "BASE_PATH"
}

@test "an earlier run of another layout in SAVE_PATH is refused" {
  mkdir save_dir
  echo 5000 >save_dir/latest_checkpointed_iteration.txt
  sed 's/"tp": 2,/"tp": 1,/' "$MM/taskpack_layout.json" >save_dir/taskpack_layout.json
  run -3 --separate-stderr finetune
  has_error 'these weights have "tp": 1, the profile has "tp": 2' "set another SAVE_PATH"
  SAVE_PATH=other run -0 --separate-stderr finetune
  started
}
