import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from app.plugins.text.image_text_to_text.assembly import assemble, load
from app.plugins.text.image_text_to_text.configuration import read_tokenizer_configuration
from app.plugins.text.image_text_to_text.prompting import load_chat_template
from metadata.model import Fact, Origin
from tasks.text.generation import question

TEMPLATES = [
    "{% for message in messages %}{{ message.role | capitalize }}:{% for part in message.content %}"
    "{% if part.type == 'image' %}{{ '<image>' }}{% else %} {{ part.text | trim }}{% endif %}{% endfor %}\n"
    "{% endfor %}\n  {% if add_generation_prompt %}\n{{ 'Assistant:' }}\n{% endif %}",
    "{{ bos_token }}{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
    "{% for message in messages %}{% generation %}{{ message.role }}{% endgeneration %}{% break %}"
    "{% endfor %}{{ tools }}",
    "{% set ns = namespace(found=false) %}{% for p in messages[0].content %}{% if p.type == 'image' %}"
    "{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}{{ eos_token }}{{ strftime_now('%Y') }}",
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("prompt", ["What is it?", "<b>&'\" ünï\n 🐎 {{ 1 }}"])
def test_templates_render_as_hugging_face_renders_them(tiny: Any, folder: Path, template: str, prompt: str) -> None:
    utilities: Any = importlib.import_module("transformers.utils.chat_template_utils")

    (folder / "chat_template.jinja").write_text(template)
    tiny.change(folder / "tokenizer_config.json", eos_token="<end>")
    loaded = load_chat_template(folder, read_tokenizer_configuration(folder))
    assert loaded is not None
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    [expected], _ = utilities.render_jinja_template(
        [[{"role": "user", "content": content}]],
        chat_template=template,
        add_generation_prompt=True,
        bos_token="<begin>",
        eos_token="<end>",
        unk_token="<unk>",
    )
    assert loaded[0].render([question(prompt)]) == expected


@pytest.mark.parametrize("name", ["chat_template.json", "processor_config.json", "tokenizer_config.json"])
def test_template_is_found_in_each_supported_file(tiny: Any, folder: Path, name: str) -> None:
    (folder / "chat_template.jinja").unlink()
    (folder / name).write_text(json.dumps({"chat_template": tiny.template, "bos_token": "<begin>"}))
    model, description = assemble(tiny.source(folder))
    assert {fact.topic: fact.value for fact in description.facts}["chat template"] == name
    [answers] = model([tiny.prompted_image(tiny.image_with_features(1, 2, 3, 4), "what is", max_new_tokens=4)])
    assert answers.answers == [tiny.reference("what is", (1, 2, 3, 4), 4)]


def test_default_of_several_templates_is_used(tiny: Any, folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    templates = [{"name": "tools", "template": "{{ oh }}"}, {"name": "default", "template": tiny.template}]
    tiny.change(folder / "tokenizer_config.json", chat_template=templates)
    assert load(tiny.source(folder)).description.layout == "llava"


def test_without_a_template_the_image_comes_before_the_prompt(tiny: Any, folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    model, description = assemble(tiny.source(folder))
    assert "none: <image>, line break, prompt" in [fact.value for fact in description.facts]
    encoded = model.prompts.encode("what is", "prompts[0]")
    assert encoded == [[], [tiny.vocabulary.index(word) for word in ("what", "is")]]


def test_image_token_of_the_tokenizer_is_used_without_one_in_the_configuration(tiny: Any, folder: Path) -> None:
    tiny.change(folder / "config.json", image_token_id=None)
    assert Fact("image token", "<image> (2)", Origin.TOKENIZER) in assemble(tiny.source(folder))[1].facts


def test_text_model_template_receives_content_as_string(tiny: Any, folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("user: {{ messages[0]['content'] }} assistant:")
    model = assemble(tiny.source(folder))[0]
    [answers] = model([tiny.prompted_image(tiny.image_with_features(1, 2, 3, 4), "what is", max_new_tokens=4)])
    assert answers.answers == [tiny.reference("what is", (1, 2, 3, 4), 4)]
