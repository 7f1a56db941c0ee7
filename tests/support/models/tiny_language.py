"""Tiny models of language, and of language and vision, as `save_pretrained` writes them."""

from pathlib import Path
from typing import Any

from tests.support.models.tiny_models import TINY, bert_tokenizer, byte_tokenizer, random_model, save, t


def llama_config(vocabulary_size: int, **changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary_size, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": None,
        "eos_token_id": 257, "pad_token_id": 256, **changes,
    }  # fmt: skip


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def vision_config(class_name: str, **changes: Any) -> Any:
    return getattr(t, class_name)(image_size=32, patch_size=8, **TINY, **changes)


def llava(folder: Path) -> Path:
    tokenizer = byte_tokenizer("<image>")
    text = t.LlamaConfig(**llama_config(len(tokenizer)))
    config = t.LlavaConfig(
        vision_config=vision_config("CLIPVisionConfig"), text_config=text, vision_feature_layer=-1,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    image_processor = t.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = t.LlavaProcessor(image_processor, tokenizer, patch_size=8, vision_feature_select_strategy="default",
                                 num_additional_image_tokens=1, chat_template=CHAT_TEMPLATE)  # fmt: skip
    return save(folder, random_model(lambda: t.LlavaForConditionalGeneration(config), 20), processor)


TILE_TOKENS = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>",
         *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)))  # fmt: skip


def idefics3_parts(name: str) -> tuple[Any, Any, Any]:
    """A configuration, an image processor, and a tokenizer."""
    tokenizer = byte_tokenizer(*TILE_TOKENS)
    text = t.LlamaConfig(**llama_config(len(tokenizer), max_position_embeddings=512))
    vision = vision_config(f"{name}VisionConfig")
    config = getattr(t, f"{name}Config")(
        vision_config=vision, text_config=text, scale_factor=2, tie_word_embeddings=False,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), pad_token_id=256,
    )  # fmt: skip
    sizes = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
    return config, getattr(t, f"{name}ImageProcessorPil")(**sizes), tokenizer


def idefics3(folder: Path) -> Path:
    config, image_processor, tokenizer = idefics3_parts("Idefics3")
    processor = t.Idefics3Processor(image_processor, tokenizer, image_seq_len=4, chat_template=CHAT_TEMPLATE)
    return save(folder, random_model(lambda: t.Idefics3ForConditionalGeneration(config), 20), processor)


def smolvlm(folder: Path) -> Path:
    """As the hub has it: the processor names a class that wants video packages."""
    config, image_processor, tokenizer = idefics3_parts("SmolVLM")
    save(folder, random_model(lambda: t.SmolVLMForConditionalGeneration(config), 20), image_processor, tokenizer)
    (folder / "processor_config.json").write_text('{"image_seq_len": 4, "processor_class": "SmolVLMProcessor"}')
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


QWEN_CHAT_TEMPLATE = CHAT_TEMPLATE.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")


QWEN_TOKENS = (
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|object_ref_start|>",
    "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
)  # fmt: skip


def _qwen(folder: Path, name: str, vision: dict[str, Any], **text_changes: Any) -> Path:
    """As the hub has it: the processor names a class that wants video packages."""
    tokenizer = byte_tokenizer(*QWEN_TOKENS)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in tokenizer.get_vocab()}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    config = getattr(t, f"{name}Config")(
        text_config=llama_config(len(tokenizer), rope_parameters=rope, **text_changes),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        vision_config={"depth": 1, "hidden_size": 32, "num_heads": 2, "patch_size": 8, **vision},
    )  # fmt: skip
    image_processor = t.Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, size={"shortest_edge": 256, "longest_edge": 4096}
    )
    model = random_model(lambda: getattr(t, f"{name}ForConditionalGeneration")(config), 20)
    save(folder, model, image_processor, tokenizer)
    (folder / "processor_config.json").write_text(f'{{"processor_class": "{name}Processor"}}')
    (folder / "chat_template.jinja").write_text(QWEN_CHAT_TEMPLATE)
    return folder


def qwen2_vl(folder: Path) -> Path:
    return _qwen(folder, "Qwen2VL", {"embed_dim": 32, "mlp_ratio": 2})


def qwen2_5_vl(folder: Path) -> Path:
    return _qwen(folder, "Qwen2_5_VL", {"intermediate_size": 48, "out_hidden_size": 32})


def qwen3_vl(folder: Path) -> Path:
    vision = {"intermediate_size": 48, "out_hidden_size": 32, "num_position_embeddings": 64,
              "deepstack_visual_indexes": [0]}  # fmt: skip
    return _qwen(folder, "Qwen3VL", vision, head_dim=8)


def blip(folder: Path, class_name: str = "BlipForConditionalGeneration") -> Path:
    tokenizer = bert_tokenizer()
    text = {**bert_config(tokenizer), "encoder_hidden_size": 32, "bos_token_id": 2, "sep_token_id": 3,
            "eos_token_id": 3, "pad_token_id": 0, "projection_dim": 32, "initializer_range": 0.2}  # fmt: skip
    config = t.BlipConfig(
        text_config=text, vision_config=vision_config("BlipVisionConfig").to_dict(), projection_dim=32
    )
    image_processor = t.BlipImageProcessorPil(size={"height": 32, "width": 32})
    model = random_model(lambda: getattr(t, class_name)(config), 20)
    return save(folder, model, t.BlipProcessor(image_processor, tokenizer))


