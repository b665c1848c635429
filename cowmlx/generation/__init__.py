"""From logits to text: sampling, stop texts, the course of one generation."""
