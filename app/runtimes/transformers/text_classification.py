"""Text classifiers."""

from collections.abc import Sequence

from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.classes import classifications
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.tokenizing import (
    check_length,
    load_tokenizer,
    most_tokens,
    own_tokenizer,
    text_inputs,
)
from tasks.image_classification import Classification
from tasks.text_classification import ClassifiedText, TextClassifier

__all__ = ("load_text_classifier",)


def load_text_classifier(understood: Understood, network: Network) -> TextClassifier:
    """The classifier of `network`. Texts go through it one by one: none is padded for the sake of another.

    Raises:
        ModelError: when it has no tokenizer.
    """
    tokenizer = load_tokenizer(understood.source)
    _, bare = own_tokenizer(tokenizer, understood.source)
    most = most_tokens(tokenizer, network.config)

    def classify(inputs: Sequence[ClassifiedText], /) -> Sequence[Classification]:
        encoded = [bare.encode(each.item.text) for each in inputs]
        for each, item in zip(encoded, inputs, strict=True):
            check_length(len(each.ids), most, item.item.path)
        found: list[Classification] = []
        for each in encoded:
            logits = network(text_inputs(each.ids, tokenizer, each.type_ids)).logits
            found += classifications(logits, network.config, understood.labels)
        return found

    return classify
