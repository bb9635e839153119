"""Failures of NPUs, of HCCL and of the software between them and torch."""

from __future__ import annotations

import re

from taskpack.launch.signature import Signature

_FIRST_LOG = "find the rank that ended first and read its log"

NPU_SIGNATURES = (
    Signature(
        "EJ0001 NPU in use",
        "cause",
        ("ej0001", "failed to initialize the hccp process"),
        "another process still holds the NPU, mostly one of an earlier run",
        "npu-smi info names it at its end (on the host, from a container); end it, wait ten "
        "seconds, start again",
    ),
    Signature(
        "EI0003 communication argument",
        "cause",
        ("ei0003",),
        "HCCL was handed an argument that it refuses",
        "look at the operator and the value behind the code; compare ranks and group sizes with "
        "TP, PP and CP of the profile",
    ),
    Signature(
        "EI0004 rank table",
        "cause",
        ("ei0004",),
        "the rank table does not describe this run; it is of an earlier job or of the platform",
        "unset RANK_TABLE_FILE: torchrun needs none. If it is meant, check device_id and rank_id",
    ),
    Signature(
        "EI0005 ranks disagree",
        "cause",
        ("ei0005",),
        "ranks called one collective with different arguments",
        "look for a branch that depends on the data (rows with and without pictures, uneven "
        "batches); all nodes must run the same files",
    ),
    Signature(
        "EI0006 connection timeout",
        "symptom",
        (
            "ei0006",
            "getting socket times out",
            "topo exchange server get socket timeout",
            "topo exchange agent get socket timeout",
        ),
        "a rank did not connect in time: it had ended, was still busy, or cannot be reached",
        f"{_FIRST_LOG}; then check node count, firewall, HCCL_SOCKET_IFNAME and "
        "GLOO_SOCKET_IFNAME; raise HCCL_CONNECT_TIMEOUT if ranks start far apart",
    ),
    Signature(
        "EI0002 rank stopped answering",
        "symptom",
        ("ei0002", "notify wait timeout"),
        "a rank stopped in the middle of the run, or its link was lost",
        f"{_FIRST_LOG}; taskpack doctor --hosts looks at the links; raise HCCL_EXEC_TIMEOUT if a "
        "long save or a slow file system kept a rank away",
    ),
    Signature(
        "wrong HCCL_IF_IP",
        "cause",
        ("is not found in the nic list",),
        "HCCL_IF_IP holds an address that this node does not have",
        "unset HCCL_IF_IP, or set it on each node to the node's own address",
    ),
    Signature(
        "wrong interface name",
        "cause",
        ("get host ip fail by socket ifname", "unable to find address for:"),
        "an interface of that name does not exist on this node",
        "list them with `ip -br addr`; set HCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME and "
        "TP_SOCKET_IFNAME to the one that leads to the master",
    ),
    Signature(
        "TLS switch differs",
        "cause",
        ("tlsstatus are inconsistent",),
        "NPUs with TLS switched on refuse those without",
        "hccn_tool -i N -tls -g on every NPU of every node; set all alike",
    ),
    Signature(
        "NPU network port",
        "symptom",
        ("rdma init fail", "cqe error status", "get qp status timeout"),
        "traffic between nodes failed at an NPU's port, or the rank behind it ended",
        f"{_FIRST_LOG}; hccn_tool -i N -link -g, then cable, optics, gateway and the switch's flow "
        "control (PFC)",
    ),
    Signature(
        "peer NPU of the node",
        "symptom",
        ("connected p2p timeout",),
        "another NPU of the same node did not answer",
        _FIRST_LOG,
    ),
    Signature(
        "invalid device",
        "cause",
        ("invalid device id", "107001"),
        "a process asked for an NPU that is not there: more processes than NPUs, or hidden ones",
        "set NPUS_PER_NODE to the number of /dev/davinciN, unset ASCEND_RT_VISIBLE_DEVICES, or "
        "give the container all NPUs",
        re.compile(r"invalid device id|(?:code|ret|err)\w*\W{0,4}(?:is |:|=)?\W{0,3}107001\b"),
    ),
    Signature(
        "NPU out of memory",
        "cause",
        ("npu out of memory", "outofmemoryerror", "207001"),
        "weights, optimizer and activations of this rank do not fit into HBM, or another process "
        "holds a part",
        "taskpack plan shows what fills it; use train.recompute: full, a lower train.seq_length or "
        "data.image_max_pixels, more TP or PP; npu-smi info shows who else is there",
        re.compile(
            r"npu out of memory|outofmemoryerror|(?:code|ret|err)\w*\W{0,8}(?:is )?207001\b"
        ),
    ),
    Signature(
        "EL driver or memory",
        "cause",
        ("el0003", "el0004", "el0007"),
        "the driver refused: a device that is not there, no memory left, or the driver itself",
        "the text behind the code says which; npu-smi info for health and memory, the host's dmesg",
    ),
    Signature(
        "AI Core fault",
        "cause",
        ("aicore exception", "vector core exception", "aicore error", "507015", "507035"),
        "an operator stopped on the NPU: wrong input, a fault of the operator, or sick hardware",
        "run again with ASCEND_LAUNCH_BLOCKING=1, which names the operator; if it is always the "
        "same NPU, take it out: npu-smi info -t health -i N",
        re.compile(r"exception|aicore error|(?:code|ret|err)\w*\W{0,8}(?:is )?(?:507015|507035)\b"),
    ),
    Signature(
        "AI CPU fault",
        "cause",
        ("aicpu exception", "aicpu error"),
        "an operator on the NPU's own processor stopped",
        "run again with ASCEND_LAUNCH_BLOCKING=1, which names the operator",
    ),
    Signature(
        "memory fault of the NPU",
        "cause",
        ("multi-bit ecc", "multi bit ecc", "hbm ecc", "ecc error"),
        "HBM returned bits that cannot be repaired",
        "take the node out of the run; npu-smi info -t ecc -i N, reset or replace the NPU",
    ),
    Signature(
        "CANN environment",
        "cause",
        (
            "libhccl.so: cannot open",
            "libascendcl.so: cannot open",
            "libge_runner.so: cannot open",
            "libatb.so: cannot open",
        ),
        "CANN's libraries are not on the loader's path",
        "source set_env.sh of CANN (and of nnal/atb for libatb.so), or set ASCEND_PREFIX; taskpack "
        "doctor shows which are there",
    ),
    Signature(
        "driver libraries",
        "cause",
        ("libascend_hal.so",),
        "the driver's libraries are not in this container",
        "mount the host's driver/lib64 read-only into the container",
        re.compile(r"cannot open|no such file|not found"),
    ),
    Signature(
        "driver not reached",
        "cause",
        ("dcmi module initialize failed",),
        "npu-smi cannot talk to the driver",
        "give the container davinci_manager, devmm_svm, hisi_hdc and the dcmi folder; join the "
        "group of the device nodes",
    ),
    Signature(
        "npu-smi missing",
        "symptom",
        ("npu-smi: command not found", "npu-smi: not found"),
        "npu-smi is not mounted into this container",
        "mount it from the host: /usr/local/bin/npu-smi or /usr/local/sbin/npu-smi",
    ),
    Signature(
        "CANN inner error",
        "symptom",
        ("ez9999", "ee9999", "e39999", "e19999"),
        "CANN reports an error of its own; lines around it say more",
        "read the first code above it; look into the plog folder (~/ascend/log) of that rank",
    ),
    Signature(
        "ERR02200 HCCL call",
        "wrapper",
        ("err02200", "call hccl api failed", "hccl function error"),
        "torch_npu says that HCCL failed, not why",
        "read the line with EI or EJ near it",
    ),
    Signature(
        "ERR00100 ACL call",
        "wrapper",
        ("err00100", "call acl api failed", "ops function error", "npu function error"),
        "torch_npu says that CANN failed, not why",
        "read the line with a code of CANN (EI, EJ, EL, EZ) near it",
    ),
    Signature(
        "ERR99999 any error",
        "wrapper",
        ("err99999",),
        "torch_npu's mark on a process that ends with any Python error",
        "read the first traceback of that rank",
    ),
)
