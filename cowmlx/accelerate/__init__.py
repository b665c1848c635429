"""What a network is put into for a device; the numbers stay what they are."""
