//! Texts as vectors.

use crate::sys;

/// Which hidden states of a text become its embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum Pooling {
    /// The mean of all.
    Mean = sys::COW_MLX_POOLING_MEAN,
    /// That of the last token.
    Last = sys::COW_MLX_POOLING_LAST,
    /// That of the first token.
    Cls = sys::COW_MLX_POOLING_CLS,
}

impl From<Pooling> for i32 {
    fn from(pooling: Pooling) -> i32 {
        pooling as i32
    }
}

/// Vectors, a row per text.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    dims: usize,
    values: Vec<f32>,
}

impl Embeddings {
    pub(crate) fn new(dims: usize, values: Vec<f32>) -> Self {
        Self { dims, values }
    }

    /// Values per text.
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// The vectors, in the order of the texts.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.dims.max(1))
    }

    /// All values, row by row.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }
}
