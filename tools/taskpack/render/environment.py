"""What the usual environment variables mean, with their units."""

from __future__ import annotations

_MEANINGS = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "connections; Megatron checks it",
    "ASCEND_SLOG_PRINT_TO_STDOUT": "1 prints the NPU driver's log",
    "ASCEND_GLOBAL_LOG_LEVEL": "0 debug, 1 info, 2 warning, 3 error, 4 nothing",
    "TASK_QUEUE_ENABLE": "0 to 2; levels of operator dispatch in the background",
    "COMBINED_ENABLE": "1 joins operators on strided tensors",
    "CPU_AFFINITY_CONF": "0 no core binding, 1 coarse, 2 fine",
    "HCCL_CONNECT_TIMEOUT": "seconds to wait for the other ranks to connect",
    "HCCL_EXEC_TIMEOUT": "seconds to wait in a collective",
    "NPU_ASD_ENABLE": "0 to 3; detection of silent faults",
    "ASCEND_LAUNCH_BLOCKING": "1 runs operators one at a time, to debug",
    "ACLNN_CACHE_LIMIT": "operators kept in the cache",
    "PYTORCH_NPU_ALLOC_CONF": "allocator; expandable segments fragment less",
    "MULTI_STREAM_MEMORY_REUSE": "0 to 2; memory shared between streams",
    "TOKENIZERS_PARALLELISM": "false keeps tokenizers to one thread",
    "ASCEND_RT_VISIBLE_DEVICES": "NPUs that may be used, by number",
    "HCCL_SOCKET_IFNAME": "network interface of HCCL",
    "GLOO_SOCKET_IFNAME": "network interface of Gloo",
    "TP_SOCKET_IFNAME": "network interface of TensorPipe",
    "VP_SIZE": "virtual stages on each stage",
}


def meaning(name: str) -> str:
    """Say what a variable means; empty for one we do not know."""
    return _MEANINGS.get(name, "")
