"""Images: their pixels, their preprocessing, and the towers that turn them into embeddings."""
