"""Where networks come from: mlx-lm's architectures, our own, blocks and wirings."""
