# shellcheck shell=bash disable=SC2154 # run.sh sets the options
# Folders of a run inside the container.

# where the image has its MindSpeed-MM
readonly INSIDE=/workspace/MindSpeed-MM

# check_folder <folder> <option>
check_folder() {
  if [[ ! -d $1 ]]; then
    problem 2 "the folder '$1' does not exist" "$2" "the container sees it only if it is there" \
      "make it, or name another one"
  elif [[ $1 == *,* ]]; then
    problem 2 "the folder '$1' has a comma in its name" "$2" "the engine takes it for a separator" \
      "rename the folder"
  fi
}

# full_path <folder>
full_path() {
  (CDPATH='' cd -- "$1" && pwd -P)
}

# add_folder <option> <folder, or nothing> [name inside the checkout]
add_folder() {
  local option=$1 folder=$2 name=${3:-}
  if [[ -z $folder ]]; then
    return
  fi
  check_folder "$folder" "$option"
  if [[ -d $folder ]]; then
    add_bind "$(full_path "$folder")" "$INSIDE${name:+/$name}"
  fi
}

# add_link_targets <checkout>: folders that lead out of the checkout lead to the same place inside
add_link_targets() {
  local link target
  for link in "$1"/data "$1"/ckpt "$1"/save_dir "$1"/logs; do
    if [[ -L $link && -d $link ]]; then
      target=$(readlink -f -- "$link")
      if [[ $target != "$1"/* && $(readlink -- "$link") == /* ]]; then
        add_bind "$target" "$(readlink -- "$link")"
      fi
    fi
  done
}

# add_checkout: the caller's checkout instead of the image's
add_checkout() {
  if [[ -z $checkout ]]; then
    return
  fi
  check_folder "$checkout" --checkout
  if [[ -d $checkout && ! -f $checkout/pretrain_vlm.py ]]; then
    problem 5 "$checkout is no MindSpeed-MM checkout" "--checkout: $checkout/pretrain_vlm.py" \
      "tasks run in the folder that contains tasks/ and MindSpeed-MM" \
      "name the checkout that tasks/ was copied to, or leave --checkout out and use the image's"
  elif [[ -d $checkout && ! -d $checkout/megatron ]]; then
    problem 5 "$checkout lacks Megatron's package" "--checkout: $checkout/megatron" \
      "MindSpeed-MM imports it from its own folder" \
      "copy the folder megatron of Megatron-LM there, or leave --checkout out and use the image's"
  elif [[ -d $checkout && -n $model && ! -d $checkout/tasks/$model ]]; then
    problem 5 "$checkout has no task '$model'" "--checkout: $checkout/tasks" \
      "the container sees the tasks of the checkout" "cp -r $REPO/tasks $checkout/"
  fi
  add_folder --checkout "$checkout"
  if [[ -d $checkout ]]; then
    add_link_targets "$(full_path "$checkout")"
  fi
}

# add_mounts <folder[:path inside]>...: the same path inside unless it says another
add_mounts() {
  local mount folder
  for mount; do
    folder=${mount%%:*}
    check_folder "$folder" --mount
    if [[ -d $folder ]]; then
      folder=$(full_path "$folder")
      if [[ $mount == *:* ]]; then
        add_bind "$folder" "${mount#*:}"
      else
        add_bind "$folder" "$folder"
      fi
    fi
  done
}

# add_folders
add_folders() {
  add_checkout
  add_folder --data "$data" data
  add_folder --ckpt "$ckpt" ckpt
  add_folder --save "$save" save_dir
  add_folder --logs "$logs" logs
  add_mounts "${mounts[@]}"
}

# check_results: without a folder of the host, what a training saves goes with the container
check_results() {
  if [[ -z $checkout && -z $save ]]; then
    problem 2 "nothing of this host is behind save_dir" "command line" \
      "checkpoints would be deleted with the container" "name --checkout, or --save with --data and --ckpt"
  fi
}
