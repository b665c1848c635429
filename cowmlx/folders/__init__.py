"""The files of a model's folder, read with bounds."""
