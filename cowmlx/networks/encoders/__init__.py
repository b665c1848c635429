"""What encoders share: options from a config, layers over texts side by side, heads for labels."""
