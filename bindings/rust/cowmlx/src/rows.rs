//! Rows of numbers for texts: embeddings, and scores of documents.

use crate::error::Result;
use crate::sys;

macro_rules! rows {
    ($(#[$about:meta])* $name:ident, $(#[$width_about:meta])* $width:ident) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $width: usize,
            values: Vec<f32>,
        }

        impl $name {
            pub(crate) fn new($width: usize, values: Vec<f32>) -> Self {
                Self { $width, values }
            }

            $(#[$width_about])*
            pub fn $width(&self) -> usize {
                self.$width
            }

            /// The rows, in the order of the texts.
            pub fn rows(&self) -> std::slice::ChunksExact<'_, f32> {
                self.values.chunks_exact(self.$width.max(1))
            }

            /// All values, row by row.
            pub fn into_values(self) -> Vec<f32> {
                self.values
            }
        }
    };
}

rows! {
    /// Vectors, a row per text.
    Embeddings,
    /// Values per text.
    dims
}
rows! {
    /// Scores, a row per document.
    Scores,
    /// Values per document: 1, or the labels of a classification head.
    labels
}

/// A row of numbers for each text, and their number, from a call that first reports it.
pub(crate) fn rows(
    texts: &[impl AsRef<str>],
    call: impl Fn(*const sys::cow_mlx_text, usize, *mut f32, usize, &mut usize) -> Result<()>,
) -> Result<(usize, Vec<f32>)> {
    let view = |text: &str| sys::cow_mlx_text { data: text.as_ptr().cast(), length: text.len() };
    let texts: Vec<_> = texts.iter().map(|text| view(text.as_ref())).collect();
    let mut width = 0;
    call(texts.as_ptr(), texts.len(), std::ptr::null_mut(), 0, &mut width)?;
    let mut values = vec![0.0; texts.len() * width];
    call(texts.as_ptr(), texts.len(), values.as_mut_ptr(), values.len(), &mut width)?;
    Ok((width, values))
}
