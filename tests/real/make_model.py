"""Make a tiny Llama with random weights and its own tokenizer: ``make_model.py FOLDER [HIDDEN] [LAYERS]``.

Runs inside the engine's environment (torch, transformers, tokenizers), never in ours. Needs no network: the tokenizer
is trained here on three sentences. HIDDEN 512 and LAYERS 8 give 34 million parameters, whose step on one core takes
about 5 ms + 0.4 ms per sequence: slow enough to queue, fast enough for a test.
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HEAD_SIZE = 64
CONTEXT_TOKENS = 2048
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
SENTENCES = [
    "the tide comes in and the tide goes out",
    "a request waits in the queue until a replica has room for it",
    "zero one two three four five six seven eight nine 0123456789",
]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer: every text has tokens, none is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        SENTENCES * 20, trainers.BpeTrainer(vocab_size=1024, special_tokens=SPECIAL, initial_alphabet=alphabet)
    )
    unknown, begin, end, padding = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=unknown,
        bos_token=begin,
        eos_token=end,
        pad_token=padding,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def main(folder: str, hidden: int = 512, layers: int = 8) -> None:
    """Write model and tokenizer to ``folder``. The seed is fixed: the same arguments give the same weights."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    heads = max(hidden // HEAD_SIZE, 1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=SPECIAL.index("<s>"),
        eos_token_id=SPECIAL.index("</s>"),
        pad_token_id=SPECIAL.index("<pad>"),
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:4]))
