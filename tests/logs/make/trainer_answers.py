"""Logs runs with a known answer with Hugging Face's Trainer.

    python trainer_answers.py OUT

Writes OUT/trainer_saved/<run>: the state, the model's config.json, args.json with the arguments, and the last two
checkpoints. OUT/trainer_checkpoints/<run> has checkpoints only.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from closed_form import EXAMPLES, SIZES, epochs, loss, steps_per_epoch
from torch.utils.data import Dataset
from trainer_runs import Data
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

KEPT = ("trainer_state.json", "config.json", "args.json")


class ClosedForm(Trainer):
    """A trainer with the closed form as its loss. The gradient is 0."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **rest: Any) -> Any:
        size = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
        value = loss(self.state.global_step + model.training, size) + 0 * model.classifier.bias.sum()
        value = value / self.args.gradient_accumulation_steps if model.training else value
        return (value, {"logits": torch.zeros(len(inputs["labels"]), 2)}) if return_outputs else value


def train(folder: Path, size: int, data: Dataset, accumulated: int) -> None:
    config = BertConfig(
        vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=2
    )
    length = steps_per_epoch(size)
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=size // accumulated,
        gradient_accumulation_steps=accumulated,
        per_device_eval_batch_size=8,
        max_steps=epochs(size) * length,
        logging_steps=max(10, length // 2),
        eval_strategy="steps",
        eval_steps=max(2, length // 8),
        save_strategy="steps",
        save_steps=(epochs(size) // 2) * length,
        save_total_limit=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    model = BertForSequenceClassification(config)
    trainer = ClosedForm(model, arguments, train_dataset=data, eval_dataset=Data(8, 1))
    trainer.train()
    if accumulated > 1:
        trainer.save_model()
        trainer.save_state()
        (folder / "args.json").write_text(json.dumps(arguments.to_dict(), indent=1))
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in KEPT:
            path.unlink()


def main(out: Path) -> None:
    for size in SIZES:
        data = Data(EXAMPLES, 0)
        train(out / "trainer_saved" / f"run{SIZES.index(size)}", size, data, 2)
        train(out / "trainer_checkpoints" / f"run{SIZES.index(size)}", size, data, 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
