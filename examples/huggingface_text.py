"""A Hugging Face training with its energy beside the loss: python examples/huggingface_text.py"""

from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from energy_callbacks.huggingface import GpuEnergyCallback

text = torch.frombuffer(bytearray("\n".join(topics.values()).encode()), dtype=torch.uint8).long()
rows = text[: 1000 * 64].view(-1, 64)
dataset = [{"input_ids": row, "labels": row} for row in rows]
config = GPT2Config(
    vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
)
arguments = TrainingArguments(
    output_dir="text",
    num_train_epochs=2,
    per_device_train_batch_size=16,
    logging_steps=20,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=["tensorboard"],
)
trainer = Trainer(
    model=GPT2LMHeadModel(config),
    args=arguments,
    train_dataset=dataset[:-100],
    eval_dataset=dataset[-100:],
    callbacks=[GpuEnergyCallback()],
)
trainer.train()
