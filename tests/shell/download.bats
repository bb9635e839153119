#!/usr/bin/env bats
# Download, and the check of every shard after it.

setup_file() {
  load helpers
  render_tasks
}

setup() {
  load helpers
  in_checkout
  HF=ckpt/hf_path/Qwen2.5-VL-32B-Instruct
}

# shard <file> <data bytes>: a safetensors file with one tensor
shard() {
  local header
  header=$(printf '{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' "$2" "$2")
  {
    printf '%b' "$(printf '\\x%02x' $((${#header} % 256)) $((${#header} / 256)))\\0\\0\\0\\0\\0\\0"
    printf '%s' "$header"
    head -c "$2" /dev/zero
  } >"$1"
}

# hf_folder: two whole shards and their index
hf_folder() {
  mkdir -p "$HF"
  shard "$HF/model-1.safetensors" 100
  shard "$HF/model-2.safetensors" 300
  echo '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}' \
    >"$HF/model.safetensors.index.json"
}

# download
download() {
  bash "$TASK/download_weights.sh" "$@"
}

@test "the Hugging Face client fetches the repository into the HF folder" {
  hf_folder
  stub hf
  run -0 --separate-stderr download --max-workers 2
  diff <(printf '%s\n' download Qwen/Qwen2.5-VL-32B-Instruct --local-dir "$HF" --max-workers 2) "$CALLS/hf"
  [[ $stderr == *"every shard is whole"* ]]
}

@test "huggingface-cli serves when hf is absent" {
  hf_folder
  stub huggingface-cli
  run -0 download
  [[ -e $CALLS/huggingface-cli ]]
}

@test "SOURCE=modelscope takes the other client" {
  hf_folder
  stub modelscope
  SOURCE=modelscope run -0 download
  diff <(printf '%s\n' download --model Qwen/Qwen2.5-VL-32B-Instruct --local_dir "$HF") "$CALLS/modelscope"
}

@test "HF_ENDPOINT reaches the client" {
  hf_folder
  stub hf 'echo "endpoint $HF_ENDPOINT"'
  HF_ENDPOINT=https://mirror.example run -0 --separate-stderr download
  [[ $output == "endpoint https://mirror.example" ]]
}

@test "an absent client and an unknown source are refused" {
  run -5 --separate-stderr download
  has_error "no Hugging Face client is installed" "python3 -m pip install huggingface_hub"
  SOURCE=modelscope run -5 --separate-stderr download
  has_error "no ModelScope client is installed" "modelscope"
  SOURCE=ftp run -2 --separate-stderr download
  has_error "SOURCE is 'ftp'" "huggingface or modelscope"
}

@test "a failing client fails the script" {
  stub hf 'exit 4'
  run -4 download
}

@test "a truncated shard is named with both sizes" {
  hf_folder
  stub hf
  truncate -s -100 "$HF/model-2.safetensors"
  local size
  size=$(stat -c %s "$HF/model-2.safetensors")
  run -3 --separate-stderr download
  has_error "model-2.safetensors has $size bytes, its header says $((size + 100))" "start the same download again"
}

@test "a shard with bytes behind its data is named" {
  hf_folder
  stub hf
  echo more >>"$HF/model-1.safetensors"
  run -3 --separate-stderr download
  has_error "model-1.safetensors has"
}

@test "an absent shard, an empty one and one of rubbish are named together" {
  hf_folder
  stub hf
  echo '{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}}' \
    >"$HF/model.safetensors.index.json"
  : >"$HF/model-1.safetensors"
  echo 'version https://git-lfs.github.com/spec/v1' >"$HF/model-2.safetensors"
  run -3 --separate-stderr download
  has_error "model-1.safetensors has no whole header (0 bytes)"
  has_error "model-2.safetensors has no whole header"
  has_error "model-3.safetensors is missing"
}

@test "a header that is no JSON and an index that is none are named" {
  hf_folder
  stub hf
  printf '\x04\0\0\0\0\0\0\0{"w}' >"$HF/model-1.safetensors"
  run -3 --separate-stderr download
  has_error "the header of model-1.safetensors is damaged"
  echo '{"weight_map"' >"$HF/model.safetensors.index.json"
  run -3 --separate-stderr download
  has_error "model.safetensors.index.json is damaged"
}

@test "a single shard without index is checked, and an empty folder refused" {
  stub hf
  mkdir -p "$HF"
  run -3 --separate-stderr download
  has_error "neither model.safetensors.index.json nor model.safetensors is there"
  shard "$HF/model.safetensors" 70000
  run -0 download
}

@test "--dry-run prints the client's command and fetches nothing" {
  run -0 --separate-stderr download --dry-run
  [[ $output == "hf download Qwen/Qwen2.5-VL-32B-Instruct --local-dir $HF" ]]
}
