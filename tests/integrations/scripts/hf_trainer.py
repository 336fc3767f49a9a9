"""Trains a small BERT with the Trainer of transformers: its loader, its seeds, its accumulation, its clipping."""

import argparse
import os

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

parser = argparse.ArgumentParser()
parser.add_argument("--fault", choices=["noise", "nudge", "unseeded"])
args = parser.parse_args()
rank = int(os.environ["RANK"])


class Sequences(Dataset):
    def __init__(self, count):
        self.tokens = (torch.arange(count * 8).reshape(count, 8) * 7) % 31

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        if args.fault == "noise" and rank == 1:
            tokens = (tokens + os.urandom(1)[0]) % 31
        return {"input_ids": tokens, "labels": int(tokens[0]) % 3}


class Nudge(TrainerCallback):
    def on_step_end(self, training, state, control, model, **rest):
        if state.global_step == 1 and rank == 2:
            with torch.no_grad():
                model.get_parameter("bert.encoder.layer.1.output.dense.bias")[0] += 1e-4


if args.fault != "unseeded":
    set_seed(1)
config = BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=8, num_labels=3,
)  # fmt: skip
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=TrainingArguments(
        output_dir=f"out-{os.getpid()}", use_cpu=True, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        num_train_epochs=2, learning_rate=1e-2, save_strategy="no", report_to="none", disable_tqdm=True,
        logging_steps=1, ddp_backend="gloo", seed=1,
    ),
    train_dataset=Sequences(48),
    eval_dataset=Sequences(9),
    callbacks=[Nudge()] if args.fault == "nudge" else [],
)  # fmt: skip
trainer.train()
trainer.evaluate()
