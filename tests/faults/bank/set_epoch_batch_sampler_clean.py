"""Batches of sequences of similar length, sharded over the processes."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sentences(Dataset):
    def __init__(self, size=60):
        generator = torch.Generator().manual_seed(3)
        self.lengths = torch.randint(3, 9, (size,), generator=generator).tolist()
        self.tokens = [torch.randint(0, 20, (length,), generator=generator) for length in self.lengths]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


class BucketBatchSampler:
    """Sorts the shard of this process by length within pools, and cuts it into batches."""

    def __init__(self, sampler, lengths, batch_size, pool=10):
        self.sampler, self.lengths, self.batch_size, self.pool = sampler, lengths, batch_size, pool

    def __iter__(self):
        indices = list(self.sampler)
        for start in range(0, len(indices), self.pool):
            pool = sorted(indices[start : start + self.pool], key=lambda index: self.lengths[index])
            for first in range(0, len(pool), self.batch_size):
                yield pool[first : first + self.batch_size]

    def __len__(self):
        return len(self.sampler) // self.batch_size

    def set_epoch(self, epoch):
        self.sampler.set_epoch(epoch)


def pad(tokens):
    return nn.utils.rnn.pad_sequence(tokens, batch_first=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(13)
    data = Sentences()
    batches = BucketBatchSampler(DistributedSampler(data), data.lengths, batch_size=5)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=pad)
    model = DDP(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(args.epochs):
        if hasattr(loader.batch_sampler, "set_epoch"):
            loader.batch_sampler.set_epoch(epoch)
        for tokens in loader:
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {dist.get_rank()}: {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