def blip_vqa(folder: Path) -> Path:
    """The one that answers without repeating the question."""
    return blip(folder, "BlipForQuestionAnswering")


def git(folder: Path) -> Path:
    tokenizer = bert_tokenizer()
    config = t.GitConfig(vision_config=vision_config("GitVisionConfig").to_dict(), vocab_size=len(tokenizer), **TINY,
                         max_position_embeddings=128, bos_token_id=2, eos_token_id=3, pad_token_id=0)  # fmt: skip
    image_processor = t.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return save(folder, random_model(lambda: t.GitForCausalLM(config), 20), t.GitProcessor(image_processor, tokenizer))


def paligemma(folder: Path) -> Path:
    tokenizer = byte_tokenizer("<image>", "<bos>", bos_token="<bos>")
    changes = {"head_dim": 8, "bos_token_id": 259, "num_key_value_heads": 1, "tie_word_embeddings": False}
    text = {"model_type": "gemma", **llama_config(len(tokenizer), **changes)}
    config = t.PaliGemmaConfig(
        text_config=text, vision_config=vision_config("SiglipVisionConfig").to_dict(), image_token_index=258,
        image_token_id=258, projection_dim=32, hidden_size=32, tie_word_embeddings=False,
    )  # fmt: skip
    image_processor = t.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    image_processor.image_seq_length = 16
    processor = t.PaliGemmaProcessor(image_processor, tokenizer)
    model = random_model(lambda: t.PaliGemmaForConditionalGeneration(config), 20, seed=2)
    return save(folder, model, processor)


def clip(folder: Path) -> Path:
    tokenizer = bert_tokenizer()
    text = {**bert_config(tokenizer), "eos_token_id": 3, "bos_token_id": 2, "pad_token_id": 0, "projection_dim": 16}
    config = t.CLIPConfig(
        text_config=text, vision_config=vision_config("CLIPVisionConfig").to_dict(), projection_dim=16
    )
    image_processor = t.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return save(folder, random_model(lambda: t.CLIPModel(config)), image_processor, tokenizer)


def siglip(folder: Path) -> Path:
    tokenizer = bert_tokenizer()
    text = {**bert_config(tokenizer), "projection_size": 32}
    config = t.SiglipConfig(text_config=text, vision_config=vision_config("SiglipVisionConfig").to_dict())
    image_processor = t.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    return save(folder, random_model(lambda: t.SiglipModel(config)), image_processor, tokenizer)


def owlvit(folder: Path) -> Path:
    tokenizer = bert_tokenizer()
    tokenizer.model_max_length = 16
    text = {**bert_config(tokenizer), "max_position_embeddings": 16, "bos_token_id": 2, "eos_token_id": 3,
            "pad_token_id": 0}  # fmt: skip
    config = t.OwlViTConfig(text_config=text, vision_config=vision_config("OwlViTVisionConfig").to_dict(),
                            projection_dim=32)  # fmt: skip
    image_processor = t.OwlViTImageProcessorPil(size={"height": 32, "width": 32}, do_center_crop=False)
    model = random_model(lambda: t.OwlViTForObjectDetection(config))
    model.box_head.dense2.weight.data *= 1e-3
    model.class_head.dense0.weight.data *= 1e-2
    model.class_head.logit_scale.weight.data *= 1e-3
    return save(folder, model, t.OwlViTProcessor(image_processor, tokenizer))


def grounding_dino(folder: Path) -> Path:
    tokenizer = bert_tokenizer()
    text = {**bert_config(tokenizer), "model_type": "bert", "num_hidden_layers": 1}
    backbone = t.SwinConfig(image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 2],
                       window_size=4, out_features=["stage2", "stage3", "stage4"])  # fmt: skip
    config = t.GroundingDinoConfig(
        backbone_config=backbone, text_config=text, d_model=32, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=48,
        decoder_ffn_dim=48, encoder_attention_heads=2, decoder_attention_heads=2, num_queries=10, max_text_len=64,
    )  # fmt: skip
    image_processor = t.GroundingDinoImageProcessorPil(size={"shortest_edge": 128, "longest_edge": 160})
    model = random_model(lambda: t.GroundingDinoForObjectDetection(config))
    return save(folder, model, t.GroundingDinoProcessor(image_processor, tokenizer))


def bert_config(tokenizer: Any) -> dict[str, Any]:
    return {"vocab_size": len(tokenizer), "max_position_embeddings": 64, **TINY}


def causal_lm(folder: Path) -> Path:
    tokenizer = byte_tokenizer()
    config = t.LlamaConfig(**llama_config(len(tokenizer)))
    return save(folder, random_model(lambda: t.LlamaForCausalLM(config), 20, suppressed_tokens=(256, 257)), tokenizer)


def talker(folder: Path) -> Path:
    """Write a model that continues long conversations with any bytes."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.role }}: {{ message.content | map(attribute='text') | join }}\n"
        "{% endfor %}assistant:"
    )
    config = t.LlamaConfig(**llama_config(len(tokenizer)) | {"max_position_embeddings": 4096})
    return save(folder, random_model(lambda: t.LlamaForCausalLM(config), 20, suppressed_tokens=(256, 257)), tokenizer)


def t5(folder: Path) -> Path:
    tokenizer = byte_tokenizer()
    config = t.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=256, pad_token_id=256, eos_token_id=257, tie_word_embeddings=False,
    )  # fmt: skip
    model = random_model(lambda: t.T5ForConditionalGeneration(config), 20, suppressed_tokens=(256, 257))
    return save(folder, model, tokenizer)
