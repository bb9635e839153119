#!/usr/bin/env bats
# What a launcher does for the variants of a profile, and what it refuses.

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

# render [<option>...]: the task again, with other values
render() {
  "$REPO/.venv/bin/python" -m taskpack render "$MODEL" "$@" >/dev/null 2>&1
}

# pickled_names <folder> <name>: every rank file starts with such a tensor name
pickled_names() {
  local file
  for file in "$1"/mp_rank_*/model_optim_rng.pt; do
    printf 'PK\3\4 archive/data.pkl text_decoder.decoder.layers.0.%s rest' "$2" >"$file"
  done
}

@test "an adapter set as LOAD_PATH is refused, since its base would stay random" {
  pickled_names "$MM/release" self_attention.linear_qkv.lora_A.default.weight
  run -3 --separate-stderr finetune
  has_error "'$MM' holds a LoRA adapter, not the weights below it" "resume.iteration"
  TUNING=full run -3 --separate-stderr finetune
  has_error "'$MM' holds a LoRA adapter"
  [[ ! -e $CALLS/torchrun ]]
}

@test "whole weights are no adapter" {
  pickled_names "$MM/release" self_attention.linear_qkv.weight
  run -0 --separate-stderr finetune
  [[ $stderr != *error:* ]]
}

@test "resuming an adapter loads it, and wants whole weights as its base" {
  render --set resume.iteration=100
  rank_files save_dir/iter_0000100 2 8
  pickled_names save_dir/iter_0000100 self_attention.linear_qkv.lora_A.default.weight
  echo 100 >save_dir/latest_checkpointed_iteration.txt
  run -0 --separate-stderr finetune
  pickled_names "$MM/release" self_attention.linear_qkv.lora_A.default.weight
  run -3 --separate-stderr finetune
  has_error "'$MM' holds a LoRA adapter" "BASE_PATH"
  TUNING=full run -3 --separate-stderr finetune
  has_error "'save_dir' holds a LoRA adapter" "LOAD_PATH"
}

@test "resuming an iteration leaves the tracker of the run alone" {
  render --set resume.iteration=100
  rank_files save_dir/iter_0000100 2 8
  rank_files save_dir/iter_0000200 2 8
  echo 200 >save_dir/latest_checkpointed_iteration.txt
  cp "$MM/taskpack_layout.json" save_dir/
  run -0 --separate-stderr finetune --dry-run
  [[ $(argument --load "$output") == save_dir.resume_100 ]]
  [[ ! -e save_dir.resume_100 ]]
  run -0 --separate-stderr finetune
  grep -Fxq -- save_dir.resume_100 "$CALLS/torchrun"
  [[ $stderr == *"note: save_dir reaches iteration 200; going on from 100 will write over"* ]]
  [[ $(<save_dir/latest_checkpointed_iteration.txt) == 200 ]]
  [[ $(<save_dir.resume_100/latest_checkpointed_iteration.txt) == 100 ]]
  cmp save_dir.resume_100/taskpack_layout.json save_dir/taskpack_layout.json
  [[ -s save_dir.resume_100/iter_0000100/mp_rank_01_007/model_optim_rng.pt ]]
  [[ $(find save_dir.resume_100 -mindepth 1 -maxdepth 1 | wc -l) -eq 3 ]]
  # a second start finds the folder there
  run -0 --separate-stderr finetune
}

@test "resuming the latest iteration takes the tracker's" {
  render --set resume.iteration=latest
  rank_files save_dir/iter_0000200 2 8
  echo 200 >save_dir/latest_checkpointed_iteration.txt
  run -0 --separate-stderr finetune
  grep -Fxq -- save_dir "$CALLS/torchrun"
  [[ ! -e save_dir.resume_latest ]]
  rm -r save_dir/iter_0000200
  run -3 --separate-stderr finetune
  has_error "iteration '200' is not in 'save_dir'" "save_dir/latest_checkpointed_iteration.txt"
}

@test "each of several nodes has a cache_dir of its own, one node has the task's" {
  export NNODES=2 NPUS_PER_NODE=8 MASTER_ADDR=127.0.0.1 NODE_RANK=1
  run -0 --separate-stderr finetune --dry-run
  [[ $(argument --mm-data "$output") == "logs/${MODEL}_node1_data.json" ]]
  [[ ! -e logs ]]
  run -0 --separate-stderr finetune
  grep -Fxq -- "logs/${MODEL}_node1_data.json" "$CALLS/torchrun"
  diff "$TASK/data.json" "logs/${MODEL}_node1_data.json" >difference || true
  [[ $(grep -c '^[<>]' difference) -eq 2 ]]
  grep -Fq '> ' difference
  grep -Fq '"cache_dir": "./data/cache_dir/node1"' difference
  NNODES=1 NPUS_PER_NODE=16 NODE_RANK=0 run -0 --separate-stderr finetune --dry-run
  [[ $(argument --mm-data "$output") == "$TASK/data.json" ]]
}

@test "a cache_dir that is not there any more stops several nodes, not one" {
  sed -i '/cache_dir/d' "$TASK/data.json"
  run -0 --separate-stderr finetune
  NNODES=2 NPUS_PER_NODE=8 MASTER_ADDR=127.0.0.1 NODE_RANK=0 run -2 --separate-stderr finetune
  has_error "$TASK/data.json does not name one cache_dir" "render the task again"
}

