"""Registration of the harness's own model type with transformers."""

from __future__ import annotations

from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from harness.encoder.network.architecture import MODEL_TYPE
from harness.encoder.network.config import EncoderConfig
from harness.encoder.network.masked import EncoderForMaskedLM
from harness.encoder.network.model import EncoderModel


def register() -> None:
    """Let AutoConfig and AutoModel load what was saved under the harness's own model type."""
    AutoConfig.register(MODEL_TYPE, EncoderConfig, exist_ok=True)
    AutoModel.register(EncoderConfig, EncoderModel, exist_ok=True)
    AutoModelForMaskedLM.register(EncoderConfig, EncoderForMaskedLM, exist_ok=True)
