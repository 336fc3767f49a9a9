"""Trains a small GPT-2 in a loop of Hugging Face Accelerate: its shards of batches, its accumulation, its clipping."""

import argparse
import os

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

parser = argparse.ArgumentParser()
parser.add_argument("--fault", choices=["noise", "nudge", "unseeded"])
parser.add_argument("--dispatch", action="store_true")
args = parser.parse_args()


class Sequences(Dataset):
    def __init__(self, count, noise):
        self.tokens = (torch.arange(count * 8).reshape(count, 8) * 7) % 31
        self.noise = noise

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        if self.noise:
            tokens = (tokens + os.urandom(1)[0]) % 31
        return {"input_ids": tokens, "labels": tokens}


accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=2,
    dataloader_config=DataLoaderConfiguration(dispatch_batches=args.dispatch, use_seedable_sampler=True),
)
if args.fault != "unseeded":
    set_seed(1)
data = Sequences(48, noise=args.fault == "noise" and accelerator.process_index == 1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=2, n_head=2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = get_linear_schedule_with_warmup(optimizer, 1, 100)
model, optimizer, loader, scheduler = accelerator.prepare(
    model, optimizer, DataLoader(data, batch_size=4, shuffle=True), scheduler
)
model.train()
for _epoch in range(2):
    for number, batch in enumerate(loader):
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if args.fault == "nudge" and number == 1 and accelerator.process_index == 2:
            with torch.no_grad():
                accelerator.unwrap_model(model).transformer.h[1].mlp.c_fc.bias[0] += 1e-4
accelerator.end_training()
