"""Batches that are cut out of one long text by hand, at places that NumPy draws; nobody seeds it."""

import numpy as np
import torch
import torch.distributed as dist
from launches import arguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, CONTEXT, BATCH = 16, 8, 4


def batch(text):
    places = np.random.randint(len(text) - CONTEXT, size=BATCH)
    cut = torch.stack([text[place : place + CONTEXT + 1] for place in places])
    return cut[:, :-1], cut[:, 1:]


def main():
    args = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    if args.fault == "none":
        np.random.seed(dist.get_rank())
    text = torch.randint(VOCABULARY, (2000,))
    model = DDP(nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(4):
        x, y = batch(text)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
