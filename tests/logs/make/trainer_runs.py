"""Trains tiny models with the Trainer of Hugging Face's transformers.

    python trainer_runs.py OUT

Writes OUT/<run>/trainer_state.json, and OUT/printed.json with the numbers that the runs printed.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Data(torch.utils.data.Dataset):
    """Sequences that are 1 if their first token is large."""

    def __init__(self, count: int, seed: int):
        self.tokens = torch.randint(0, 32, (count, 6), generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[i], "labels": (self.tokens[i, 0] >= 16).long()}


class Printed(TrainerCallback):
    """Keeps the numbers that the Trainer prints."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_log(self, args, state, control, logs=None, **rest) -> None:  # type: ignore[no-untyped-def]
        self.rows.append({"step": state.global_step, **logs})


def train(out: Path, seed: int) -> list[dict[str, float]]:
    config = BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
    )
    transformers.set_seed(seed)
    printed = Printed()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=5e-3,
            max_steps=24,
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=8,
            save_strategy="no",
            report_to=[],
            seed=seed,
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(
            BertForSequenceClassification(config),
            arguments,
            train_dataset=Data(400, 0),
            eval_dataset=Data(100, 1),
            compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
            callbacks=[printed],
        )
        trainer.train()
        trainer.save_state()
        out.mkdir(parents=True)
        shutil.copy(Path(folder) / "trainer_state.json", out / "trainer_state.json")
    return printed.rows


def main(out: Path) -> None:
    printed = {f"adamw-seed{seed}": train(out / f"adamw-seed{seed}", seed) for seed in (0, 1)}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    (out / "printed.json").write_text(json.dumps({"versions": versions, "runs": printed}, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
