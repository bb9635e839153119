# shellcheck shell=bash
# Files that a start makes for this node, and that no other node may share or the user would not
# want changed.

# data_json_of_node: with several nodes each has its own, since a shared cache_dir gets corrupted
data_json_of_node() {
  if ((NNODES > 1)); then
    printf 'logs/%s_node%s_data.json' "${TASK##*/}" "$NODE_RANK"
  else
    printf '%s/data.json' "$TASK"
  fi
}

# write_node_data: DATA_JSON with a cache_dir of this node's own
write_node_data() {
  local source=$TASK/data.json key='"cache_dir"[[:space:]]*:[[:space:]]*"' text='([^"\\]|\\.)*'
  if [[ $DATA_JSON == "$source" ]]; then
    return
  fi
  if [[ $(grep -cE "$key$text\"" "$source") != 1 ]]; then
    die 2 "$source does not name one cache_dir" "$source" \
      "each node keeps its tokenised rows in a folder of its own" "render the task again"
  fi
  sed -E "s#($key$text)\"#\1/node$NODE_RANK\"#" "$source" >"$DATA_JSON"
  chmod 640 "$DATA_JSON"
}

# view_iteration <folder> <iteration> <view>: a folder whose tracker names that iteration; the tracker
# of the folder itself stays as it is. Nodes that share storage make the same, each in one step.
view_iteration() {
  local folder=$1 view=$3 name absolute mark=.node$NODE_RANK
  name=$(iteration_folder "$2")
  absolute=$(cd -- "$folder" && pwd)
  mkdir -p -- "$view"
  ln -sfnT -- "$absolute/$name" "$view/$name$mark"
  mv -fT -- "$view/$name$mark" "$view/$name"
  if [[ -f $folder/taskpack_layout.json ]]; then
    cp -T -- "$folder/taskpack_layout.json" "$view/taskpack_layout.json$mark"
    mv -fT -- "$view/taskpack_layout.json$mark" "$view/taskpack_layout.json"
  fi
  printf '%s\n' "$2" >"$view/latest_checkpointed_iteration.txt$mark"
  mv -fT -- "$view/latest_checkpointed_iteration.txt$mark" "$view/latest_checkpointed_iteration.txt"
}
