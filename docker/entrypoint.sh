#!/usr/bin/env bash
# First process of a container: the environment of CANN and ATB and the driver's libraries, then
# the command.

set -euo pipefail
shopt -s inherit_errexit

lib=$(dirname -- "${BASH_SOURCE[0]}")/../templates/lib
# shellcheck source=../templates/lib/messages.sh
source "$lib/messages.sh"
# shellcheck source=../templates/lib/ascend.sh
source "$lib/ascend.sh"

# add_driver_libraries: the image's own path may name another prefix than the driver's on this host
add_driver_libraries() {
  local prefix folder
  for prefix in "$ASCEND_PREFIX" /usr/local/Ascend /usr/local/npu; do
    for folder in "$prefix"/driver/lib64 "$prefix"/driver/lib64/common "$prefix"/driver/lib64/driver; do
      if [[ -d $folder && :${LD_LIBRARY_PATH:-}: != *:$folder:* ]]; then
        export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
      fi
    done
  done
}

main() {
  : "${ASCEND_PREFIX:=/usr/local/Ascend}"
  source_ascend_environment
  add_driver_libraries
  exec "$@"
}

main "$@"
