"""What models call an output head that may be tied to an embedding, and so be in no file."""

from __future__ import annotations

__all__ = ["HEADS", "tied_head"]

# Output heads that are not called `lm_head` and may be tied to an embedding (`_tied_weights_keys`),
# with the types of transformers' models that have them.
HEADS = {
    "cls.predictions.decoder": (
        *("bert", "big_bird", "deberta", "deberta-v2", "ernie", "fnet", "layoutlm", "lxmert"),
        *("megatron-bert", "mobilebert", "mra", "nomic_bert", "nystromformer", "roc_bert"),
        *("roformer", "squeezebert", "tapas", "visual_bert", "yoso"),
    ),
    "lm_head.decoder": (
        *("bert-generation", "camembert", "data2vec-text", "esm", "gte", "ibert"),
        *("jina_embeddings_v3", "longformer", "mpnet", "roberta", "roberta-prelayernorm"),
        *("xlm-roberta", "xlm-roberta-xl", "xmod"),
    ),
    "proj_out": ("canary", "cohere_asr", "moonshine", "moonshine_streaming", "whisper"),
    "output_projection": ("biogpt", "trocr"),
    "generator_lm_head": ("convbert", "electra"),
    "decoder": ("modernbert", "modernbert-decoder"),
    "pred_layer.proj": ("flaubert", "xlm"),
    "lm_head.out_proj": ("t5gemma", "t5gemma2"),
    "predictions.decoder": ("albert",),
    "entity_predictions.decoder": ("luke",),
    "vocab_projector": ("distilbert",),
    "text_decoder.cls.predictions.decoder": ("blip",),
    "text_decoder_postnet.lm_head": ("speecht5",),
    "text_model.lm_head": ("kosmos-2",),
    "unembedding_projection": ("neomme",),
    "head.decoder": ("ultrabert",),
    "head": ("rwkv",),
    "lm_loss": ("xlnet",),
    "output": ("git",),
}


def tied_head(model_type: object) -> str | None:
    """Return what a type of models calls its output head, if that is not `lm_head`."""
    return next((head for head, types in HEADS.items() if model_type in types), None)
