import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.plugins.transformers.text.detector import PromptedDetectionParameters
from app.plugins.transformers.text.image_text_to_text.assembly import assemble, load
from app.plugins.transformers.text.image_text_to_text.files import find_component_graphs
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.inference.error import InferenceError
from tasks.task import TaskType, TokenUsage
from tasks.text.generation import Message, MessagePart
from tasks.vision.request import ImageItem
from tests.plugins.transformers.text.image_text_to_text import tiny
from tests.support.rejection import rejects


@pytest.fixture
def model(folder: Path) -> Any:
    return assemble(tiny.source(folder))[0]


FEATURES = (1, 2, 3, 4)


def answers(model: Any, *items: Any) -> list[list[str]]:
    return [list(prediction.answers) for prediction in model(items)]


def ask(model: Any, *prompts: str, features: tuple[int, ...] = FEATURES, **parameters: Any) -> list[str]:
    """Return the answers to prompts about one image."""
    return answers(model, tiny.prompted_image(tiny.image_with_features(*features), *prompts, **parameters))[0]


@pytest.mark.parametrize("features", [(0, 0, 0, 0), (1, 2, 3, 4), (9, 0, 0, 200)])
@pytest.mark.parametrize("words", ["what is this", "w3 w4 w5 red"])
@pytest.mark.verifies("graphs whose answers are computed again without a cache", "vlm")
def test_answers_equal_those_computed_without_cache(model: Any, features: tuple[int, ...], words: str) -> None:
    assert ask(model, words, features=features, max_new_tokens=9) == [tiny.reference(words, features, 9)]


def test_every_prompt_of_every_image_is_answered(model: Any) -> None:
    prompts = ("what is this", "red green")
    items = [tiny.prompted_image(tiny.image_with_features(n, 1, 2, 3), *prompts, max_new_tokens=5) for n in (1, 2)]
    expected = [[tiny.reference(words, (n, 1, 2, 3), 5) for words in prompts] for n in (1, 2)]
    assert answers(model, *items) == expected


def test_an_answer_ends_before_any_end_token(folder: Path) -> None:
    words = "what is this"
    endless = tiny.reference(words, FEATURES, 8, ends=()).split()
    end = tiny.VOCABULARY.index(endless[4])
    tiny.change(folder / "generation_config.json", eos_token_id=[tiny.END, end])
    (answer,) = ask(assemble(tiny.source(folder))[0], words, max_new_tokens=8)
    assert answer == tiny.reference(words, FEATURES, 8, ends=(tiny.END, end))
    assert len(answer.split()) < len(endless)


def test_an_answer_has_at_most_max_new_tokens(folder: Path) -> None:
    tiny.change(folder / "generation_config.json", eos_token_id=None)
    model, description = assemble(tiny.source(folder))
    expected = tiny.reference("what is this", FEATURES, 7, ends=())
    assert ask(model, "what is this", max_new_tokens=7) == [expected]
    assert "none: answers end at max_new_tokens" in [fact.value for fact in description.facts]


def test_prompt_longer_than_context_is_rejected_with_its_index(model: Any) -> None:
    with rejects("model's 64 tokens, got 64 tokens, 4 of them the image", "prompts[1]"):
        ask(model, "a", "w1 " * 58)


def test_answer_stops_at_context_length(folder: Path) -> None:
    tiny.change(folder / "generation_config.json", eos_token_id=9999)
    found = ask(assemble(tiny.source(folder))[0], "w1 " * 57, max_new_tokens=30)
    assert found == [tiny.reference("w1 " * 57, FEATURES, 1, ends=())]


@pytest.mark.parametrize("prompt", ["", "  \n", "what <image> is", "<end>", "a<end>b", "<begin> a", "<pad>"])
def test_unusable_prompt_is_rejected(model: Any, prompt: str) -> None:
    with rejects(path="prompts[1]"):
        ask(model, "a", prompt)


@pytest.mark.parametrize("prompt", ["unheard of", "<unk>", "{{ 7 * 7 }}", "{% raw %}", "\x00", "😀 ﷽", "a" * 5000])
def test_unknown_words_are_answered(model: Any, prompt: str) -> None:
    assert ask(model, prompt, max_new_tokens=4) == [tiny.reference(prompt, FEATURES, 4)]


