"""Run by ``test_tuner_ddp.py`` under torchrun: two ranks, of which the second has less memory."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from energy_callbacks.huggingface import batch_arguments
from tests.integrations.huggingface.tunable import Tunable, tuned
from tests.integrations.ranks import leave


class Model(Tunable):
    """A model that takes ``num_items_in_batch``, which the Trainer counts over all ranks."""

    def forward(self, input_ids: torch.Tensor, labels: Any = None, **items: Any) -> Any:
        assert "num_items_in_batch" in items
        return super().forward(input_ids)


class Talking(Trainer):
    """A Trainer whose loss communicates with other ranks, as TRL's trainers do."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        self.figure = self.accelerator.gather_for_metrics(loss.detach()).mean().item()
        return loss


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    model = Model(most=16 if rank == 0 else 8)
    rows = [{"input_ids": torch.ones(3), "labels": torch.ones(1)} for _ in range(128)]

    def make_trainer(**batch: int) -> Trainer:
        """Return a Trainer of the same model each time."""
        args = TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            ddp_backend="gloo",
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            # Ranks then tell each other their generators at the start of each epoch.
            accelerator_config={"use_seedable_sampler": False},
            **batch,
        )
        return Talking(model=model, args=args, train_dataset=rows)

    before = [one.detach().clone() for one in model.parameters()]
    result = tuned(make_trainer, folder / str(rank), global_batch_size=64)
    is_as_before = all(map(torch.equal, before, model.parameters()))
    model.seen.clear()
    trainer = make_trainer(**batch_arguments(result))
    trainer.train()
    found = {
        "size": result.size,
        "accumulation": result.accumulation,
        "sizes": [trial.size for trial in result.trials],
        "is_as_before": is_as_before,
        "trained_with": list(model.seen),
        "steps": trainer.state.global_step,
        "weights": [one.tolist() for one in model.parameters()],
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    leave()
