"""What the pods of the real Job run: one all-reduce over all of them, and then whatever else is asked.

python gloo.py RANK WORLD PORT [SECONDS]
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def main(rank: int, world: int, port: int, seconds: float) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    print(
        f"rank {rank} sum {int(total)} node {os.environ['NODE']} gpus {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True
    )
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        dist.all_reduce(total)
        time.sleep(0.2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]) if sys.argv[4:] else 0.0)
