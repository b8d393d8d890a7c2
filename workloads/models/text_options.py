"""Options of networks that predict the next token of a text."""

import dataclasses

from workloads.models.options import Bool, Count, ModelOptions, ReadOut, Share, Whole, check_heads


@dataclasses.dataclass(frozen=True)
class LSTM(ModelOptions):
    """A network with an embedding, one LSTM layer and a linear output layer.

    The LSTM (Hochreiter & Schmidhuber 1997) has forget gates. The model maps inputs int32[B, T] to logits float32[B, T,
    V]. Logits at t depend on inputs up to t. Memory and output start at zero. Forget gates have an extra bias of 1, so
    new networks remember. The number of parameters is V × D + 4 × D × (2 × D + 1) + (D + 1) × V, for V classes.

    Attributes:
      d_model: size D of the embedding, the memory and the output.
    """

    network = "lstm.LSTMNetwork"
    d_model: Whole


@dataclasses.dataclass(frozen=True)
class LSTMProjected(ModelOptions):
    """A network with an embedding and an LSTM layer with projected output (Sak et al. 2014, arXiv 1402.1128).

    ``d_model=512`` with ``width=2048`` is LSTM-2048-512 of Jozefowicz et al. (2016, arXiv 1602.02410), but without
    peepholes and cell clipping. A tied output layer shares its matrix with the embedding.

    The model takes inputs int32[B, T]. Outputs at t depend on inputs up to t. The outputs are a ``Product`` of features
    [B, T, D] and kernel [D, V], because logits [B, T, V] may not fit in memory. With a bias, there is one additional
    feature, which is 1. Memory and output start at zero. Forget gates have an extra bias of 1, so new networks
    remember. The number of parameters is V × D + 4 × W × (2 × D + 1) + W × D. A separate output layer adds V × D, and a
    bias adds V.

    Attributes:
      d_model: size D of the embedding and of the projected output, which is fed back into the next step.
      width: size W of the memory cell.
      dropout: probability of dropping a value of the embedding or the output during training, in [0, 1).
      read_out: ``tied``, ``untied`` or ``untied_bias``, as in ``TransformerDecoder``.
    """

    network = "lstm.LSTMProjectedNetwork"
    in_training = True
    d_model: Whole
    width: Whole
    dropout: Share
    read_out: ReadOut = "tied"


@dataclasses.dataclass(frozen=True)
class Transformer(ModelOptions):
    """A Transformer with pre-norm blocks of causal attention and a GELU layer of size 4 × ``d_model``.

    Positions are learned. There are no biases. The embedding matrix of V tokens is also the output layer. The model
    maps inputs int32[B, T] to logits float32[B, T, V]. Logits at t depend on inputs up to t. T must be the length of
    the inputs given to ``init``. The number of parameters is (V + T) × D + layers × (12 × D² + 2 × D) + D.

    Attributes:
      layers: number of blocks.
      d_model: size D of the residual stream.
      heads: number of attention heads, with D / heads dimensions each.
      attention_block: number of tokens of a block of blocked attention, or 0 to store all scores.
    """

    network = "transformer.TransformerNetwork"
    layers: Whole
    d_model: Whole
    heads: Whole
    attention_block: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.d_model, self.heads)


@dataclasses.dataclass(frozen=True)
class TransformerDecoder(ModelOptions):
    """The decoder of Vaswani et al. (2017, arXiv 1706.03762) without an encoder.

    The base model has 6 layers, d_model 512, 8 heads, d_ff 2048 and dropout 0.1. Positions are sinusoidal. Feed-forward
    layers use ReLU and biases. The embedding is multiplied by √D at the input. Dropout is applied to the sum of
    embedding and position, and to the output of each attention and feed-forward layer. Unlike in the paper, layer
    normalization precedes each of these layers and the output layer, because such networks can be trained without
    warm-up (Xiong et al. 2020, arXiv 2002.04745).

    The model takes inputs int32[B, T]. Outputs at t depend on inputs up to t. The outputs are a ``Product`` of features
    [B, T, D] and kernel [D, V], because logits [B, T, V] may not fit in memory. With a bias, there is one additional
    feature, which is 1. The number of parameters is V × D + layers × (4 × D² + 2 × D × F + F + 5 × D) + 2 × D. A
    separate matrix adds V × D, and a bias adds V.

    Attributes:
      layers: number of layers. They are compiled as one.
      d_model: size D of the residual stream.
      heads: number of attention heads, with D / heads dimensions each.
      d_ff: hidden size F of each feed-forward layer.
      dropout: probability of dropping a value during training, in [0, 1).
      read_out: ``tied`` if the embedding is also the output layer, ``untied`` for a separate matrix, or ``untied_bias``
        for a matrix and a bias. A new network with a tied output layer predicts the token that it has just read.
      attention_block: number of tokens of a block of blocked attention, or 0 to store all scores.
    """

    network = "transformer.TransformerDecoderNetwork"
    in_training = True
    layers: Whole
    d_model: Whole
    heads: Whole
    d_ff: Whole
    dropout: Share
    read_out: ReadOut = "tied"
    attention_block: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.d_model, self.heads)


@dataclasses.dataclass(frozen=True)
class TransformerRotary(ModelOptions):
    """A decoder with RMS pre-norms and rotary positions, like Llama (Touvron et al. 2023, arXiv 2302.13971).

    There are no biases and no dropout. The model maps inputs int32[B, T] to logits float32[B, T, V], rounded to the
    dtype of the network. Logits at t depend on inputs up to t. The number of parameters is V × D × (2 − tied) + layers
    × (2 × D × (H + G) × K + (2 + gated) × D × F + 2 × D) + D.

    Attributes:
      layers: number of layers. They are compiled as one.
      d_model: size D of the residual stream.
      heads: number H of attention heads.
      kv: dimensions K of a head, an even number.
      d_ff: hidden size F of each feed-forward layer.
      gated: whether the feed-forward layer is gated by SiLU (Shazeer 2020, arXiv 2002.05202). Otherwise, it uses GELU.
      tied: whether the embedding, multiplied by √D at the input, is also the output layer.
      key_heads: number G of key and value heads, each shared by H / G adjacent query heads (grouped-query attention,
        Ainslie et al. 2023, arXiv 2305.13245). With 0, G is H.
      window: number of tokens that a token attends to, including itself. With 0, it attends to all earlier tokens.
      attention_block: number of tokens of a block of blocked attention, or 0 to store all scores.
    """

    network = "transformer.TransformerRotaryNetwork"
    layers: Whole
    d_model: Whole
    heads: Whole
    kv: Whole
    d_ff: Whole
    gated: Bool
    tied: Bool
    key_heads: Count = 0
    window: Count = 0
    attention_block: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_heads and self.heads % self.key_heads:
            raise ValueError(f"key_heads={self.key_heads} does not divide heads={self.heads}")
        if self.kv % 2:
            raise ValueError(f"kv must be even, because positions rotate pairs of numbers, not {self.kv}")
