from ddp_repro.run.environment import numeric_environment, rank_environment

OUTER = {
    "PATH": "/bin",
    "RANK": "3",
    "WORLD_SIZE": "8",
    "MASTER_ADDR": "outer",
    "MASTER_PORT": "29500",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "0",
    "TORCHELASTIC_RUN_ID": "x",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "OMP_NUM_THREADS": "1",
    "NCCL_ALGO": "Ring",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "SECRET_TOKEN": "s",
}


def test_nothing_of_an_outer_launch_reaches_a_rank() -> None:
    environ = rank_environment(OUTER, {})
    assert environ == {"PATH": "/bin", "NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0,1"}


def test_what_is_set_wins_over_what_is_passed() -> None:
    environ = rank_environment(OUTER, {"NCCL_ALGO": "Tree", "OMP_NUM_THREADS": "2", "MINE": "1"})
    assert environ["NCCL_ALGO"] == "Tree"
    assert environ["OMP_NUM_THREADS"] == "2"
    assert environ["MINE"] == "1"


def test_the_numeric_environment_leaves_out_places_and_devices() -> None:
    environ = {
        "NCCL_ALGO": "Ring",
        "NCCL_SOCKET_IFNAME": "eth0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "CUDA_VISIBLE_DEVICES": "1",
        "TORCHELASTIC_RUN_ID": "x",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
        "PYTHONHASHSEED": "0",
        "HOME": "/root",
        "MKL_CBWR": "COMPATIBLE",
    }
    assert numeric_environment(environ) == {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "MKL_CBWR": "COMPATIBLE",
        "NCCL_ALGO": "Ring",
        "PYTHONHASHSEED": "0",
    }
