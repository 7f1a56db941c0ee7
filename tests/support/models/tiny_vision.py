"""Save tiny vision models of every served family, with random weights."""

from pathlib import Path
from typing import Any

from tests.support.models.tiny_models import LABELS, TINY, byte_tokenizer, label_config, random_model, save, t


def vit(folder: Path) -> Path:
    config = t.ViTConfig(image_size=32, patch_size=8, **TINY, **label_config())
    processor = t.ViTImageProcessorPil(size={"height": 32, "width": 32})
    return save(folder, random_model(lambda: t.ViTForImageClassification(config), 30), processor)


def resnet(folder: Path) -> Path:
    config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", **label_config())
    processor = t.ConvNextImageProcessorPil(size={"shortest_edge": 64}, crop_pct=0.875)
    return save(folder, random_model(lambda: t.ResNetForImageClassification(config), 1), processor)


def resnet_backbone(config: Any = None, **changes: Any) -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    return (config or t.ResNetConfig)(**sizes, layer_type="basic", **changes)


def detr(folder: Path) -> Path:
    config = t.DetrConfig(
        backbone_config=resnet_backbone(out_features=["stage4"]), use_timm_backbone=False, backbone=None,
        num_queries=12, d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, **label_config(),
    )  # fmt: skip
    processor = t.DetrImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 128})
    return save(folder, random_model(lambda: t.DetrForObjectDetection(config), 20), processor)


def yolos(folder: Path) -> Path:
    config = t.YolosConfig(image_size=[64, 64], patch_size=16, num_detection_tokens=10, **TINY, **label_config())
    processor = t.YolosImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96})
    return save(folder, random_model(lambda: t.YolosForObjectDetection(config), 20), processor)


def rt_detr_config(**changes: Any) -> dict[str, Any]:
    """Use one query for each position in an image of 64x64 pixels.

    Fewer would be chosen by scores that random weights make so much alike that the last bit decides which.
    """
    return {
        "d_model": 32, "encoder_hidden_dim": 32, "encoder_in_channels": [16, 24, 32], "encoder_ffn_dim": 48,
        "encoder_attention_heads": 2, "decoder_in_channels": [32, 32, 32], "decoder_ffn_dim": 48,
        "decoder_attention_heads": 2, "decoder_layers": 2, "num_queries": 8 * 8 + 4 * 4 + 2 * 2,
        "num_denoising": 0, **label_config(), **changes,
    }  # fmt: skip


def rt_detr(folder: Path) -> Path:
    backbone = resnet_backbone(t.RTDetrResNetConfig, out_features=["stage2", "stage3", "stage4"])
    config = t.RTDetrConfig(backbone_config=backbone, **rt_detr_config())
    processor = t.RTDetrImageProcessorPil(size={"height": 64, "width": 64})
    return save(folder, random_model(lambda: t.RTDetrForObjectDetection(config), 3, preserve_variance=True), processor)


def d_fine(folder: Path) -> Path:
    backbone = t.HGNetV2Config(
        stem_channels=[3, 8, 8], stage_in_channels=[8, 16, 24, 32], stage_mid_channels=[8, 8, 8, 8],
        stage_out_channels=[16, 24, 32, 32], stage_num_blocks=[1, 1, 1, 1], stage_numb_of_layers=[1, 1, 1, 1],
        stage_light_block=[False, False, True, True], stage_downsample=[False, True, True, True],
        stage_kernel_size=[3, 3, 3, 3], hidden_sizes=[16, 24, 32, 32], out_features=["stage2", "stage3", "stage4"],
        embedding_size=8, depths=[1, 1, 1, 1],
    )  # fmt: skip
    config = t.DFineConfig(backbone_config=backbone, **{**rt_detr_config(), "encoder_in_channels": [24, 32, 32]})
    processor = t.RTDetrImageProcessorPil(size={"height": 64, "width": 64})
    return save(folder, random_model(lambda: t.DFineForObjectDetection(config), 3, preserve_variance=True), processor)


def segformer(folder: Path) -> Path:
    config = t.SegformerConfig(hidden_sizes=[8, 16, 16, 24], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2],
                               decoder_hidden_size=16, mlp_ratios=[2, 2, 2, 2], **label_config())  # fmt: skip
    processor = t.SegformerImageProcessorPil(size={"height": 64, "width": 64})
    return save(folder, random_model(lambda: t.SegformerForSemanticSegmentation(config), 60), processor)


def swin_backbone() -> Any:
    return t.SwinConfig(image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 2],
                        window_size=4, out_features=["stage1", "stage2", "stage3", "stage4"])  # fmt: skip


def maskformer(folder: Path) -> Path:
    decoder = t.DetrConfig(use_timm_backbone=False, backbone=None, backbone_config=resnet_backbone(), d_model=16,
                           encoder_layers=0, decoder_layers=2, decoder_attention_heads=2, encoder_attention_heads=2,
                           decoder_ffn_dim=32, num_queries=8)  # fmt: skip
    config = t.MaskFormerConfig(backbone_config=swin_backbone(), decoder_config=decoder, fpn_feature_size=32,
                                mask_feature_size=32, **label_config())  # fmt: skip
    processor = t.MaskFormerImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96}, num_labels=3)
    return save(folder, random_model(lambda: t.MaskFormerForInstanceSegmentation(config), 40), processor)


def mask2former(folder: Path) -> Path:
    config = t.Mask2FormerConfig(backbone_config=swin_backbone(), feature_size=32, mask_feature_size=32, hidden_dim=32,
                                 encoder_feedforward_dim=32, encoder_layers=1, decoder_layers=2, num_attention_heads=2,
                                 dim_feedforward=32, num_queries=8, **label_config())  # fmt: skip
    processor = t.Mask2FormerImageProcessorPil(size={"height": 64, "width": 64}, num_labels=3)
    return save(folder, random_model(lambda: t.Mask2FormerForUniversalSegmentation(config), 40), processor)


def oneformer(folder: Path) -> Path:
    config = t.OneFormerConfig(
        backbone_config=swin_backbone(), hidden_dim=32, conv_dim=32, mask_dim=32, encoder_layers=2, decoder_layers=2,
        num_attention_heads=2, dim_feedforward=32, encoder_feedforward_dim=32, num_queries=8, text_encoder_width=32,
        text_encoder_num_layers=1, text_encoder_vocab_size=600, text_encoder_context_length=20, text_encoder_n_ctx=4,
        task_seq_len=20, max_seq_len=20, use_task_norm=True, query_dec_layers=1, strides=[4, 8, 16, 32],
        **label_config(),
    )  # fmt: skip
    names = {str(number): label for number, label in enumerate(LABELS)}
    metadata = {**names, "thing_ids": [0, 1], "class_names": list(LABELS)}
    processor = t.OneFormerImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 96}, metadata=metadata,
                                             num_text=4, num_labels=3)  # fmt: skip
    model = random_model(lambda: t.OneFormerForUniversalSegmentation(config), 40)
    return save(folder, model, processor, byte_tokenizer())
