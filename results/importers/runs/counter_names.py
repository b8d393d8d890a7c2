"""Counter names: the kind of counter in a column, by its name: steps, epochs, examples, tokens or time."""

EPOCHS = ("epoch", "epochs", "current_epoch", "training_iteration")
KINDS = {
    "step steps global_step iteration iterations iter iters update updates num_updates train_step": "steps",
    " ".join(EPOCHS): "epochs",
    "samples examples consumed_samples samples_seen examples_seen num_samples consumed_train_samples": "examples",
    "tokens consumed_tokens tokens_seen num_tokens total_tokens num_input_tokens_seen": "tokens",
    "time seconds wall_time timestamp elapsed elapsed_time runtime time_total_s time_this_iter_s": "seconds",
}
_KIND_OF = {name: kind for names, kind in KINDS.items() for name in names.split()}


def kind(name: str) -> str:
    """Returns the kind of counter that a column is by its name, one of the values of ``KINDS``, or an empty string."""
    return _KIND_OF.get(name.rpartition("/")[2].lower().strip("_ ").replace(" ", "_"), "")
