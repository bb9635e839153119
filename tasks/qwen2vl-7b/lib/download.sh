# shellcheck shell=bash
# Download HF weights with the client that is there; both clients resume.

# need_client <name> <package>
need_client() {
  die 5 "no $1 client is installed" "PATH=$PATH" "the weights come through it" \
    "python3 -m pip install $2"
}

# choose_client <word>...: fills client with the command that fetches HF_REPO into HF_PATH
choose_client() {
  case $SOURCE in
    huggingface)
      client=(hf download "$HF_REPO" --local-dir "$HF_PATH" "$@")
      if ! type -P hf >/dev/null && type -P huggingface-cli >/dev/null; then
        client[0]=huggingface-cli
      fi
      ;;
    modelscope)
      client=(modelscope download --model "$HF_REPO" --local_dir "$HF_PATH" "$@")
      ;;
    *)
      die 2 "SOURCE is '$SOURCE'" "environment or settings of this script" \
        "it selects the site that the weights come from" "use huggingface or modelscope"
      ;;
  esac
}

# download: runs client
download() {
  if ! type -P "${client[0]}" >/dev/null; then
    case $SOURCE in
      huggingface) need_client "Hugging Face" huggingface_hub ;;
      modelscope) need_client ModelScope modelscope ;;
    esac
  fi
  note "+ $(show_command "${client[@]}")"
  "${client[@]}"
}
