"""What the tests share: tiny models and tokenizers."""