@pytest.mark.parametrize(("prompts", "encoded"), [(("a", "red", "w1"), 1), (("a", ""), 0)])
def test_image_is_encoded_once_if_all_prompts_are_usable(model: Any, prompts: tuple[str, ...], encoded: int) -> None:
    calls = tiny.encoded_images(model)
    with nullcontext() if encoded else pytest.raises(InferenceError, match="empty text"):
        ask(model, *prompts, max_new_tokens=1)
    assert len(calls) == encoded


def test_sampling_is_repeatable_only_with_same_seed(model: Any) -> None:
    def sample(**parameters: Any) -> list[str]:
        return ask(model, "a", temperature=9.0, max_new_tokens=20, **parameters)

    assert sample(seed=7) == sample(seed=7)
    assert len({str(sample(seed=seed)) for seed in range(4)}) > 1
    assert len({str(sample()) for _ in range(6)}) > 1


def test_concurrent_calls_give_independent_answers(model: Any) -> None:
    cases = [((n, 2, 3, n % 5), f"w{n % 9} what") for n in range(40)]

    def answer_of(case: tuple[tuple[int, ...], str]) -> str:
        return ask(model, case[1], features=case[0], max_new_tokens=12)[0]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(answer_of, cases))
    assert found == [tiny.reference(words, features, 12) for features, words in cases]


def test_half_precision_graphs_are_fed_half_precision(tmp_path: Path) -> None:
    model = assemble(tiny.source(tiny.write_model(tmp_path, subfolder="onnx", suffix="_fp16", half=True)))[0]
    assert ask(model, "what", features=(1, 0, 1, 0), max_new_tokens=3) == [tiny.reference("what", (1, 0, 1, 0), 3)]


def test_a_model_is_recognised_by_its_file_names(tmp_path: Path) -> None:
    assert not find_component_graphs(ModelSource(name="m", version="1", folder=tmp_path))
    assert not find_component_graphs(ModelSource(name="m", version="1", folder=tmp_path / "absent"))
    (tmp_path / "onnx").mkdir()
    for name in ("vision_encoder_q4", "embed_tokens", "decoder_model_merged_q4f16"):
        (tmp_path / "onnx" / f"{name}.onnx").touch()
    assert find_component_graphs(ModelSource(name="m", version="1", folder=tmp_path))
    (tmp_path / "onnx" / "embed_tokens.onnx").unlink()
    assert not find_component_graphs(ModelSource(name="m", version="1", folder=tmp_path))


def test_a_named_graph_decides_the_precision(tmp_path: Path) -> None:
    for suffix in ("", "_q4"):
        tiny.write_model(tmp_path, suffix=suffix)
    facts = {fact.topic: fact.value for fact in assemble(tiny.source(tmp_path))[1].facts}
    assert facts["graphs"] == "vision_encoder.onnx, embed_tokens.onnx, decoder_model_merged.onnx"
    named = msgspec.structs.replace(tiny.source(tmp_path), file=tmp_path / "decoder_model_merged_q4.onnx")
    facts = {fact.topic: fact.value for fact in assemble(named)[1].facts}
    assert facts["graphs"] == "vision_encoder_q4.onnx, embed_tokens_q4.onnx, decoder_model_merged_q4.onnx"


def test_description_lists_detected_properties(folder: Path) -> None:
    description = load(tiny.source(folder)).description
    assert description.task_type is TaskType.IMAGE_TEXT_TO_TEXT
    assert (description.platform, description.layout) == ("onnx", "llava")
    assert [spec.name for spec in description.inputs] == ["pixel_values", "input_ids"]
    assert [spec.name for spec in description.outputs] == ["logits"]
    assert {fact.topic: fact.value for fact in description.facts} == {
        "graphs": "vision_encoder.onnx, embed_tokens.onnx, decoder_model_merged.onnx",
        "model type": "llava",
        "layers with a cache": "1",
        "preprocessing": "CLIPImageProcessorPil",
        "chat template": "the model's",
        "image token": "<image> (2)",
        "end of answer": "<end>",
        "context": "64 tokens",
    }


