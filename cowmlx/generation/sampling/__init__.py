"""From logits to tokens: penalties, filters, and the choice of a token per row."""
