"""Tiny models that read images without a chat template: with an encoder and a decoder, or with a list of answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.models.tiny_language import vision_config
from tests.support.models.tiny_models import byte_tokenizer, random_model, save, t

LOCATIONS = tuple(f"<loc_{number}>" for number in range(20))
FIELDS = ("<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>")


def decoder_config(vocabulary_size: int) -> dict[str, Any]:
    """A tiny decoder's configuration in BART's words."""
    return {
        "vocab_size": vocabulary_size, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "max_position_embeddings": 128, "pad_token_id": 256, "eos_token_id": 257, "bos_token_id": 258,
        "decoder_start_token_id": 257, "init_std": 0.3, "forced_eos_token_id": None,
    }  # fmt: skip


def florence2(folder: Path) -> Path:
    tokenizer = byte_tokenizer(
        "<s>", "<image>", *LOCATIONS, bos_token="<s>", extra_special_tokens={"image_token": "<image>"}
    )
    text = t.BartConfig(**decoder_config(len(tokenizer)), tie_word_embeddings=False)
    vision = {
        "depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1],
        "patch_prenorm": [False, True], "embed_dim": [16, 32], "num_heads": [2, 2], "num_groups": [2, 2],
        "window_size": 4, "projection_dim": 32,
    }  # fmt: skip
    config = t.Florence2Config(
        text_config=text.to_dict(), vision_config=vision, image_token_id=259, tie_word_embeddings=False
    )
    image_processor = t.CLIPImageProcessorPil(size={"height": 32, "width": 32}, do_center_crop=False)
    # 4 x 4 cells and their mean.
    image_processor.image_seq_length = 17
    model = random_model(lambda: t.Florence2ForConditionalGeneration(config), 20, suppressed_tokens=(256, 257))
    model.generation_config.update(forced_bos_token_id=258, forced_eos_token_id=None)
    return save(folder, model, t.Florence2Processor(image_processor, tokenizer))


def trocr(folder: Path) -> Path:
    tokenizer = byte_tokenizer("<s>", bos_token="<s>")
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        vision_config("ViTConfig"), t.TrOCRConfig(**_decoder_only(len(tokenizer)), tie_word_embeddings=False)
    )
    _set_ids(config)
    image_processor = t.ViTImageProcessorPil(size={"height": 32, "width": 32})
    model = random_model(lambda: t.VisionEncoderDecoderModel(config), 20, suppressed_tokens=(256, 257))
    # A space, as byte-level tokenizers have it at the start of an answer.
    model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids("\u0120")
    return save(folder, model, t.TrOCRProcessor(image_processor, tokenizer))


def donut(folder: Path, fields: Sequence[str] = FIELDS) -> Path:
    tokenizer = byte_tokenizer("<s>", *fields, "<unk>", bos_token="<s>", unk_token="<unk>")
    encoder = t.DonutSwinConfig(
        image_size=[64, 48], patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4
    )
    decoder = t.MBartConfig(
        **decoder_config(len(tokenizer)), is_decoder=True, add_cross_attention=True, tie_word_embeddings=False
    )
    config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    _set_ids(config)
    image_processor = t.DonutImageProcessorPil(size={"height": 64, "width": 48})
    model = random_model(lambda: t.VisionEncoderDecoderModel(config), 20, suppressed_tokens=(256, 257))
    return save(folder, model, t.DonutProcessor(image_processor, tokenizer))


def donut_receipts(folder: Path) -> Path:
    """One that was not trained on questions."""
    return donut(folder, ("<s_receipt>", "<s_total>", "</s_total>"))


def _decoder_only(vocabulary_size: int) -> dict[str, Any]:
    config = decoder_config(vocabulary_size)
    return {name: value for name, value in config.items() if not name.startswith(("encoder_", "forced_"))}


def _set_ids(config: Any) -> None:
    """Repeat the decoder's token ids, as the library's training recipe for these models does."""
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 257, 256, 257