@pytest.mark.slow
def test_package_imports_no_framework_and_runs_without_torch(folder: Path) -> None:
    code = f"""
import sys; sys.modules['torch'] = None  # importing it raises ImportError
from pathlib import Path
from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.plugins.transformers.text.detector import PromptedDetectionParameters
from app.plugins.transformers.text.image_text_to_text.assembly import load
print(sorted({{'onnxruntime', 'tokenizers', 'jinja2', 'transformers'}} & sys.modules.keys()))
print(load(ModelSource(name='a', version='1', folder=Path({str(folder)!r}))).description.layout)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("[]\nllava\n", "")


def conversation(*features: tuple[int, ...], **parameters: Any) -> PromptedImage:
    image, *more = (tiny.image_with_features(*values) for values in features)
    place, text = MessagePart(type="image"), MessagePart(type="text", text="what is")
    messages = (
        Message("user", (place, text)),
        Message("assistant", (MessagePart(type="text", text="a red square"),)),
        Message("user", (*[place] * len(more), text)),
    )
    settings = GenerationParameters(messages=messages, **parameters)
    return PromptedImage((image, *more), ("what is",), settings, "messages")


def test_conversation_with_several_images_is_one_prompt(model: Any) -> None:
    features = ((1, 2, 3, 4), (5, 6, 7, 8), (9, 8, 7, 6))
    item = conversation(*features, max_new_tokens=6)
    # The template adds no space after a message.
    text = "user: <image> what isassistant: a red squareuser: <image> <image> what is assistant:"
    chunks = list(model.stream([item]))
    expected = tiny.continued(text, features, 6)
    assert "".join(chunk.text for chunk in chunks) == expected == answers(model, item)[0][0]
    assert chunks[-1].usage.prompt == len(text.split()) - 3 + 12


def test_conversation_without_images_is_answered(model: Any) -> None:
    messages = (Message("user", (MessagePart(type="text", text="what is"),)),)
    settings = GenerationParameters(messages=messages, max_new_tokens=6)
    item = PromptedImage((), ("what is",), settings, "messages")
    assert answers(model, item)[0][0] == tiny.continued("user: what is assistant:", (), 6)


def test_text_of_a_conversation_must_not_contain_control_tokens(model: Any) -> None:
    item = conversation((1, 2, 3, 4))
    bad = Message("user", (MessagePart(type="text", text="what <image>"),))
    parameters = GenerationParameters(messages=(*(item.parameters.messages or ()), bad))
    with rejects("control tokens, got <image>", "messages"):
        model([msgspec.structs.replace(item, parameters=parameters)])


def test_joined_chunks_of_each_answer_equal_call_answer(model: Any) -> None:
    prompts = ("what is this", "red green", "w1")
    items = [tiny.prompted_image(tiny.image_with_features(n, 1, 2, 3), *prompts, max_new_tokens=5) for n in (1, 2)]
    chunks = list(model.stream(items))
    found = enumerate(answers(model, *items))
    expected = [((item, prompt), text) for item, texts in found for prompt, text in enumerate(texts)]
    for position, text in expected:
        own = [chunk for chunk in chunks if (chunk.item, chunk.prompt) == position]
        assert "".join(chunk.text for chunk in own) == text
        assert [chunk.final for chunk in own] == [False] * (len(own) - 1) + [True]
    assert list(dict.fromkeys((chunk.item, chunk.prompt) for chunk in chunks)) == [position for position, _ in expected]
    assert len(chunks) > 2 * len(expected)
    assert (chunks[-1].usage, chunks[-1].finish) == (TokenUsage(prompt=7, completion=5), "length")


def test_unusable_prompt_is_rejected_before_streaming_starts(model: Any) -> None:
    items = [tiny.prompted_image(tiny.image_with_features(1, 2, 3, 4), words) for words in ("what is this", " ")]
    with pytest.raises(InferenceError, match="Expected a question"):
        model.stream(items)


def test_closed_stream_generates_no_more_tokens(model: Any) -> None:
    stream = model.stream([tiny.prompted_image(tiny.image_with_features(1, 2, 3, 4), "what is this", max_new_tokens=9)])
    next(stream)
    stream.close()
    assert list(stream) == []


def test_model_with_declared_form_answers_as_a_detector(folder: Path) -> None:
    settings = registry().model_settings(task_type=TaskType.OBJECT_DETECTION, grounding="qwen3_vl")
    servable = load(msgspec.structs.replace(tiny.source(folder), settings=settings))
    assert servable.description.open_vocabulary
    assert [spec.name for spec in servable.outputs] == ["num_detections", "labels", "scores", "boxes"]
    parameters = PromptedDetectionParameters(candidate_labels=("what is",), prompt="{labels} this", max_new_tokens=3)
    (found,) = servable.model([ImageItem(tiny.image_with_features(*FEATURES), parameters)])
    assert (found.labels, found.boxes.shape) == ([], (0, 4))
