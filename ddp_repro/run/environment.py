"""What a rank's environment is made of: which variables pass, which can move bits, which belong to an outer launch."""

from collections.abc import Mapping

# Needed to start Python and find libraries, files and devices; none of them changes what is computed.
PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
    "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "CC", "CXX",
)  # fmt: skip

# Variables that change numerics, by exact name or by prefix. Sources: PyTorch's notes on reproducibility and its list
# of environment variables; NCCL's, cuBLAS's, oneMKL's, oneDNN's, OpenBLAS's and OpenMP's own documentation.
NUMERIC_NAMES = ("PYTHONHASHSEED", "NVIDIA_TF32_OVERRIDE", "LD_PRELOAD")
NUMERIC_PREFIXES = (
    "ATEN_", "BLIS_", "CUBLAS_", "CUBLASLT_", "CUDA_", "CUDNN_", "DNNL_", "GLOO_", "GOMP_", "KMP_", "MKL_", "NCCL_",
    "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "TRITON_", "UCC_",
)  # fmt: skip
# Of those prefixes, what only names a device or a place, only talks, or only says how threads wait.
PLACES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_CACHE_PATH", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING",
    "CUDA_VERSION", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_VERSION",
    "TORCH_HOME", "TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_TRACE", "TORCH_EXTENSIONS_DIR", "TORCH_CPP_LOG_LEVEL",
    "TORCH_SHOW_CPP_STACKTRACES", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PYTORCH_KERNEL_CACHE_PATH",
    "OMP_WAIT_POLICY",
)  # fmt: skip


def moves_bits(name: str) -> bool:
    """Return whether an environment variable of this name can change what is computed."""
    return name not in PLACES and (name in NUMERIC_NAMES or name.startswith(NUMERIC_PREFIXES))


def numeric_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` that can change what is computed, sorted by name."""
    return {name: environ[name] for name in sorted(environ) if moves_bits(name)}


def rank_environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a rank: passed by name, plus what moves bits, plus ``extra``, which wins.

    Nothing of an outer launch (``RANK``, ``MASTER_*``, ``TORCHELASTIC_*``) is among it. torchrun sets
    ``OMP_NUM_THREADS`` for its children when nobody did, so the thread variables come from ``extra`` alone.
    """
    passed = {name: value for name, value in environ.items() if name in PASSED or name in PLACES or moves_bits(name)}
    for name in THREAD_VARIABLES:
        passed.pop(name, None)
    return {**passed, **extra}


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# What torchrun tells its children of their place, and its own settings (PET_*): an outer launch's, not the script's.
OUTER_NAMES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
OUTER_PREFIXES = ("TORCHELASTIC_", "PET_", "DDP_REPRO_")

# What torchrun sets that is the same on every rank of one node. The store is rank 0's: there is no agent that keeps it.
_AS_TORCHRUN = {
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_NAME": "default",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "False",
}


def script_environment(environ: Mapping[str, str], extra: Mapping[str, str], *, nproc: int) -> dict[str, str]:
    """Return the environment of a script's rank: what torchrun would give it, plus ``extra``, which wins.

    It is inherited, less what an outer launch told this process. As torchrun does, it sets one OpenMP thread a rank
    where there are several ranks and nobody said otherwise.
    """
    inherited = {
        name: value
        for name, value in environ.items()
        if name not in OUTER_NAMES and not name.startswith(OUTER_PREFIXES)
    }
    defaults = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if nproc > 1:
        defaults["OMP_NUM_THREADS"] = "1"
    return {**defaults, **inherited, **_AS_TORCHRUN, "ROLE_WORLD_SIZE": str(nproc), **extra}
