//! How well documents fit a query.

/// Scores, a row per document.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    labels: usize,
    values: Vec<f32>,
}

impl Scores {
    pub(crate) fn new(labels: usize, values: Vec<f32>) -> Self {
        Self { labels, values }
    }

    /// Values per document: 1, or the labels of a classification head.
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// The scores of each document, in their order.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.labels.max(1))
    }

    /// All values, row by row.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}