@test "a port that is taken on the first node is refused" {
  "$REPO/.venv/bin/python" -c '
import socket, sys, time
taken = socket.socket(); taken.bind(("127.0.0.1", 0)); taken.listen()
print(taken.getsockname()[1], flush=True); time.sleep(30)' >port 3>&- &
  local listener=$!
  until [[ -s port ]]; do sleep 0.05; done
  MASTER_PORT=$(<port) run -5 --separate-stderr finetune
  kill "$listener"
  has_error "something listens on port $(<port) already" "another MASTER_PORT"
  [[ ! -e $CALLS/torchrun ]]
}

@test "SKIP_CHECKS=1 starts without looking at weights and data" {
  rm -r data ckpt
  run -3 --separate-stderr finetune
  [[ ! -e $CALLS/torchrun ]]
  SKIP_CHECKS=1 run -0 --separate-stderr finetune
  [[ -e $CALLS/torchrun ]]
  [[ $stderr != *error:* ]]
}

@test "SKIP_CHECKS=1 still refuses settings that make no run" {
  SKIP_CHECKS=1 NPUS_PER_NODE=8 run -2 --separate-stderr finetune
  has_error "1 x 8 = 8 NPUs cannot hold"
  SKIP_CHECKS=1 TUNING=lara run -2 --separate-stderr finetune
  has_error "TUNING is 'lara'"
}

@test "arguments that do nothing are named, and those that go past the checks" {
  run -0 --separate-stderr finetune --num-layers 4 --recompute-granularity=full --load other --lr 1e-6
  [[ $stderr == *"note: --num-layers has no effect"* ]]
  [[ $stderr == *"note: --recompute-granularity has no effect"* ]]
  [[ $stderr == *"note: --load goes past the checks"* ]]
  [[ $stderr != *"--lr "* ]]
}

@test "TUNING=lora is refused where the profile's rules forbid adapters" {
  render --set tuning.mode=full --set train.recompute=selective
  run -0 --separate-stderr finetune --dry-run
  TUNING=lora run -2 --separate-stderr finetune --dry-run
  has_error "train.recompute selective with LoRA" "use full or none"
  render --set tuning.mode=full --set 'parallel.text_layers=[[4, 9, 9, 9], [9, 9, 9, 6]]' \
    --set 'parallel.vision_layers=[[32, 0, 0, 0], [0, 0, 0, 0]]'
  TUNING=lora run -2 --separate-stderr finetune --dry-run
  has_error "LoRA with 2 virtual stages"
}

@test "HF weights are loaded online where the profile says so" {
  render --set tuning.mode=full --set hf.online=true --set parallel.tp=8 \
    --set 'parallel.text_layers=[64]' --set 'parallel.vision_layers=[32]'
  rm -r "$MM"
  run -3 --separate-stderr finetune
  has_error "the HF folder 'ckpt/hf_path/Qwen2.5-VL-32B-Instruct' holds no safetensors" "download_weights.sh"
  touch ckpt/hf_path/Qwen2.5-VL-32B-Instruct/model-00001-of-00018.safetensors
  run -0 --separate-stderr finetune
  grep -Fxq -- ckpt/hf_path/Qwen2.5-VL-32B-Instruct "$CALLS/torchrun"
  run ! grep -Fxq -- --exit-on-missing-checkpoint "$CALLS/torchrun"
  grep -Fq '"bridge_patch": true' "$TASK/model.json"
}

# render_fsdp2 [<option>...]
render_fsdp2() {
  render --set tuning.mode=full --set parallel.fsdp2=true --set parallel.tp=1 \
    --set 'parallel.text_layers=[64]' --set 'parallel.vision_layers=[32]' \
    --set platform.env.CUDA_DEVICE_MAX_CONNECTIONS=2 "$@"
}

@test "FSDP2 starts from weights of one rank, and resumes from what it saved" {
  render_fsdp2
  rm -r "$MM/release"
  mkdir -p "$MM/release/mp_rank_00"
  echo weights >"$MM/release/mp_rank_00/model_optim_rng.pt"
  rm "$MM/taskpack_layout.json"
  run -0 --separate-stderr finetune
  grep -Fxq -- "$TASK/fsdp2_config.yaml" "$CALLS/torchrun"
  [[ -f $TASK/fsdp2_config.yaml ]]
  render_fsdp2 --set resume.iteration=100
  mkdir -p save_dir/iter_0000100
  echo 100 >save_dir/latest_checkpointed_iteration.txt
  run -3 --separate-stderr finetune
  has_error "'save_dir' holds no checkpoint of iteration '100' in DCP form"
  touch save_dir/iter_0000100/.metadata
  run -0 --separate-stderr finetune
  run -3 --separate-stderr bash "$TASK/convert_mm_to_hf.sh"
  has_error "the weights of this task are saved in torch's DCP form" MM_PATH
  # rendering without FSDP2 takes its file away again
  render
  [[ ! -e $TASK/fsdp2_config.yaml ]]
}

@test "fused gradients without ATB are refused, where CANN is there" {
  export ASCEND_PREFIX=$BATS_TEST_TMPDIR/ascend
  render --set train.fused_gradients=true
  run -0 --separate-stderr finetune --dry-run
  [[ $stderr != *ATB* ]]
  mkdir -p "$ASCEND_PREFIX/cann"
  touch "$ASCEND_PREFIX/cann/set_env.sh"
  run -5 --separate-stderr finetune
  has_error "CANN is installed without ATB" "train.fused_gradients: false"
  ATB_HOME_PATH=/somewhere run -0 --separate-stderr finetune
  mkdir -p "$ASCEND_PREFIX/nnal/atb"
  touch "$ASCEND_PREFIX/nnal/atb/set_env.sh"
  run -0 --separate-stderr finetune
  rm -r "$ASCEND_PREFIX/nnal"
  render
  run -0 --separate-stderr finetune
}
